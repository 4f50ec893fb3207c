//! The only place that knows what an error looks like over HTTP.

use axum::Json;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use finback_engine::Refusal;
use finback_protocol::Error;
use serde_json::{Value, json};

/// Seconds after which a full queue may have room.
const RETRY_FULL: u64 = 1;

/// Seconds after which a server that stops may have a successor.
const RETRY_STOPPED: u64 = 10;

/// An error in OpenAI's form.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    param: Option<String>,
    code: &'static str,
}

impl ApiError {
    fn new(status: StatusCode, message: String, code: &'static str) -> Self {
        Self { status, message, param: None, code }
    }

    /// A reply that could not be finished.
    pub(crate) fn failed(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message, "reply_failed")
    }

    /// The engine ended while the request waited or ran.
    pub(crate) fn stopped(message: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message, "engine_stopped")
    }

    /// A body over the limit.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the request body is too large; accepted: at most {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message, "body_too_large")
    }

    /// A body that broke off.
    pub(crate) fn broken_body(error: &impl std::fmt::Display) -> Self {
        let message = format!("the request body cannot be read: {error}");
        Self::new(StatusCode::BAD_REQUEST, message, "body_broken")
    }

    /// The `{"error": ...}` object.
    pub(crate) fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {
            "message": self.message, "type": kind, "param": self.param, "code": self.code,
        }})
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Model { .. } => StatusCode::NOT_FOUND,
            Error::Refused(Refusal::Stopped { .. }) => StatusCode::SERVICE_UNAVAILABLE,
            Error::Refused(Refusal::Full { .. }) => StatusCode::TOO_MANY_REQUESTS,
            Error::Tokenizer(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Self {
            status,
            message: error.to_string(),
            param: error.param().map(str::to_owned),
            code: error.code(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let seconds = match self.status {
            StatusCode::TOO_MANY_REQUESTS => Some(RETRY_FULL),
            StatusCode::SERVICE_UNAVAILABLE => Some(RETRY_STOPPED),
            _ => None,
        };
        let retry = seconds.map(|seconds| [(header::RETRY_AFTER, seconds.to_string())]);
        (self.status, retry, Json(self.body())).into_response()
    }
}

/// A path that is none.
pub(crate) async fn no_route(method: Method, uri: Uri) -> ApiError {
    let message = format!(
        "there is no route {method} {}; there are POST /v1/chat/completions, POST \
         /v1/completions, GET /v1/models, GET /v1/models/{{id}}, GET /health and GET /metrics",
        uri.path()
    );
    ApiError::new(StatusCode::NOT_FOUND, message, "no_route")
}

/// A path that has other methods.
pub(crate) async fn no_method(method: Method, uri: Uri) -> ApiError {
    let accepted = if uri.path().ends_with("completions") { "POST" } else { "GET" };
    let message = format!("{} does not take {method}; accepted: {accepted}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message, "no_method")
}
