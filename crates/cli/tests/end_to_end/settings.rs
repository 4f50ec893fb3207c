//! Settings as the binary takes them: flags over environment over defaults, refusals by name.

use serde_json::Value;

use crate::support::{command, failure, failure_of, json, stdout, text, vectors};

fn setting(report: &Value, name: &str) -> (String, String) {
    let entry = report["settings"]
        .as_array()
        .and_then(|all| all.iter().find(|entry| entry["name"] == name))
        .unwrap_or_else(|| panic!("{name} in {report}"));
    let text = |key: &str| entry[key].as_str().expect("text").to_string();
    (text("value"), text("origin"))
}

fn doctor(variables: &[(&str, &str)], args: &[&str]) -> Value {
    let args: Vec<&str> = ["doctor", "--json"].into_iter().chain(args.iter().copied()).collect();
    let output = command(&args).envs(variables.iter().copied()).output().expect("runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_flag_beats_the_environment_and_that_beats_the_default() {
    let plain = doctor(&[], &[]);
    assert_eq!(setting(&plain, "port"), ("8080".into(), "default".into()));
    let variable = [("FINBACK_PORT", "9000")];
    let report = doctor(&variable, &[]);
    assert_eq!(setting(&report, "port"), ("9000".into(), "FINBACK_PORT".into()));
    let report = doctor(&variable, &["--port", "9001"]);
    assert_eq!(setting(&report, "port"), ("9001".into(), "--port".into()));
}

#[test]
fn a_blank_variable_counts_as_unset() {
    let report = doctor(&[("FINBACK_PORT", "  "), ("FINBACK_NUMERICS", "")], &[]);
    assert_eq!(setting(&report, "port"), ("8080".into(), "default".into()));
    assert_eq!(setting(&report, "numerics"), ("release".into(), "default".into()));
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    assert_eq!(
        failure(&["serve", "--port", "65536"]),
        (2, "error: --port: found \"65536\", accepted: a whole number from 0 to 65535\n".into())
    );
    assert_eq!(
        failure(&["run", "hi", "--top-p", "-1"]),
        (2, "error: --top-p: found \"-1\", accepted: a number from 0.000001 to 1\n".into())
    );
    assert_eq!(
        failure(&["run", "--prompt-ids", "5,x"]),
        (
            2,
            "error: --prompt-ids: found \"5,x\", accepted: whole numbers separated by commas, \
             e.g. 5,9,2\n"
                .into()
        )
    );
    let mut serve = command(&["serve"]);
    serve.env("FINBACK_NUMERICS", "exact");
    assert_eq!(
        failure_of(serve),
        (2, "error: FINBACK_NUMERICS: found \"exact\", accepted: release, plain\n".into())
    );
}

#[test]
fn values_that_a_start_refuses_are_named_by_where_they_came_from() {
    let refused = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = command(args);
        command.envs(variables.iter().copied());
        failure_of(command)
    };
    let (code, message) = refused(&[("FINBACK_POOL_TOKENS", "100000000")], &["plan"]);
    let start = "error: FINBACK_POOL_TOKENS: found \"100000000\", accepted: 256 to ";
    assert!(code == 2 && message.starts_with(start), "{message}");
    let other = if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" };
    let (code, message) = refused(&[("FINBACK_ISA", other)], &["plan"]);
    let start = format!("error: FINBACK_ISA: found \"{other}\", accepted here: auto, ");
    assert!(code == 2 && message.starts_with(&start), "{message}");

    // A file where a directory is to be.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let name = file.path().to_str().expect("UTF-8");
    let reason = format!("{name}: kept prefixes cannot be stored there: ");
    let serve = ["serve", "--port", "0", "--context", "256", "--prompt-cache-dir", name];
    let (code, message) = refused(&[], &serve);
    assert!(
        code == 1 && message.contains(&format!("error: --prompt-cache-dir: {reason}")),
        "{message}"
    );
    let (code, message) = refused(&[("FINBACK_PROMPT_CACHE_DIR", name)], &serve[..5]);
    let wanted = format!("error: FINBACK_PROMPT_CACHE_DIR: {reason}");
    assert!(code == 1 && message.contains(&wanted), "{message}");
    let report = doctor(&[("FINBACK_PROMPT_CACHE_DIR", name)], &[]);
    let found = report["start"]["reason"].as_str().expect("a reason");
    let wanted = wanted.trim_start_matches("error: ");
    assert!(report["start"]["ready"] == false && found.starts_with(wanted), "{found}");
    let fresh = file.path().with_extension("kept");
    let report = doctor(&[], &["--prompt-cache-dir", fresh.to_str().expect("UTF-8")]);
    assert_eq!(report["start"]["ready"], true);
    std::fs::remove_dir_all(fresh).expect("it was made");
}

