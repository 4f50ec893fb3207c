//! A reply in the JSON of its protocol, whole or in chunks.

use std::mem;

use deepseek_recipe::response::ProtocolResponse;
use deepseek_recipe::stream::ChunkGenerator;
use finback_engine::Event;
use serde::Serialize;
use serde_json::{Value, json};

use crate::completion::unix_time;
use crate::reply::{Progress, Reply, Report};

/// One reply on its way out: engine events in, JSON out.
pub struct Output {
    id: String,
    inner: Box<dyn Writer>,
    stream: bool,
    /// Whether the usage comes in a chunk of its own.
    split_usage: bool,
}

impl Output {
    pub(crate) fn new<R>(
        identity: (String, String),
        reply: Reply<ChunkOf<R>>,
        stream: bool,
        include_usage: bool,
    ) -> Self
    where
        R: ProtocolResponse,
        ChunkOf<R>: Serialize + Send,
    {
        let (id, model) = identity;
        let whole = (!stream).then(|| R::new(id.clone(), model, unix_time(), 0, 0));
        Self {
            id,
            inner: Box::new(Typed::<R> { reply, whole }),
            stream,
            split_usage: stream && include_usage,
        }
    }

    /// The reply's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Takes the next event. The values are the chunks it makes, none for a reply that is sent
    /// whole; the last of them has the usage and the `finback` object.
    pub fn push(&mut self, event: Event) -> (Vec<Value>, Progress) {
        let (mut chunks, mut progress) = self.inner.push(event);
        if self.stream && progress == Progress::Done {
            match chunks.pop() {
                Some(last) => chunks.extend(self.seal(last)),
                None => progress = Progress::Failed("the reply has no last chunk".to_owned()),
            }
        }
        (chunks, progress)
    }

    /// Completes the last chunk of a stream, or makes two of it.
    fn seal(&self, mut last: Value) -> Vec<Value> {
        complete_usage(&mut last);
        let runtime = self.report().to_json();
        if !self.split_usage {
            last["finback"] = runtime;
            return vec![last];
        }
        let mut tail = last.clone();
        tail["choices"] = json!([]);
        tail["finback"] = runtime;
        last["usage"] = Value::Null;
        vec![last, tail]
    }

    /// The whole reply, once [`Progress::Done`]. Empty for one that was sent in chunks.
    #[must_use]
    pub fn body(&mut self) -> Value {
        let mut body = self.inner.body();
        if body.is_object() {
            complete_usage(&mut body);
            body["finback"] = self.report().to_json();
        }
        body
    }

    /// What the reply took so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.inner.report()
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Output({})", self.id)
    }
}

/// Says that there was no reasoning where the conversion leaves that out.
fn complete_usage(reply: &mut Value) {
    let usage = &mut reply["usage"];
    if usage.is_object() && usage.get("completion_tokens_details").is_none() {
        usage["completion_tokens_details"] = json!({"reasoning_tokens": 0});
    }
}

type ChunkOf<R> = <<R as ProtocolResponse>::ChunkGenerator as ChunkGenerator>::Chunk;

/// [`Typed`] without its protocol.
trait Writer: Send {
    fn push(&mut self, event: Event) -> (Vec<Value>, Progress);
    fn body(&mut self) -> Value;
    fn report(&self) -> Report;
}

/// A reply of protocol `R`.
struct Typed<R: ProtocolResponse> {
    reply: Reply<ChunkOf<R>>,
    /// Where the chunks go in a reply that is sent whole.
    whole: Option<R>,
}

impl<R> Writer for Typed<R>
where
    R: ProtocolResponse,
    ChunkOf<R>: Serialize + Send,
{
    fn push(&mut self, event: Event) -> (Vec<Value>, Progress) {
        let (chunks, progress) = self.reply.push(event);
        if let Some(whole) = &mut self.whole {
            chunks.into_iter().for_each(|chunk| whole.accumulate(chunk));
            return (Vec::new(), progress);
        }
        match chunks.iter().map(serde_json::to_value).collect() {
            Ok(values) => (values, progress),
            Err(error) => (Vec::new(), Progress::Failed(error.to_string())),
        }
    }

    fn body(&mut self) -> Value {
        // Protocol responses are plain structs: JSON has a form for all of them.
        mem::take(&mut self.whole)
            .and_then(|whole| serde_json::to_value(whole).ok())
            .unwrap_or_default()
    }

    fn report(&self) -> Report {
        self.reply.report()
    }
}
