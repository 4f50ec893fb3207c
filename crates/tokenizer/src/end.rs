use serde_json::Value;

use crate::{Error, Tokenizer};

/// The release's end-of-sentence token.
const END_OF_SENTENCE: &str = "<｜end▁of▁sentence｜>";

/// A token that ends a reply, and the file that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndToken {
    /// Its id.
    pub id: u32,
    /// The first file, in reading order, that names it.
    pub source: &'static str,
}

/// The tokens that end a reply, from every source: `eos_token_id` of `config.json` (in
/// `text_config` or at the top), `eos_token_id` of `generation_config.json`, and the tokenizer's
/// end-of-sentence token. Each id once.
///
/// # Errors
///
/// A field that holds neither an id of the vocabulary nor a list of them; or no source at all.
pub fn end_tokens(
    config: &Value,
    generation_config: Option<&Value>,
    tokenizer: &Tokenizer,
) -> Result<Vec<EndToken>, Error> {
    let text_config = config.get("text_config").unwrap_or(&Value::Null);
    let fields = [
        ("config.json", "text_config.eos_token_id", text_config.get("eos_token_id")),
        ("config.json", "eos_token_id", config.get("eos_token_id")),
        (
            "generation_config.json",
            "eos_token_id",
            generation_config.and_then(|config| config.get("eos_token_id")),
        ),
    ];
    let mut tokens: Vec<EndToken> = Vec::new();
    let mut add = |id, source| {
        if tokens.iter().all(|token| token.id != id) {
            tokens.push(EndToken { id, source });
        }
    };
    for (file, field, value) in fields {
        let Some(value) = value.filter(|value| !value.is_null()) else { continue };
        let vocab = tokenizer.vocab_size();
        let ids = match value {
            Value::Array(ids) => ids.as_slice(),
            id => std::slice::from_ref(id),
        };
        for id in ids {
            let id = id
                .as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .filter(|&id| (id as usize) < vocab)
                .ok_or_else(|| Error::EndToken { file, field, found: value.to_string(), vocab })?;
            add(id, file);
        }
    }
    if let Some(id) = tokenizer.special_id(END_OF_SENTENCE) {
        add(id, "tokenizer.json");
    }
    if tokens.is_empty() { Err(Error::NoEndToken(END_OF_SENTENCE)) } else { Ok(tokens) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::SYNTHETIC;

    fn tokens(
        config: &Value,
        generation: Option<&Value>,
    ) -> Result<Vec<(u32, &'static str)>, Error> {
        let tokenizer = Tokenizer::from_bytes(SYNTHETIC).unwrap();
        end_tokens(config, generation, &tokenizer)
            .map(|tokens| tokens.iter().map(|token| (token.id, token.source)).collect())
    }

    #[test]
    fn every_source_is_read_and_each_id_kept_once() {
        let found = tokens(
            &json!({"text_config": {"eos_token_id": 7}, "eos_token_id": [8, 7]}),
            Some(&json!({"eos_token_id": [1, 9]})),
        );
        assert_eq!(
            found.unwrap(),
            [
                (7, "config.json"),
                (8, "config.json"),
                (1, "generation_config.json"),
                (9, "generation_config.json")
            ]
        );
    }

    #[test]
    fn the_tokenizer_names_one_where_no_config_does() {
        let found = tokens(&json!({"eos_token_id": null}), Some(&json!({}))).unwrap();
        assert_eq!(found, [(1, "tokenizer.json")]);
    }

    #[test]
    fn a_value_that_is_no_id_is_refused() {
        for bad in [json!("1"), json!(-1), json!(1.5), json!([1, 4_294_967_296u64]), json!(1024)] {
            let error = tokens(&json!({"eos_token_id": bad}), None).unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "config.json: eos_token_id is {bad}; accepted: a token id below 1024 or a \
                     list of them"
                )
            );
        }
    }
}
