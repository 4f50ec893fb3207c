use std::error::Error as _;
use std::sync::Arc;

use axum::Json;
use axum::body::{Bytes, HttpBody, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use finback_protocol::{Api, Error, Prepared};
use http_body_util::LengthLimitError;
use serde_json::{Value, json};

use crate::app::{App, BODY_LIMIT};
use crate::errors::ApiError;
use crate::run::Run;

/// `POST /v1/chat/completions`
pub(crate) async fn chat(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    answer(&app, request, |api, body| api.chat(body)).await
}

/// `POST /v1/completions`
pub(crate) async fn completion(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    answer(&app, request, |api, body| api.completion(body)).await
}

async fn answer(
    app: &App,
    request: Request,
    prepare: fn(&Api, &[u8]) -> Result<Prepared, Error>,
) -> Result<Response, ApiError> {
    let begun = begin(app, request, prepare).await.inspect_err(|_| app.outcomes.count("refused"));
    let (run, stream) = begun?;
    if stream { Ok(run.into_sse().into_response()) } else { Ok(run.whole().await?.into_response()) }
}

/// Puts a request into the engine; `true` beside its run where it wants its reply in pieces.
async fn begin(
    app: &App,
    request: Request,
    prepare: fn(&Api, &[u8]) -> Result<Prepared, Error>,
) -> Result<(Run, bool), ApiError> {
    let body = read(request).await?;
    let api = Arc::clone(&app.api);
    // A long prompt takes a while to encode: not on a thread that serves other clients.
    let prepared = tokio::task::spawn_blocking(move || prepare(&api, &body))
        .await
        .map_err(|error| ApiError::failed(format!("the request could not be read: {error}")))??;
    let reply = app.engine.submit(prepared.request).map_err(Error::from)?;
    Ok((Run::new(reply, prepared.output, app), prepared.stream))
}

/// `GET /v1/models`
pub(crate) async fn models(State(app): State<App>) -> Json<Value> {
    Json(json!({"object": "list", "data": [describe(&app)]}))
}

/// `GET /v1/models/{id}`
pub(crate) async fn model(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let options = app.api.options();
    if id == options.model || options.aliases.contains(&id) {
        return Ok(Json(describe(&app)));
    }
    Err(Error::Model { found: format!("{id:?}"), served: options.model.clone() }.into())
}

fn describe(app: &App) -> Value {
    json!({
        "id": app.api.options().model,
        "object": "model",
        "created": app.created,
        "owned_by": "finback",
        "max_model_len": app.engine.info().context,
    })
}

/// `GET /health`
pub(crate) async fn health(State(app): State<App>) -> Response {
    let load = app.engine.load();
    let model = &app.api.options().model;
    match app.engine.stopped() {
        None => Json(json!({
            "status": "ok", "model": model, "running": load.running, "waiting": load.waiting,
        }))
        .into_response(),
        Some(reason) => {
            let status = if app.engine.stopping() { "draining" } else { "stopped" };
            let body = json!({
                "status": status, "model": model, "reason": reason,
                "running": load.running, "waiting": load.waiting,
            });
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

/// Reads the whole body. One that says it is too large is refused before it is read.
async fn read(request: Request) -> Result<Bytes, ApiError> {
    let body = request.into_body();
    if body.size_hint().lower() > BODY_LIMIT as u64 {
        return Err(ApiError::too_large(BODY_LIMIT));
    }
    to_bytes(body, BODY_LIMIT).await.map_err(|error| {
        // The limit is told apart from a connection that broke by the source's type alone.
        match error.source() {
            Some(source) if source.is::<LengthLimitError>() => ApiError::too_large(BODY_LIMIT),
            _ => ApiError::broken_body(&error),
        }
    })
}
