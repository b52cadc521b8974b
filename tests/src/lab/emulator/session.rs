//! Who may ask: the account, its sessions and its lock. A BMC's sessions live in its memory and go with it.
//!
//! Time is an argument (`CLOCK_BOOTTIME`, ns), so that idle time-outs and locks are tested without waiting. Tokens
//! are made outside; ids are short and say nothing, since they go into the ledger.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::knobs::Knobs;

const MS: u64 = 1_000_000;

/// A user and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub username: String,
    /// The password.
    pub password: String,
}

/// Why a log-in or a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Neither a token nor Basic was sent.
    Nothing,
    /// The user, the password or the token is wrong.
    Wrong,
    /// Too many wrong passwords; the right one is refused too.
    Locked,
    /// Every session is taken.
    Full,
    /// This way of logging in is switched off.
    NotOffered,
}

/// A session that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its id: the last part of its path, and its name in the ledger.
    pub id: String,
    /// Its token.
    pub token: String,
}

/// The sessions of one BMC and the lock of its account.
#[derive(Default)]
pub struct Sessions {
    open: BTreeMap<String, Session>,
    made: u64,
    failures: u32,
    locked_until: u64,
}

struct Session {
    token: String,
    user: String,
    used: u64,
}

// === impl Credentials ===

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

// === impl Sessions ===

impl Sessions {
    /// Opens a session.
    ///
    /// # Errors
    /// If sessions are not offered, the account is locked, the credentials are wrong, or all sessions are taken.
    pub fn log_in(
        &mut self,
        (given, right): (&Credentials, &Credentials),
        token: String,
        knobs: &Knobs,
        now: u64,
    ) -> Result<Opened, Refused> {
        if !knobs.sessions {
            return Err(Refused::NotOffered);
        }
        self.check(given, right, knobs, now)?;
        self.expire(knobs, now);
        if self.open.len() >= knobs.session_limit {
            return Err(Refused::Full);
        }
        self.made += 1;
        let id = format!("s{}", self.made);
        let session = Session { token: token.clone(), user: given.username.clone(), used: now };
        self.open.insert(id.clone(), session);
        Ok(Opened { id, token })
    }

    /// Who sent a request: the id of its session, or `basic`.
    ///
    /// # Errors
    /// If it shows nothing, or nothing that is good.
    pub fn who(
        &mut self,
        (token, basic): (Option<&str>, Option<&str>),
        right: &Credentials,
        knobs: &Knobs,
        now: u64,
    ) -> Result<String, Refused> {
        self.expire(knobs, now);
        if let Some(token) = token {
            let mut open = self.open.iter_mut();
            let (id, session) = open.find(|(_, session)| session.token == token).ok_or(Refused::Wrong)?;
            session.used = now;
            return Ok(id.clone());
        }
        let given = basic.ok_or(Refused::Nothing)?;
        if !knobs.basic {
            return Err(Refused::NotOffered);
        }
        let given = parse_basic(given).ok_or(Refused::Wrong)?;
        self.check(&given, right, knobs, now)?;
        Ok("basic".to_owned())
    }

    /// Ends a session; false if there was none of that id.
    pub fn log_out(&mut self, id: &str) -> bool {
        self.open.remove(id).is_some()
    }

    /// The open sessions: id and user.
    pub fn list(&mut self, knobs: &Knobs, now: u64) -> Vec<(String, String)> {
        self.expire(knobs, now);
        self.open.iter().map(|(id, session)| (id.clone(), session.user.clone())).collect()
    }

    /// Ends all sessions.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// The account is unlocked and its failures are forgotten.
    pub fn unlock(&mut self) {
        (self.failures, self.locked_until) = (0, 0);
    }

    fn check(
        &mut self,
        given: &Credentials,
        right: &Credentials,
        knobs: &Knobs,
        now: u64,
    ) -> Result<(), Refused> {
        if now < self.locked_until {
            return Err(Refused::Locked);
        }
        if given == right {
            self.failures = 0;
            return Ok(());
        }
        self.failures += 1;
        if let Some(lock) = knobs.lockout
            && self.failures >= lock.failures
        {
            self.failures = 0;
            self.locked_until = now + lock.for_ms * MS;
        }
        Err(Refused::Wrong)
    }

