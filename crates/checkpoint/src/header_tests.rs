use proptest::prelude::*;

use super::*;

fn shard(json: &str, data: usize) -> Vec<u8> {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json.bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

fn refusal(bytes: &[u8]) -> String {
    let text = parse_header(Path::new("s"), bytes).unwrap_err().to_string();
    assert!(!text.contains('\n'), "{text:?} is one line");
    text
}

fn tensor(dtype: &str, shape: &str, begin: usize, end: usize) -> String {
    format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

#[test]
fn a_good_header_gives_file_ranges_in_order() {
    let json = format!(
        r#"{{"__metadata__":{{"format":"pt"}},"b":{},"a":{},"empty":{}}}"#,
        tensor("F32", "[2]", 6, 14),
        tensor("BF16", "[3]", 0, 6),
        tensor("I8", "[0,4]", 6, 6),
    );
    let bytes = shard(&json, 14);
    let header = parse_header(Path::new("s"), &bytes).unwrap();
    let start = 8 + json.len();
    let got: Vec<_> = header.tensors.iter().map(|t| (t.name.as_str(), t.range.clone())).collect();
    let want = [("a", 0..6), ("empty", 6..6), ("b", 6..14)];
    let want: Vec<_> = want.map(|(n, r)| (n, start + r.start..start + r.end)).into();
    assert_eq!(got, want);
    assert_eq!(header.tensors[0].shape, [3]);
    assert_eq!(header.tensors[0].dtype, Dtype::Bf16);
}

#[test]
fn bounds_of_the_header_itself() {
    assert_eq!(
        refusal(b"1234567"),
        "s: found 7 bytes, wanted a safetensors file of at least 8 bytes"
    );
    assert_eq!(
        refusal(&u64::MAX.to_le_bytes()),
        "s: found a header of 18446744073709551615 bytes, wanted at most 100000000 (a safetensors file)"
    );
    let mut cut = shard("{}", 0);
    cut.truncate(9);
    assert_eq!(
        refusal(&cut),
        "s: found 9 bytes, wanted 10 for the header alone (is the file cut short?)"
    );
    for (json, reason) in [
        ("[]", "invalid type: sequence, expected an object of tensors at line 1 column 0"),
        ("{", "EOF while parsing an object at line 1 column 1"),
        (r#"{"a":1}"#, "tensor \"a\": invalid type: integer `1`, expected struct RawTensor"),
        (
            r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}"#,
            "tensor \"a\": invalid value",
        ),
        (r#"{"a":{"dtype":"F32","data_offsets":[0,0]}}"#, "tensor \"a\": missing field `shape`"),
    ] {
        let text = refusal(&shard(json, 0));
        assert!(text.starts_with("s: found a header that does not parse ("), "{text}");
        assert!(text.contains(reason), "{text}");
        assert!(text.ends_with(", wanted a safetensors header"), "{text}");
    }
}

#[test]
fn each_rule_on_a_tensor_has_its_line() {
    let one = |t: String| format!(r#"{{"a":{t}}}"#);
    let cases = [
        (
            one(tensor("F7", "[1]", 0, 4)),
            4,
            "dtype \"F7\", wanted one of F8_E4M3, F8_E8M0, I8, U8, BF16, F16, F32, F64, I32, I64, \
             BOOL, F4, F6_E2M3, F6_E3M2, F8_E5M2, I16, U16, U32, U64, C64",
        ),
        (one(tensor("F32", "[1]", 4, 0)), 4, "offsets 4..0, wanted the first not above the second"),
        (
            one(tensor("F32", "[2]", 0, 8)),
            7,
            "offsets 0..8 in 7 bytes of data, wanted offsets inside the file (is it cut short?)",
        ),
        (one(tensor("F32", "[2]", 0, 4)), 4, "4 bytes (offsets 0..4), wanted 8 for F32 [2]"),
        (
            one(tensor("F32", "[4294967296,4294967296,2]", 0, 4)),
            4,
            "F32 [4294967296, 4294967296, 2], wanted a size in whole bytes that fits memory",
        ),
        (one(tensor("F32", "[1]", 4, 8)), 8, "an offset of 4, which leaves a gap, wanted 0"),
    ];
    for (json, data, rest) in cases {
        assert_eq!(refusal(&shard(&json, data)), format!("s: tensor \"a\": found {rest}"));
    }
}

#[test]
fn rules_between_tensors() {
    let two = |n: &str, a: String, b: String| format!(r#"{{"a":{a},"{n}":{b}}}"#);
    let overlap = two("b", tensor("F32", "[2]", 0, 8), tensor("F32", "[1]", 4, 8));
    assert_eq!(
        refusal(&shard(&overlap, 8)),
        "s: tensor \"b\": found an offset of 4, which overlaps the tensor before it, wanted 8"
    );
    let twice = two("a", tensor("F32", "[1]", 0, 4), tensor("F32", "[1]", 4, 8));
    assert_eq!(
        refusal(&shard(&twice, 8)),
        "s: tensor \"a\": found the name twice in the header, wanted unique names"
    );
    let rest = format!(r#"{{"a":{}}}"#, tensor("F32", "[1]", 0, 4));
    assert_eq!(refusal(&shard(&rest, 9)), "s: found 5 bytes after the last tensor, wanted none");
}

#[test]
fn a_name_with_a_line_break_stays_one_line() {
    let json = format!(r#"{{"a\nb":{}}}"#, tensor("F7", "[1]", 0, 4));
    assert!(refusal(&shard(&json, 4)).starts_with(r#"s: tensor "a\nb": found dtype"#));
}

proptest! {
    #[test]
    fn any_bytes_give_a_header_or_one_line(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(e) = parse_header(Path::new("s"), &bytes) {
            prop_assert!(!e.to_string().contains('\n'));
        }
    }

    #[test]
    fn accepted_headers_are_those_the_format_crate_accepts(
        parts in prop::collection::vec((0usize..4, 0usize..5, 0usize..3), 0..4),
        rest in 0usize..2,
    ) {
        // Sizes, gaps and types drawn so that about half of the headers are good.
        let dtypes = [("F32", 4), ("BF16", 2), ("U8", 1), ("F8_E8M0", 1)];
        let (mut at, mut json) = (0, String::from("{"));
        for (i, (dtype, elements, gap)) in parts.iter().enumerate() {
            let (dtype, width) = dtypes[*dtype];
            let begin = at + usize::from(*gap == 2);
            at = begin + elements * width;
            let comma = if i > 0 { "," } else { "" };
            json += &format!("{comma}\"t{i}\":{}", tensor(dtype, &format!("[{elements}]"), begin, at));
        }
        json.push('}');
        let bytes = shard(&json, at + rest);
        let ours = parse_header(Path::new("s"), &bytes);
        let theirs = safetensors::SafeTensors::deserialize(&bytes);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs.err());
    }
}
