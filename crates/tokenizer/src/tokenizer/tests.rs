use super::*;
use crate::SYNTHETIC;

fn synthetic() -> Tokenizer {
    Tokenizer::from_bytes(SYNTHETIC).unwrap()
}

#[test]
fn the_synthetic_tokenizer_holds_all_bytes_and_the_release_names() {
    let tokenizer = synthetic();
    assert_eq!(tokenizer.vocab_size(), 1024);
    for byte in 0..=255u8 {
        assert!((0..1024).any(|id| tokenizer.bytes(id) == [byte]), "byte {byte}");
    }
    for (token, id) in [
        ("<｜begin▁of▁sentence｜>", Some(0)),
        ("<｜end▁of▁sentence｜>", Some(1)),
        ("<｜▁pad▁｜>", Some(2)),
        ("<｜image｜>", Some(1023)),
        ("<｜nothing｜>", None),
    ] {
        assert_eq!(tokenizer.special_id(token), id, "{token}");
    }
    for token in
        ["<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜"]
    {
        let id = tokenizer.special_id(token).unwrap();
        assert_eq!(tokenizer.bytes(id), token.as_bytes());
        assert_eq!(tokenizer.raw(id).as_deref(), Some(token));
    }
}

#[test]
fn text_survives_the_way_there_and_back() {
    let tokenizer = synthetic();
    for text in ["", "the whale", " 123456\r\n\t{}", "naïve 🐋 鲸鱼 ﷽", "\u{0}\u{7f}\u{FFFD}"]
    {
        let ids = tokenizer.encode(text, &[]).unwrap();
        assert_eq!(tokenizer.decode(&ids), text);
    }
}

#[test]
fn merges_make_common_words_short() {
    let ids = synthetic().encode("the number of the whale", &[]).unwrap();
    assert!(ids.len() <= 9, "{ids:?}");
}

#[test]
fn only_marked_bytes_become_special_tokens() {
    let tokenizer = synthetic();
    let user = tokenizer.special_id("<｜User｜>").unwrap();
    let text = "<｜User｜>say <｜User｜>";
    let marked = tokenizer.encode(text, std::slice::from_ref(&(0.."<｜User｜>".len()))).unwrap();
    assert_eq!(marked.iter().filter(|&&id| id == user).count(), 1);
    assert_eq!(marked[0], user);
    assert_eq!(tokenizer.decode(&marked), text);
    let plain = tokenizer.encode(text, &[]).unwrap();
    assert!(plain.iter().all(|&id| !tokenizer.is_special(id)), "{plain:?}");
}

#[test]
fn spellings_are_found_longest_first() {
    let tokenizer = synthetic();
    let text = "a<think></think><｜tool▁calls▁begin｜>";
    let ranges = tokenizer.special_ranges(text);
    let found: Vec<&str> = ranges.iter().map(|range| &text[range.clone()]).collect();
    assert_eq!(found, ["<think>", "</think>", "<｜tool▁calls▁begin｜>"]);
    let ids = tokenizer.encode(text, &ranges).unwrap();
    assert_eq!(ids.len(), 4);
    assert_eq!(tokenizer.decode(&ids), text);
}

#[test]
fn bad_ranges_are_refused() {
    let tokenizer = synthetic();
    let cases: [&[(usize, usize)]; 5] =
        [&[(0, 3)], &[(1, 9)], &[(0, 100)], &[(0, 7), (3, 9)], &[(1, 1)]];
    for case in cases {
        let ranges: Vec<_> = case.iter().map(|&(start, end)| start..end).collect();
        assert!(tokenizer.encode("<think>🐋", &ranges).is_err(), "{ranges:?}");
    }
}

#[test]
fn ids_without_a_token_have_no_text() {
    let tokenizer = synthetic();
    assert_eq!(tokenizer.bytes(1024), b"");
    assert_eq!(tokenizer.decode(&[1024, u32::MAX]), "");
    assert!(!tokenizer.is_special(u32::MAX));
}

#[test]
fn files_of_another_kind_are_refused_in_one_line() {
    let cases: [(&[u8], &str); 5] = [
        (b"{", "EOF while parsing an object at line 1 column 1"),
        (b"{}", "model.type is missing; accepted: \"BPE\""),
        (br#"{"model": {"type": "Unigram"}}"#, "model.type is \"Unigram\""),
        (
            br#"{"model": {"type": "BPE"}, "decoder": {"type": "Metaspace"}}"#,
            "decoder.type is \"Metaspace\"; accepted: \"ByteLevel\"",
        ),
        (
            br#"{"version": "1.0", "decoder": {"type": "ByteLevel", "add_prefix_space": false,
                "trim_offsets": false, "use_regex": false}, "added_tokens": [],
                "model": {"type": "BPE", "vocab": {"a": 0, "b": 4000000000}, "merges": []}}"#,
            "token \"b\" has the id 4000000000; accepted: ids below 16777216",
        ),
    ];
    for (bytes, message) in cases {
        let error = Tokenizer::from_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
