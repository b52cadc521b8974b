//! What people are advised to run exists.

use std::path::{Path, PathBuf};

use clap::CommandFactory;

use super::Args;

/// The words that follow "`coroner" in a text, also over the end of a line of source.
fn named(text: &str) -> Vec<String> {
    let after = text.split("`coroner").skip(1).filter(|rest| rest.starts_with([' ', '\n', '\\']));
    let words = after.map(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\\' || c == '/');
        rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect::<String>()
    });
    words.filter(|word| !word.is_empty() && !word.starts_with('-')).collect()
}

fn unknown(text: &str) -> Vec<String> {
    let command = Args::command();
    let known = |word: &str| command.get_subcommands().any(|sub| sub.get_name() == word);
    named(text).into_iter().filter(|word| !known(word)).collect()
}

/// Sources, manifests and pages below a folder of the checkout.
fn texts(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        let text =
            path.extension().is_some_and(|e| ["rs", "md", "yaml", "html"].iter().any(|known| e == *known));
        if path.is_dir() {
            texts(&path, found);
        } else if text {
            found.push(path);
        }
    }
}

#[test]
fn every_command_that_a_text_advises_is_one() {
    assert_eq!(unknown("see `coroner verify-bmc` or `coroner \\\n    explain n1`"), ["verify-bmc"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut files = vec![root.join("README.md")];
    for part in ["agent", "arbiter", "deploy", "hack", "shared", "tests"] {
        texts(&root.join(part), &mut files);
    }
    let mut seen = 0;
    for file in files.iter().filter(|file| !file.ends_with("cli/src/args/tests.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        seen += named(&text).len();
        assert_eq!(unknown(&text), Vec::<String>::new(), "{} names what is no command", file.display());
    }
    assert!(seen > 20, "only {seen} were found: this looks at the wrong folder");
}
