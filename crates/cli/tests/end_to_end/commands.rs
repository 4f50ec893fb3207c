//! inspect, plan, synth, chat, and checkpoints that cannot be loaded.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

use crate::support::{command, failure, failure_of, finback, json, stdout, text, vectors};

fn path(directory: &Path) -> &str {
    directory.to_str().expect("UTF-8")
}

/// A copy of a vectors' checkpoint to break.
fn copy(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for entry in fs::read_dir(vectors(name)).expect("readable") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), directory.path().join(entry.file_name())).expect("copies");
    }
    directory
}

/// Every command that loads a checkpoint refuses this one with code 1 and one line with these words.
fn refused(directory: &Path, words: &[&str]) {
    let directory = path(directory);
    for args in [
        &["inspect", directory][..],
        &["plan", directory],
        &["serve", "--port", "0", directory],
        &["run", "--checkpoint", directory, "--prompt-ids", "1"],
    ] {
        let (code, message) = failure(args);
        assert_eq!(code, 1, "{args:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        for word in words {
            assert!(message.contains(word), "{args:?}: {word} in {message}");
        }
    }
}

#[test]
fn broken_checkpoints_are_refused_by_name() {
    let missing = tempfile::tempdir().expect("a directory");
    let nowhere = missing.path().join("nowhere");
    refused(&nowhere, &["nowhere"]);
    let file = missing.path().join("a.gguf");
    fs::write(&file, "GGUF").expect("writes");
    for (found, lacks) in [
        (&*nowhere, "which is not there"),
        (&*file, "which is no directory"),
        (missing.path(), "which has no config.json"),
    ] {
        let accepted = "a directory with config.json, model.safetensors.index.json and the shards it \
                        names, or no checkpoint for the embedded demo model";
        let found = path(found);
        let reason = format!("found {found}, {lacks}; accepted: {accepted}\n");
        let inspected = failure(&["inspect", found]);
        assert_eq!(inspected, (1, format!("error: CHECKPOINT: {reason}")));
        let run = failure(&["run", "hi", "--checkpoint", found]);
        assert_eq!(run, (1, format!("error: --checkpoint: {reason}")));
        let mut plan = command(&["plan"]);
        plan.env("FINBACK_CHECKPOINT", found);
        assert_eq!(failure_of(plan), (1, format!("error: FINBACK_CHECKPOINT: {reason}")));
    }

    let shard = "model-00002-of-00005.safetensors";
    let gone = copy("full");
    fs::remove_file(gone.path().join(shard)).expect("removes");
    refused(gone.path(), &[shard]);

    let cut = copy("full");
    let file = fs::File::options().write(true).open(cut.path().join(shard)).expect("opens");
    file.set_len(file.metadata().expect("metadata").len() - 1).expect("cuts");
    refused(cut.path(), &[shard]);

    let other = copy("full");
    let config = other.path().join("config.json");
    let changed =
        fs::read_to_string(&config).expect("readable").replace("\"sqrtsoftplus\"", "\"tanh\"");
    fs::write(&config, changed).expect("writes");
    refused(other.path(), &["scoring_func", "tanh"]);
}

/// What `inspect`, `plan` or `run` says of a checkpoint, its directory as DIR.
fn told(directory: &Path) -> String {
    let (code, message) = failure(&["plan", path(directory)]);
    assert_eq!(code, 1, "{message}");
    message.replace(path(directory), "DIR")
}

