//! The documents: their links lead somewhere, and their commands exist.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::stdout;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Markdown file at the root and in `docs`.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = [root(), root().join("docs")]
        .iter()
        .flat_map(|directory| fs::read_dir(directory).expect("readable"))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    found.sort();
    found
}

#[test]
fn every_link_leads_to_a_file() {
    let documents = documents();
    let mut links = 0;
    for document in &documents {
        let text = fs::read_to_string(document).expect("readable");
        let directory = document.parent().expect("a directory");
        for rest in text.split("](").skip(1) {
            let link = rest.split(')').next().expect("a first part");
            let path = link.split('#').next().expect("a first part");
            if path.is_empty() || link.starts_with("http") {
                continue;
            }
            links += 1;
            assert!(directory.join(path).exists(), "{}: {link}", document.display());
        }
    }
    assert!(documents.len() >= 10 && links >= 60, "{} documents, {links} links", documents.len());
}

#[test]
fn every_flag_of_a_finback_command_exists() {
    let mut checked = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).expect("readable").replace("\\\n", " ");
        for line in text.lines() {
            let Some(words) = line.trim_start().strip_prefix("finback ") else { continue };
            let words: Vec<&str> =
                words.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
            let command = &words[..if words[0] == "bench" { 2 } else { 1 }];
            let help = stdout(&[command, &["--help"]].concat());
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                checked += 1;
                assert!(help.contains(flag), "{}: {line}", document.display());
            }
        }
    }
    assert!(checked >= 8, "{checked} flags");
}
