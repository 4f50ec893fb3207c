use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::{get, post};
use finback_engine::Handle;
use finback_protocol::Api;

use crate::metrics::{Outcomes, metrics};
use crate::{errors, routes};

/// Bytes a request body may have: room for a prompt of a million tokens in any form.
pub const BODY_LIMIT: usize = 32 << 20;

/// The silence after which a stream gets a comment, where nothing else is said.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What the routes need.
#[derive(Debug, Clone)]
pub struct App {
    pub(crate) api: Arc<Api>,
    pub(crate) engine: Handle,
    pub(crate) outcomes: Arc<Outcomes>,
    /// A stream that has been silent this long gets a comment.
    pub(crate) keepalive: Duration,
    /// Bytes that the start planned to allocate, where it planned.
    pub(crate) planned: Option<u64>,
    /// Unix time of the start, which the model list names.
    pub(crate) created: u64,
}

impl App {
    /// An app over a running engine. The handle does not keep the engine alive.
    #[must_use]
    pub fn new(api: Arc<Api>, engine: Handle) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { api, engine, outcomes: Arc::default(), keepalive: KEEPALIVE, planned: None, created }
    }

    /// The app with another time after which a silent stream gets a comment.
    #[must_use]
    pub fn with_keepalive(self, keepalive: Duration) -> Self {
        Self { keepalive, ..self }
    }

    /// The app with the bytes that its start planned to allocate, which `/metrics` says.
    #[must_use]
    pub fn with_planned(self, bytes: u64) -> Self {
        Self { planned: Some(bytes), ..self }
    }

    /// All routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/v1/chat/completions", post(routes::chat))
            .route("/v1/completions", post(routes::completion))
            .route("/v1/models", get(routes::models))
            // A wildcard: model ids may hold slashes.
            .route("/v1/models/{*id}", get(routes::model))
            .route("/health", get(routes::health))
            .route("/metrics", get(metrics))
            .fallback(errors::no_route)
            .method_not_allowed_fallback(errors::no_method)
            .with_state(self)
    }
}
