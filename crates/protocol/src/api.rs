use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deepseek_recipe::openai::ChatCompletionRequest;
use deepseek_recipe::request::ProtocolRequest;
use finback_engine::Request;
use finback_tokenizer::Tokenizer;
use serde_json::Value;

use crate::Error;
use crate::body::Body;
use crate::chat::Chat;
use crate::completion::{Completion, CompletionChunks, CompletionResponse};
use crate::output::Output;
use crate::params::{Defaults, Params};
use crate::reply::{Reply, Setting};
use crate::talk::{Pieces, Talk};

/// The release's token before a user's message.
const USER: &str = "<｜User｜>";
/// The release's token before a reply.
const ASSISTANT: &str = "<｜Assistant｜>";

/// A whole chat reply, in deepseek-recipe's form.
type ChatResponse = <ChatCompletionRequest as ProtocolRequest>::Response;

/// What an [`Api`] is made of.
#[derive(Debug, Clone)]
pub struct ApiOptions {
    /// The served model's id, which replies name.
    pub model: String,
    /// Other names that requests may use for it.
    pub aliases: Vec<String>,
    /// Positions a stream can hold: prompt and reply.
    pub context: usize,
    /// Ids that end a reply.
    pub end_tokens: Vec<u32>,
    /// What requests get where they do not say.
    pub defaults: Defaults,
    /// The numerics mode, as replies name it.
    pub numerics: &'static str,
}

/// Turns request bodies into engine requests, and says how their replies are written.
///
/// Nothing in it waits: the calls are pure work on the calling thread.
#[derive(Debug)]
pub struct Api {
    options: ApiOptions,
    setting: Setting,
    /// Keys of the reply ids, drawn at start.
    keys: [RandomState; 2],
    replies: AtomicU64,
}

/// A request that is ready for the engine, and its reply's writer.
#[derive(Debug)]
pub struct Prepared<O = Output> {
    /// What to submit.
    pub request: Request,
    /// Where the reply's events go.
    pub output: O,
    /// Whether the client wants the reply in pieces.
    pub stream: bool,
}

impl Api {
    /// An API over a tokenizer.
    #[must_use]
    pub fn new(tokenizer: Arc<Tokenizer>, options: ApiOptions) -> Self {
        let fingerprint = format!("finback-{}-{}", env!("CARGO_PKG_VERSION"), options.numerics);
        let setting = Setting { tokenizer, numerics: options.numerics, fingerprint };
        Self { options, setting, keys: Default::default(), replies: AtomicU64::new(0) }
    }

    /// What it was made of.
    #[must_use]
    pub fn options(&self) -> &ApiOptions {
        &self.options
    }

    /// A body of `POST /v1/chat/completions`.
    ///
    /// # Errors
    ///
    /// [`Error`] where the body is malformed or asks for what is not there.
    pub fn chat(&self, body: &[u8]) -> Result<Prepared, Error> {
        let (chat, request) = self.convert_chat(Body::parse(body)?)?;
        let identity = self.identity("chatcmpl");
        let generator = ChatCompletionRequest::chunk_generator(
            &chat.conversation,
            identity.0.clone(),
            identity.1.clone(),
        );
        let parsing = chat.conversation.parsing_options;
        let reply = Reply::new(&self.setting, generator, parsing, true, &request, chat.call);
        let Params { stream, include_usage, .. } = chat.params;
        let output = Output::new::<ChatResponse>(identity, reply, stream, include_usage);
        Ok(Prepared { request, output, stream })
    }

    /// A body of `POST /v1/completions`.
    ///
    /// # Errors
    ///
    /// [`Error`] where the body is malformed or asks for what is not there.
    pub fn completion(&self, body: &[u8]) -> Result<Prepared, Error> {
        let mut body = Body::parse(body)?;
        self.check_model(&mut body)?;
        let Completion { prompt, params } =
            Completion::convert(body, self.options.context, &self.setting.tokenizer)?;
        let request = self.request(prompt, &params);
        let identity = self.identity("cmpl");
        let Params { stream, include_usage, .. } = params;
        let generator =
            CompletionChunks::new(identity.0.clone(), identity.1.clone(), stream && include_usage);
        let parsing = Completion::parsing(&params.stop);
        let reply = Reply::new(&self.setting, generator, parsing, false, &request, None);
        let output = Output::new::<CompletionResponse>(identity, reply, stream, include_usage);
        Ok(Prepared { request, output, stream })
    }

    /// A chat body whose reply a terminal shows: the same conversion, typed pieces back.
    ///
    /// # Errors
    ///
    /// As [`Api::chat`].
    pub fn talk(&self, body: Value) -> Result<Prepared<Talk>, Error> {
        let (chat, request) = self.convert_chat(Body::from_value(body)?)?;
        let parsing = chat.conversation.parsing_options;
        let output = Talk(Reply::new(&self.setting, Pieces, parsing, true, &request, chat.call));
        Ok(Prepared { request, output, stream: true })
    }

    fn convert_chat(&self, mut body: Body) -> Result<(Chat, Request), Error> {
        self.check_model(&mut body)?;
        let ApiOptions { context, defaults, .. } = &self.options;
        let mut chat = Chat::convert(body, defaults.thinking, *context, &self.setting.tokenizer)?;
        let request = self.request(std::mem::take(&mut chat.prompt), &chat.params);
        Ok((chat, request))
    }

    /// A request without a model means the one that is served.
    fn check_model(&self, body: &mut Body) -> Result<(), Error> {
        let Some(model) = body.take("model") else { return Ok(()) };
        let known = model.as_str().is_some_and(|name| {
            name == self.options.model || self.options.aliases.iter().any(|alias| alias == name)
        });
        if known {
            return Ok(());
        }
        Err(Error::Model { found: crate::error::shown(&model), served: self.options.model.clone() })
    }

    fn request(&self, prompt: Vec<u32>, params: &Params) -> Request {
        // The engine refuses a prompt that leaves no room, and cuts what is too long.
        let left = self.options.context.saturating_sub(prompt.len()).max(1);
        let sampling = params.sampling(&self.options.defaults, &prompt);
        let end_tokens =
            if params.ignore_eos { Vec::new() } else { self.options.end_tokens.clone() };
        Request {
            sampling,
            penalties: params.penalties,
            bias: params.bias.clone(),
            end_tokens,
            logprobs: params.logprobs,
            drafts: params.drafts,
            cache: params.cache,
            marks: self.marks(&prompt),
            ..Request::greedy(prompt, params.max_tokens.unwrap_or(left))
        }
    }

    /// Where a later turn is likely to part from this prompt: before the last user message, which may be
    /// edited, and before the reply, which begins otherwise once its reasoning is left out.
    fn marks(&self, prompt: &[u32]) -> Vec<usize> {
        let last = |name| {
            let id = self.setting.tokenizer.special_id(name)?;
            prompt.iter().rposition(|&token| token == id)
        };
        let mut marks: Vec<usize> =
            [USER, ASSISTANT].into_iter().filter_map(last).filter(|&at| at > 0).collect();
        marks.sort_unstable();
        marks
    }

    /// A new reply's id, and the model it names.
    fn identity(&self, prefix: &str) -> (String, String) {
        let count = self.replies.fetch_add(1, Ordering::Relaxed);
        let [high, low] = self.keys.each_ref().map(|key| key.hash_one(count));
        (format!("{prefix}-{high:016x}{low:016x}"), self.options.model.clone())
    }
}
