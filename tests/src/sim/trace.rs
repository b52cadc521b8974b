//! What happened in a run, one line each: kept for people where they ask for it, and always hashed, so that two runs of
//! a seed can be compared.

use std::io::Write as _;

use coroner_shared::time::Mono;
use sha2::{Digest, Sha256};

/// Prints a line for people. Where nobody reads it any more (`| head`) there is nothing left to do: the process ends.
#[expect(clippy::disallowed_methods, reason = "there is nobody to report an end to")]
pub fn tell(line: &str) {
    if writeln!(std::io::stdout().lock(), "{line}").is_err() {
        std::process::exit(141);
    }
}

/// The story of a run.
pub(crate) struct Trace {
    hash: Sha256,
    lines: Option<Vec<String>>,
    aloud: bool,
}

// === impl Trace ===

impl Trace {
    /// `keep`: the lines are kept for [`Trace::lines`]; `aloud`: each is printed as it comes.
    pub(crate) fn new(keep: bool, aloud: bool) -> Self {
        Self { hash: Sha256::new(), lines: keep.then(Vec::new), aloud }
    }

    pub(crate) fn say(&mut self, now: Mono, what: &str) {
        self.hash.update(now.as_ms().to_be_bytes());
        self.hash.update(what.as_bytes());
        if self.aloud || self.lines.is_some() {
            let ms = now.as_ms();
            let line = format!("{:>6}.{:03}  {what}", ms / 1000, ms % 1000);
            if self.aloud {
                tell(&line);
            }
            if let Some(lines) = &mut self.lines {
                lines.push(line);
            }
        }
    }

    /// Something that is part of the hash and of no line.
    pub(crate) fn note(&mut self, a: u64, b: u64, text: &str) {
        self.hash.update(a.to_be_bytes());
        self.hash.update(b.to_be_bytes());
        self.hash.update(text.as_bytes());
    }

    /// 16 hexadecimal digits over every line so far.
    pub(crate) fn hash(&self) -> String {
        let digest = self.hash.clone().finalize();
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}
