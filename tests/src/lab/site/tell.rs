//! What a person sees while a site comes up and a scenario plays: lines that stay, and what is waited for and since
//! when. On a terminal the latter is one line that is rewritten; elsewhere a line now and then, so that a log shows
//! that something goes on.

use std::{
    io::{IsTerminal, Write},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, bail};

use crate::lab::writer::boottime_ns;

/// Between two looks of a wait.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Where no line can be rewritten, a wait is mentioned this often.
const REMIND_NS: u64 = 10_000_000_000;

/// Who hears what happens; clones speak to the same listener.
#[derive(Clone)]
pub struct Tell {
    shared: Arc<Mutex<Listener>>,
    terminal: bool,
    colour: bool,
}

struct Listener {
    /// `None`: nobody listens.
    out: Option<Box<dyn Write + Send>>,
    /// A line that is to be rewritten stands on the terminal.
    standing: bool,
}

/// What a look of a wait found.
#[derive(Debug)]
pub enum Look<T> {
    /// What was waited for.
    There(T),
    /// What is missing yet.
    Missing(String),
}

// === impl Tell ===

impl Tell {
    /// To standard output. `plain`: no colours (<https://no-color.org>).
    #[must_use]
    pub fn stdout(plain: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let out: Box<dyn Write + Send> = Box::new(std::io::stdout());
        Self {
            shared: Arc::new(Mutex::new(Listener { out: Some(out), standing: false })),
            terminal,
            colour: terminal && !plain,
        }
    }

    /// To nobody.
    #[must_use]
    pub fn nobody() -> Self {
        Self {
            shared: Arc::new(Mutex::new(Listener { out: None, standing: false })),
            terminal: false,
            colour: false,
        }
    }

    /// A line that stays.
    pub fn line(&self, text: &str) {
        self.write(|out| writeln!(out, "{text}"));
    }

    /// A heading.
    pub fn title(&self, text: &str) {
        self.line(&format!("\n{}", self.painted("1", text)));
    }

    /// A side remark.
    pub fn note(&self, text: &str) {
        self.line(&self.painted("2", &format!("  {text}")));
    }

    /// `text` in green or red, where there are colours.
    #[must_use]
    pub fn verdict(&self, good: bool, text: &str) -> String {
        self.painted(if good { "32" } else { "31" }, text)
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A line that the next one takes the place of; only on a terminal.
    fn passing(&self, text: &str) {
        if !self.terminal {
            return;
        }
        let text: String = text.chars().take(110).collect();
        let dim = self.painted("2", &text);
        self.write(|out| write!(out, "{dim}"));
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).standing = true;
    }

    /// Whoever listens may have gone; that stops nothing here.
    fn write(&self, act: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = std::mem::take(&mut shared.standing);
        if let Some(out) = &mut shared.out {
            if standing {
                let _ = write!(out, "\r\u{1b}[K");
            }
            let _ = act(out.as_mut()).and_then(|()| out.flush());
        }
    }

    /// Looks again and again until `look` finds what is waited for. A look that fails is a look that found nothing:
    /// the API server may be down for a moment, and then that is what is told.
    ///
    /// # Errors
    /// When it is not there after `patience`, with what is missing.
    pub async fn until<T>(
        &self,
        what: &str,
        patience: Duration,
        mut look: impl AsyncFnMut() -> Result<Look<T>>,
    ) -> Result<T> {
        let begin = boottime_ns();
        let mut reminded = begin;
        loop {
            let missing = match look().await {
                Ok(Look::There(found)) => return Ok(found),
                Ok(Look::Missing(what)) => what,
                Err(error) => format!("{error:#}"),
            };
            let now = boottime_ns();
            let seconds = now.saturating_sub(begin) / 1_000_000_000;
            if u128::from(now.saturating_sub(begin)) > patience.as_nanos() {
                bail!("{what}: not within {} s: {missing}", patience.as_secs());
            }
            // No column of seconds: those of the story are counted from something else.
            let text = format!("  ... waiting for {seconds} s: {what} ({missing})");
            if self.terminal {
                self.passing(&text);
            } else if now.saturating_sub(reminded) >= REMIND_NS {
                reminded = now;
                self.line(&text);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_with_what_is_found_or_says_what_is_missing() {
        let tell = Tell::nobody();
        let mut left = 3;
        let found = tell
            .until("three looks", Duration::from_secs(10), || {
                left -= 1;
                let now = left;
                async move {
                    match now {
                        2 => bail!("a look that fails"),
                        1 => Ok(Look::Missing("one more".into())),
                        _ => Ok(Look::There(now)),
                    }
                }
            })
            .await
            .unwrap();
        assert_eq!(found, 0);
        let never =
            tell.until("rain", Duration::ZERO, || async { Ok(Look::<()>::Missing("clouds".into())) }).await;
        assert_eq!(never.unwrap_err().to_string(), "rain: not within 0 s: clouds");
    }
}