#[test]
fn small_files_are_named_once_with_their_directory() {
    let made = tempfile::tempdir().expect("a directory");
    let out = made.path().join("made");
    stdout(&["synth", "--out", path(&out)]);
    let file = |name: &str| out.join(name);
    let write = |name: &str, text: &str| fs::write(file(name), text).expect("writes");
    for (text, line) in [
        ("{\"top_p\": 2}", "top_p is 2; accepted: a number above 0, at most 1"),
        ("[1]", "the file is [1]; accepted: a JSON object"),
        (
            "{\"default_chat_template_kwargs\": {\"enable_thinking\": 0}}",
            "enable_thinking is 0; accepted: true or false",
        ),
        (
            "{\"eos_token_id\": -1}",
            "eos_token_id is -1; accepted: a token id below 1024 or a list of them",
        ),
    ] {
        write("generation_config.json", text);
        assert_eq!(told(&out), format!("error: DIR/generation_config.json: {line}\n"));
    }
    fs::remove_file(file("generation_config.json")).expect("removes");
    for (text, line) in [
        ("{}", "model.type is missing; accepted: \"BPE\""),
        ("{", "EOF while parsing an object at line 1 column 1"),
    ] {
        write("tokenizer.json", text);
        assert_eq!(told(&out), format!("error: DIR/tokenizer.json: {line}\n"));
    }
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_are_named() {
    let names =
        ["generation_config.json", "tokenizer.json", "model.safetensors.index.json", "config.json"];
    for name in names {
        let broken = copy("full");
        let link = broken.path().join(name);
        if link.exists() {
            fs::remove_file(&link).expect("removes");
        }
        std::os::unix::fs::symlink("nowhere", &link).expect("links");
        let reason = "No such file or directory (os error 2)";
        assert_eq!(told(broken.path()), format!("error: DIR/{name}: {reason}\n"));
    }
}

#[test]
fn a_file_that_cannot_be_written_ends_a_run_before_its_reply() {
    let ask = ["run", "hello", "--max-tokens", "4"];
    for flag in ["--logits", "--profile-rounds"] {
        let output = finback(&[&ask[..], &[flag, "/no/such/directory/file"]].concat());
        assert_eq!(output.status.code(), Some(1));
        let reason = "No such file or directory (os error 2)";
        let line = format!("error: cannot write /no/such/directory/file ({flag}): {reason}\n");
        assert_eq!(text(&output.stderr), line);
        assert_eq!(text(&output.stdout), "", "{flag}: no reply runs");
    }
}

#[test]
fn a_missing_token_map_is_named() {
    let directory = copy("engram");
    fs::remove_file(directory.path().join("engram_token_map.json")).expect("removes");
    let (code, message) =
        failure(&["run", "--checkpoint", path(directory.path()), "--prompt-ids", "1"]);
    assert_eq!(code, 1);
    assert!(message.contains("engram_token_map.json"), "{message}");
}

#[test]
fn a_text_prompt_needs_a_tokenizer() {
    let (code, message) = failure(&["run", "--checkpoint", path(&vectors("full")), "hello"]);
    assert_eq!(code, 1);
    assert!(message.contains("tokenizer.json") && message.contains("--prompt-ids"), "{message}");
    let (code, message) = failure(&["run"]);
    assert_eq!(code, 2);
    assert!(message.contains("PROMPT") && message.contains("--prompt-ids"), "{message}");
}

#[test]
fn ids_outside_the_vocabulary_are_refused() {
    let (code, message) =
        failure(&["run", "--checkpoint", path(&vectors("full")), "--prompt-ids", "1,512"]);
    assert_eq!(code, 1);
    assert!(message.contains("512") && message.contains("vocabulary"), "{message}");
}

#[test]
fn synth_writes_what_inspect_plan_and_run_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("made");
    let made = path(&out);
    stdout(&["synth", "--out", made, "--layers", "6", "--hidden", "96", "--experts", "4"]);
    let report = json(&["inspect", made, "--json"]);
    assert_eq!(report["config"]["num_hidden_layers"], 6);
    assert_eq!(report["config"]["hidden_size"], 96);
    assert!(stdout(&["inspect", made]).contains("routed experts"));
    assert_eq!(json(&["plan", made, "--json"])["fits"], true);
    let args = ["run", "--checkpoint", made, "hello", "--max-tokens", "5", "--json"];
    assert!(json(&args)["completion_tokens"].as_u64().is_some_and(|n| (1..=5).contains(&n)));

    let odd = path(directory.path()).to_string() + "/odd";
    let (code, message) = failure(&["synth", "--out", &odd, "--hidden", "100"]);
    let reason = "text_config.hidden_size: found 100, wanted a multiple of 32";
    assert_eq!((code, message), (1, format!("error: {odd}/config.json: {reason}\n")));
    assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 1);

    let (code, message) = failure(&["synth", "--out", made]);
    assert_eq!(code, 1);
    assert!(message.contains("--force"), "{message}");
    let before = fs::read(out.join("config.json")).expect("readable");
    stdout(&["synth", "--out", made, "--layers", "7", "--force"]);
    assert_ne!(fs::read(out.join("config.json")).expect("readable"), before);
}