#[test]
fn doctor_says_what_the_named_backend_makes_of_settings() {
    let report = doctor(&[], &[]);
    for (name, value) in [
        ("gpu-attention", "unused by --backend cpu"),
        ("plain-streams", "3"),
        ("prefill-chunk", "256"),
        ("threads", "1"),
    ] {
        assert_eq!(setting(&report, name).0, value, "{name}");
    }
    // Whether or not there is a GPU.
    let report = doctor(&[], &["--backend", "cuda"]);
    for (name, value) in [
        ("threads", "unused by --backend cuda"),
        ("isa", "unused by --backend cuda"),
        ("plain-streams", "12"),
        ("prefill-chunk", "4096"),
    ] {
        assert_eq!(setting(&report, name).0, value, "{name}");
    }
    let report = doctor(&[], &["--backend", "cuda", "--prefill-chunk", "512"]);
    assert_eq!(setting(&report, "prefill-chunk").0, "512");
}

#[test]
fn doctor_says_what_settings_come_to_and_whether_that_starts() {
    let report = doctor(&[], &["--context", "1000", "--parallel", "2", "--isa", "portable"]);
    for (name, value, origin) in [
        ("threads", "1", "FINBACK_THREADS"),
        ("isa", "portable", "--isa"),
        ("context", "1000", "--context"),
        ("pool-tokens", "2048", "default"),
        ("prefill-budget", "256", "default"),
        ("model-id", "finback-demo", "default"),
        ("draft-tokens", "5", "default"),
    ] {
        assert_eq!(setting(&report, name), (value.into(), origin.into()), "{name}");
    }
    let isa = doctor(&[], &[]);
    assert_ne!(setting(&isa, "isa").0, "auto", "the one that is used");
    assert_eq!(report["start"]["ready"], true);
    let requests = &report["requests"];
    // The demo's own file says off, a checkpoint without one thinks, and a flag is above both.
    assert_eq!((&requests["temperature"], &requests["thinking"]), (&1.0.into(), &"off".into()));
    assert_eq!(setting(&report, "thinking"), ("off".into(), "default".into()));
    assert_eq!(doctor(&[], &["--thinking", "on"])["requests"]["thinking"], "on");
    let full = vectors("full");
    let full = full.to_str().expect("a path of text");
    assert_eq!(doctor(&[], &["--checkpoint", full])["requests"]["thinking"], "on");
    let text = stdout(&["doctor", "--thinking", "off"]);
    for line in [
        "pool-tokens           65536  (default: --parallel times --context, less",
        "thinking              off",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    // It does not fail where a start would.
    let report = doctor(&[], &["--checkpoint", "/no/such/directory"]);
    assert_eq!(report["start"]["ready"], false);
    let reason = report["start"]["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("--checkpoint: found /no/such/directory, "), "{reason}");
    assert_eq!((&report["requests"], setting(&report, "port").0.as_str()), (&Value::Null, "8080"));
}

#[test]
fn an_empty_text_is_a_usage_error() {
    for (args, place) in [
        (&["synth", "--out", ""][..], "--out"),
        (&["run", "hi", "--checkpoint", ""], "--checkpoint"),
        (&["run", "hi", "--stop", "a", "--stop", ""], "--stop"),
        (&["run", "hi", "--logits", ""], "--logits"),
        (&["run", ""], "PROMPT"),
        (&["serve", ""], "CHECKPOINT"),
    ] {
        let line = format!("error: {place}: found \"\", accepted: any text but an empty one\n");
        assert_eq!(failure(args), (2, line), "{args:?}");
    }
}

#[test]
fn an_unknown_flag_is_a_usage_error() {
    let (code, message) = failure(&["serve", "--prot", "1"]);
    assert_eq!(code, 2);
    assert!(message.contains("--prot"), "{message}");
    assert_eq!(failure(&["bake"]).0, 2);
}

#[test]
fn doctor_names_backends_and_unknown_variables() {
    let report = doctor(&[("FINBACK_PROT", "1")], &[]);
    assert_eq!(report["backends"]["cpu"], "ready");
    assert_eq!(report["backends"]["metal"], "not built in this version");
    assert!(report["backends"]["cuda"].is_string());
    assert_eq!(report["unknown_variables"][0], "FINBACK_PROT");
    assert!(report["machine"]["cores"].as_u64().is_some_and(|cores| cores > 0));
    let text = stdout(&["doctor"]);
    assert!(text.contains("  cuda ") && text.contains("not built in this version"), "{text}");
    assert!(json(&["doctor", "--json"])["version"].is_string());
}

#[test]
fn the_settings_document_is_printed_whole() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let found = std::fs::read_to_string(path).expect("docs/settings.md");
    assert_eq!(stdout(&["doctor", "--settings-doc"]), found);
}

#[test]
fn rounds_of_the_releases_widths_want_a_gpu() {
    let (code, message) = failure(&["bench", "round"]);
    assert_eq!(code, 2);
    assert!(
        message.contains("--device: found \"emu\"") && message.ends_with("cuda\n"),
        "{message}"
    );
}

#[test]
fn rounds_and_pieces_refuse_what_they_have_no_use_for() {
    let small = ["bench", "round", "--widths", "small"];
    for (more, line) in [
        (
            &["--launches", "--prompt"][..],
            "--prompt: found beside --launches; accepted: one of the two",
        ),
        (
            &["--launches", "--rounds", "3"],
            "--rounds: found beside --launches; accepted: one of the two",
        ),
        (
            &["--launches", "--device", "emu"],
            "--device: found \"emu\" beside --launches, which lists those of an NVIDIA GPU; accepted: cuda",
        ),
        (&["--prompt", "--depth", "9"], "--depth: found beside --prompt; accepted: one of the two"),
        (
            &["--prompt", "--rounds", "9"],
            "--rounds: found beside --prompt; accepted: one of the two",
        ),
        (&["--depths", "9"], "--depths: found without --prompt; accepted: beside it, or --depth"),
        (
            &["--prompt", "--layers", "2"],
            "--layers: found \"2\" beside --prompt, whose pieces run none of so few; accepted: 3 or more",
        ),
    ] {
        let args = [&small[..], more].concat();
        assert_eq!(failure(&args), (2, format!("error: {line}\n")), "{args:?}");
    }
}

#[test]
fn rounds_are_listed_at_any_depth() {
    // Deeper than the context of small widths.
    let listed = json(&[
        "bench",
        "round",
        "--widths",
        "small",
        "--layers",
        "3",
        "--launches",
        "--depth",
        "20000",
        "--json",
    ]);
    assert_eq!(listed["rounds"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_gpu_that_is_not_here_is_refused_with_its_reason() {
    let report = doctor(&[], &[]);
    let here = report["backends"]["cuda"].as_str().expect("a line");
    // Where there is one, there is nothing to refuse.
    let Some(reason) = here.strip_prefix("not here: ") else { return };
    for (args, flag) in [
        (&["plan", "--backend", "cuda"][..], "--backend"),
        (&["contract", "--device", "cuda"], "--device"),
        (&["bench", "round", "--device", "cuda"], "--device"),
    ] {
        assert_eq!(failure(args), (2, format!("error: {flag} cuda: {reason}\n")));
    }
}

#[test]
fn several_gpus_are_refused_where_they_cannot_share_a_model() {
    let found = |beside: &str, accepted: &str| {
        (2, format!("error: --gpus: found \"2\" beside {beside}; accepted: {accepted}\n"))
    };
    assert_eq!(
        failure(&["plan", "--gpus", "2"]),
        found("--backend cpu, which has none", "1, or with --backend cuda")
    );
    assert_eq!(
        failure(&["plan", "--backend", "cuda", "--experts-on", "host", "--gpus", "2"]),
        found("--experts-on host, which takes one GPU", "1")
    );
    let (code, text) = failure(&["plan", "--gpus", "9"]);
    assert_eq!(code, 2);
    assert!(text.contains("--gpus: found \"9\", accepted: a whole number from 1 to 8"), "{text}");
}
