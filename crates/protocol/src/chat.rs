//! Chat messages to a prompt. The conversion and the prompt's text are deepseek-recipe's, which are
//! the release's own; the sampling fields never reach it, so that an explicit value is kept.

use deepseek_recipe::openai::ChatCompletionRequest;
use deepseek_recipe::request::{
    ConversationRequest, ConversionError, ConversionOptions, ModelVersion, ProtocolRequest,
};
use deepseek_recipe_core::special_tokens::SpecialToken;
use deepseek_recipe_encoding::v4::dsv41::DeepseekV41Encoding;
use deepseek_recipe_encoding::{PromptEncoding, RenderedPrompt};
use finback_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;
use crate::body::Body;
use crate::error::check_length;
use crate::params::{MOST_LOGPROBS, Params};

/// The model name that the conversion knows the prompt format by.
const FORMAT: &str = "DeepSeek-V4.1-Flash";

/// What begins a call inside the block of calls, behind the token for markup.
const CALL_TAG: &str = " invoke";

/// A call that a reply must make, where it can be of one tool alone.
#[derive(Debug)]
pub(crate) struct Call {
    /// The tool's.
    pub(crate) name: String,
    /// The call's text up to its arguments: the prompt ends with it, so that no other name can be said.
    pub(crate) opening: String,
}

impl Call {
    /// The one that the prompt leaves open, its beginning appended.
    fn open(conversation: &ConversationRequest, rendered: &mut RenderedPrompt) -> Option<Self> {
        let options = &conversation.parsing_options;
        // The conversion leaves a named tool alone among them.
        let [tool] = conversation.conversation.tools.as_slice() else { return None };
        if !options.starts_in_tool_calls {
            return None;
        }
        let (name, mark) = (tool.name.clone(), options.special_tokens.token(SpecialToken::Dsml));
        let opening = format!("<{mark}{CALL_TAG} name=\"{name}\">\n");
        let at = rendered.prompt.len() + 1;
        rendered.special_ranges.push(at..at + mark.len());
        rendered.prompt.push_str(&opening);
        Some(Self { name, opening })
    }
}

/// A chat request with its prompt.
#[derive(Debug)]
pub(crate) struct Chat {
    pub(crate) prompt: Vec<u32>,
    /// What the conversion says about the reply's form.
    pub(crate) conversation: ConversationRequest,
    pub(crate) params: Params,
    /// The call that the reply goes on with.
    pub(crate) call: Option<Call>,
}

impl Chat {
    pub(crate) fn convert(
        mut body: Body,
        thinking: bool,
        context: usize,
        tokenizer: &Tokenizer,
    ) -> Result<Self, Error> {
        let mut params = Params::take(&mut body)?;
        params.logprobs = logprobs(&mut body)?;
        check_messages(body.get_mut("messages"))?;
        body.put("model", FORMAT.into());
        let body = body.into_value();
        // A reply that must be a call begins with it: unless the request says, it has no reasoning.
        let thinking = thinking && !must_call(&body);
        let request = read(&body)?;
        if must_call(&body) && !has_tools(&body) {
            let accepted = "\"none\" or \"auto\" without tools";
            return Err(Error::value("tool_choice", &body["tool_choice"], accepted));
        }
        let converted = request.convert(options(thinking));
        let mut conversation = converted.map_err(|error| match error {
            ConversionError::BadRequest { detail } | ConversionError::Internal { detail } => {
                refusal(body.clone(), thinking, &detail)
            }
        })?;
        drop(body);
        conversation.stream = params.stream;
        conversation.response_options.include_usage = params.include_usage;
        conversation.parsing_options.stop_sequences.clone_from(&params.stop);
        debug_assert_eq!(conversation.model_version, ModelVersion::DeepseekV41Flash);
        let mut rendered =
            DeepseekV41Encoding::new().render_conversation(&conversation.conversation);
        let call = Call::open(&conversation, &mut rendered);
        check_length(&rendered.prompt, context, tokenizer)?;
        let prompt = tokenizer.encode(&rendered.prompt, &rendered.special_ranges)?;
        Ok(Self { prompt, conversation, params, call })
    }
}

fn options(thinking: bool) -> ConversionOptions {
    let options = ConversionOptions::new().with_default_thinking_mode(thinking);
    debug_assert!(options.model_versions_by_name.contains_key(FORMAT));
    options
}

