use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::EXPECT;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use finback_protocol::{Api, Error, Prepared};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::app::{App, BODY_LIMIT};
use crate::errors::ApiError;
use crate::run::Run;

/// How long a body that is too large is read on.
const DRAIN: Duration = Duration::from_secs(60);

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
    if stream {
        Ok(run.into_sse(app.keepalive).into_response())
    } else {
        Ok(run.whole().await?.into_response())
    }
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
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<Value>, ApiError> {
    let options = app.api.options();
    let found = match id {
        Ok(Path(id)) if id == options.model || options.aliases.contains(&id) => {
            return Ok(Json(describe(&app)));
        }
        Ok(Path(id)) => id,
        // Bytes that are no text, which no model is called.
        Err(_) => uri.path().trim_start_matches("/v1/models/").to_owned(),
    };
    Err(Error::Model { found: format!("{found:?}"), served: options.model.clone() }.into())
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

/// Reads the whole body. One over the limit is read on and dropped: a client that still sends when its
/// connection closes never sees the answer. Only one that waits to be told to send is refused unread.
async fn read(request: Request) -> Result<Vec<u8>, ApiError> {
    let waits = request.headers().contains_key(EXPECT);
    let mut body = request.into_body();
    let mut fits = body.size_hint().lower() <= BODY_LIMIT as u64;
    if !fits && waits {
        return Err(ApiError::too_large(BODY_LIMIT));
    }
    let mut bytes = Vec::new();
    while fits {
        let Some(data) = next(&mut body).await? else { return Ok(bytes) };
        fits = bytes.len() + data.len() <= BODY_LIMIT;
        if fits {
            bytes.extend_from_slice(&data);
        }
    }
    drop(bytes);
    let rest = async { while let Ok(Some(_)) = next(&mut body).await {} };
    // A client that takes longer than that is cut off.
    let _ = tokio::time::timeout(DRAIN, rest).await;
    Err(ApiError::too_large(BODY_LIMIT))
}

/// The next bytes of a body; `None` after the last.
async fn next(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        // What is no data is trailers.
        if let Ok(data) = frame.map_err(|error| ApiError::broken_body(&error))?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