    fn expire(&mut self, knobs: &Knobs, now: u64) {
        self.open.retain(|_, session| now.saturating_sub(session.used) < knobs.session_idle_ms * MS);
    }
}

fn parse_basic(header: &str) -> Option<Credentials> {
    let (scheme, encoded) = header.split_once(' ')?;
    let decoded = STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let text = String::from_utf8(decoded).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(Credentials { username: username.to_owned(), password: password.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::super::knobs::Lockout;
    use super::*;

    fn account(password: &str) -> Credentials {
        Credentials { username: "u".to_owned(), password: password.to_owned() }
    }

    /// Logs in with this password; the token is the instant.
    fn log_in(sessions: &mut Sessions, password: &str, knobs: &Knobs, now: u64) -> Result<String, Refused> {
        let pair = (&account(password), &account("right"));
        sessions.log_in(pair, format!("t{now}"), knobs, now).map(|opened| opened.id)
    }

    #[test]
    fn sessions_have_a_limit_an_idle_time_and_an_end() {
        let knobs = Knobs { session_limit: 2, session_idle_ms: 10, ..Knobs::default() };
        let mut sessions = Sessions::default();
        assert_eq!(log_in(&mut sessions, "right", &knobs, 0), Ok("s1".to_owned()));
        assert_eq!(log_in(&mut sessions, "right", &knobs, MS), Ok("s2".to_owned()));
        assert_eq!(log_in(&mut sessions, "right", &knobs, 2 * MS), Err(Refused::Full));
        let mut who = |token: &str, now| sessions.who((Some(token), None), &account("right"), &knobs, now);
        assert_eq!(who("t0", 9 * MS), Ok("s1".to_owned()), "its use keeps it");
        assert_eq!(who(&format!("t{MS}"), 12 * MS), Err(Refused::Wrong), "idle for 11 ms");
        assert_eq!(who("t0", 12 * MS), Ok("s1".to_owned()));
        assert!(sessions.log_out("s1") && !sessions.log_out("s1"));
        assert_eq!(sessions.who((Some("t0"), None), &account("right"), &knobs, 12 * MS), Err(Refused::Wrong));
    }

    #[test]
    fn a_locked_account_refuses_the_right_password_and_spares_open_sessions() {
        let lockout = Some(Lockout { failures: 3, for_ms: 10 });
        let knobs = Knobs { lockout, ..Knobs::default() };
        let mut sessions = Sessions::default();
        assert!(log_in(&mut sessions, "right", &knobs, 0).is_ok());
        for _ in 0..3 {
            assert_eq!(log_in(&mut sessions, "wrong", &knobs, MS), Err(Refused::Wrong));
        }
        assert_eq!(log_in(&mut sessions, "right", &knobs, 2 * MS), Err(Refused::Locked));
        assert!(sessions.who((Some("t0"), None), &account("right"), &knobs, 2 * MS).is_ok());
        assert!(log_in(&mut sessions, "right", &knobs, 11 * MS).is_ok(), "the lock has ended");
    }

    #[test]
    fn basic_is_checked_and_can_be_switched_off() {
        let mut sessions = Sessions::default();
        let header = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let table = [
            (header("u:right"), true, Ok("basic".to_owned())),
            (header("u:right"), false, Err(Refused::NotOffered)),
            (header("u:wrong"), true, Err(Refused::Wrong)),
            (header("u"), true, Err(Refused::Wrong)),
            ("Bearer x".to_owned(), true, Err(Refused::Wrong)),
        ];
        for (header, basic, want) in table {
            let knobs = Knobs { basic, ..Knobs::default() };
            let got = sessions.who((None, Some(&header)), &account("right"), &knobs, 0);
            assert_eq!(got, want, "{header} {basic}");
        }
        let got = sessions.who((None, None), &account("right"), &Knobs::default(), 0);
        assert_eq!(got, Err(Refused::Nothing));
        assert!(!format!("{:?}", account("canary")).contains("canary"));
    }
}