/// Whether the tool choice is one that forces a call.
fn must_call(body: &Value) -> bool {
    body["tool_choice"] == "required" || body["tool_choice"].is_object()
}

fn has_tools(body: &Value) -> bool {
    body["tools"].as_array().is_some_and(|tools| !tools.is_empty())
}

/// Why a body makes no conversation. The field at fault is, of the tools, the one without which a plain
/// message would make one, where it makes none with them.
fn refusal(mut body: Value, thinking: bool, detail: &str) -> Error {
    body["messages"] = json!([{"role": "user", "content": "Hi"}]);
    let converts = |body: &Value| {
        ChatCompletionRequest::deserialize(body)
            .is_ok_and(|request| request.convert(options(thinking)).is_ok())
    };
    if converts(&body) {
        return Error::conversation("messages", detail);
    }
    let with = |field: &str, value: Value| {
        let mut body = body.clone();
        body[field] = value;
        body
    };
    if must_call(&body) && converts(&with("thinking", json!({"type": "disabled"}))) {
        return Error::value(
            "tool_choice",
            &body["tool_choice"],
            "\"none\" or \"auto\" in thinking mode; with \"thinking\": {\"type\": \"disabled\"} \
             beside it, or neither thinking nor reasoning_effort, a choice that forces a call too",
        );
    }
    let field = match () {
        () if converts(&with("tool_choice", Value::Null)) => "tool_choice",
        () if converts(&with("tools", Value::Null)) => "tools",
        () => "messages",
    };
    Error::conversation(field, detail)
}

/// `logprobs` and `top_logprobs`.
fn logprobs(body: &mut Body) -> Result<Option<usize>, Error> {
    let wanted = body.flag("logprobs")?.unwrap_or(false);
    let top = body.whole("top_logprobs", 0..=MOST_LOGPROBS, "a whole number from 0 to 20")?;
    match (wanted, top) {
        (false, Some(top)) if top > 0 => {
            Err(Error::value("top_logprobs", &top.into(), "0, or \"logprobs\": true beside it"))
        }
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0) as usize)),
    }
}

/// Checks that there are messages, and takes the newer name of the system role.
fn check_messages(messages: Option<&mut Value>) -> Result<(), Error> {
    const ACCEPTED: &str = "a list of at least one message";
    let messages = match messages {
        Some(Value::Array(messages)) if !messages.is_empty() => messages,
        None | Some(Value::Null) => {
            return Err(Error::Missing { field: "messages", accepted: ACCEPTED });
        }
        Some(other) => return Err(Error::value("messages", other, ACCEPTED)),
    };
    for (index, message) in messages.iter_mut().enumerate() {
        if !message.is_object() {
            return Err(Error::value(
                format!("messages[{index}]"),
                message,
                "an object with role and content",
            ));
        }
        if message["role"] == "developer" {
            message["role"] = "system".into();
        }
        // Before their form is looked at: images and files are not there, however well they are sent.
        for (at, part) in message["content"].as_array().into_iter().flatten().enumerate() {
            if let Some(Value::String(kind)) = part.get("type")
                && kind != "text"
            {
                let field = format!("messages[{index}].content[{at}].type");
                return Err(Error::unsupported(field, &part["type"], "\"text\""));
            }
        }
    }
    Ok(())
}

/// Reads the request; where that fails, names the message or field at fault, which the error would not.
fn read(body: &Value) -> Result<ChatCompletionRequest, Error> {
    let error = match ChatCompletionRequest::deserialize(body) {
        Ok(request) => return Ok(request),
        Err(error) => error,
    };
    for (index, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        let alone = json!({"model": FORMAT, "messages": [message]});
        if let Err(error) = ChatCompletionRequest::deserialize(&alone) {
            return Err(Error::value(
                format!("messages[{index}]"),
                message,
                reason("message", &error),
            ));
        }
    }
    for (field, value) in body.as_object().into_iter().flatten() {
        let alone = json!({"model": FORMAT, "messages": [], (field): value});
        if let Err(error) = ChatCompletionRequest::deserialize(&alone) {
            return Err(Error::value(field, value, reason("value", &error)));
        }
    }
    Err(Error::conversation("messages", &error.to_string()))
}

/// What a part of the request lacks, as what is accepted. The error may quote it, line ends and all.
fn reason(part: &str, error: &serde_json::Error) -> String {
    let error = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("a {part} of the chat format ({error})")
}
