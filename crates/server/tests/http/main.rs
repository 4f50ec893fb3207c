//! The routes over a socket: a real engine and router, a runner without a model.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test's helper may panic as the test may"
)]

mod client;
mod disconnects;
mod errors;
mod keepalive;
mod metrics;
mod queue;
mod replies;
mod stop;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use finback_engine::testing::{FakeRunner, NextToken};
use finback_engine::{Engine, Handle, Load, Options};
use finback_protocol::{Api, ApiOptions, Defaults};
use finback_server::App;
use finback_tokenizer::{SYNTHETIC, Tokenizer};
use tokio::net::TcpListener;

const CONTEXT: usize = 4096;
const VOCAB: usize = 1024;
const EOS: u32 = 1;

/// A runner with one slot, windows of one row and the synthetic tokenizer's ids.
fn runner(next: NextToken) -> FakeRunner {
    FakeRunner::new(FakeRunner::small(1, CONTEXT, VOCAB), next)
}

fn app(engine: &Engine) -> App {
    let tokenizer = Arc::new(Tokenizer::from_bytes(SYNTHETIC).unwrap());
    let options = ApiOptions {
        model: "finback/demo".to_owned(),
        aliases: vec!["deepseek-chat".to_owned()],
        context: CONTEXT,
        end_tokens: vec![EOS],
        defaults: Defaults::default(),
        numerics: "release",
    };
    App::new(Arc::new(Api::new(tokenizer, options)), engine.handle()).with_planned(123_456)
}

/// A server that runs until it is dropped.
struct Server {
    address: SocketAddr,
    engine: Engine,
}

impl Server {
    async fn start(runner: FakeRunner) -> Self {
        Self::with(runner, Options::default()).await
    }

    async fn with(runner: FakeRunner, options: Options) -> Self {
        Self::keeping(runner, options, Duration::from_secs(15)).await
    }

    /// A server whose silent streams get a comment after `keepalive`.
    async fn keeping(runner: FakeRunner, options: Options, keepalive: Duration) -> Self {
        let engine = Engine::start(Box::new(runner), options).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(
            axum::serve(listener, app(&engine).with_keepalive(keepalive).router()).into_future(),
        );
        Self { address, engine }
    }

    fn handle(&self) -> Handle {
        self.engine.handle()
    }
}

/// No answer takes this long unless something hangs.
const LONG: Duration = Duration::from_secs(120);

/// A round of this length and a reply of [`ENDLESS`] tokens take longer than anything here.
const SLOW: Duration = Duration::from_millis(50);
const ENDLESS: usize = 4000;

/// Waits until the engine has this load; panics where it takes too long.
async fn wait_for(handle: &Handle, wanted: Load) {
    let start = Instant::now();
    while handle.load() != wanted {
        assert!(start.elapsed() < LONG, "{:?} is not {wanted:?}", handle.load());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