#[test]
fn synth_is_a_function_of_its_seed() {
    let directory = tempfile::tempdir().expect("a directory");
    let make = |name: &str, seed: &str| {
        let out = directory.path().join(name);
        stdout(&["synth", "--out", path(&out), "--seed", seed]);
        let sha = |args: &[&str]| json(args)["token_sha"].as_str().expect("sha").to_string();
        sha(&[
            "run",
            "--checkpoint",
            path(&out),
            "--prompt-ids",
            "5,9",
            "--max-tokens",
            "8",
            "--temperature",
            "0",
            "--ignore-eos",
            "--json",
        ])
    };
    let one = make("one", "1");
    assert_eq!(make("again", "1"), one);
    assert_ne!(make("two", "2"), one);
}

#[test]
fn a_plan_that_does_not_fit_is_refused_before_anything_is_loaded() {
    let vectors = vectors("full");
    let directory = path(&vectors);
    let fits = json(&["plan", directory, "--context", "4096", "--json"]);
    assert_eq!(fits["fits"], true);
    // Four requests at once, each with the 16 blocks of its context.
    assert_eq!(fits["kv_blocks"], 64);
    let large = ["--context", "16777216"];
    let (code, message) = failure(&["serve", "--port", "0", directory, large[0], large[1]]);
    assert_eq!(code, 1);
    let reason = "this does not start here: a context of 16777216, accepted: up to 4096, what the model was \
                  made for";
    assert_eq!(message, format!("error: {reason}\n"));
    let output = finback(&["plan", directory, large[0], large[1], "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["verdict"], "refused");
}

#[test]
fn a_chat_reads_lines_and_keeps_its_history() {
    let ask = |lines: &str| {
        let mut child = command(&["chat", "--max-tokens", "8", "--temperature", "0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("writes");
        let output = child.wait_with_output().expect("ends");
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let (one, rates) = ask("hello\n");
    assert!(rates.contains("tok/s"), "{rates}");
    let (two, rates) = ask("hello\nhello\n");
    assert_eq!(rates.matches("decode").count(), 2, "{rates}");
    assert!(two.starts_with(one.trim_end()), "{two:?} begins with {one:?}");
    let prompts: Vec<&str> = rates.lines().filter(|line| line.contains("prompt")).collect();
    assert_ne!(prompts[0].split(',').next(), prompts[1].split(',').next(), "the second is longer");
}

/// Sends Ctrl-C's signal.
#[cfg(unix)]
fn interrupt(child: &std::process::Child) {
    let id = child.id().to_string();
    let sent = std::process::Command::new("kill").args(["-INT", &id]).status();
    assert!(sent.expect("kill").success());
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_reply_and_keeps_what_came() {
    let mut child =
        command(&["run", "hello", "--max-tokens", "16000", "--ignore-eos", "--seed", "1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
    let mut first = [0];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("a first byte");
    interrupt(&child);
    let output = child.wait_with_output().expect("ends");
    let rates = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{rates}");
    let tokens = rates.split("decode ").nth(1).and_then(|rest| rest.split(' ').next());
    let tokens: usize = tokens.and_then(|tokens| tokens.parse().ok()).expect("a rate line");
    assert!((1..16000).contains(&tokens), "{rates}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_between_replies_ends_the_chat() {
    let mut child = command(&["chat", "--max-tokens", "4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"hello\n").expect("writes");
    // The rate line comes after the reply.
    let mut line = String::new();
    let mut rates = BufReader::new(child.stderr.take().expect("piped"));
    rates.read_line(&mut line).expect("readable");
    assert!(line.contains("tok/s"), "{line}");
    interrupt(&child);
    assert_eq!(child.wait().expect("ends").code(), Some(130));
}
