//! A circuit breaker per credential, so that a rotated password does not lock one account out on a whole fleet.
//! Pure: time is an argument, and the owner counts and acts.
//!
//! ```text
//!   auth_failed(bmc, now) --> [3 different BMCs within 5 min] --> open --> credential_changed() --> closed
//! ```
//!
//! It does not close by time: a wrong password stays wrong, and only a new secret is a reason to try again.

use std::collections::BTreeMap;

use coroner_shared::time::{Mono, Span};

/// Failures of one credential on several BMCs. One of these per secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialBreaker {
    /// When each BMC last refused it; at most [`CredentialBreaker::BMCS`] entries.
    failures: BTreeMap<String, Mono>,
    opened: Option<Mono>,
}

impl CredentialBreaker {
    /// So many different BMCs open it. One BMC alone may have been reset to its factory password; three agree that
    /// it is the secret that is wrong.
    pub const BMCS: usize = 3;
    /// Within this time.
    pub const WINDOW: Span = Span::from_mins(5);

    /// Notes that `bmc` refused the credential ([`crate::BmcError::AuthRejected`]); whether it is open now.
    pub fn auth_failed(&mut self, bmc: &str, now: Mono) -> bool {
        if self.opened.is_none() {
            self.failures.retain(|_, at| now.since(*at) <= Self::WINDOW);
            self.failures.insert(bmc.to_owned(), now);
            if self.failures.len() >= Self::BMCS {
                self.opened = Some(now);
            }
        }
        self.is_open()
    }

    /// Notes that `bmc` took the credential: its earlier refusal no longer speaks against the secret.
    pub fn auth_accepted(&mut self, bmc: &str) {
        if self.opened.is_none() {
            self.failures.remove(bmc);
        }
    }

    /// The secret was replaced: closed again.
    pub fn credential_changed(&mut self) {
        *self = Self::default();
    }

    /// Whether the credential must not be used.
    pub const fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    /// Since when it is open, and on which BMCs it was refused; `None` while closed.
    pub fn opened(&self) -> Option<(Mono, Vec<&str>)> {
        self.opened.map(|at| (at, self.failures.keys().map(String::as_str).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Mono {
        Mono::from_ms(secs * 1000)
    }

    #[test]
    fn three_different_bmcs_within_five_minutes_open_it_and_only_a_new_secret_closes_it() {
        let mut breaker = CredentialBreaker::default();
        assert!(!breaker.auth_failed("a", at(0)));
        assert!(!breaker.auth_failed("a", at(1)), "one BMC twice is one");
        assert!(!breaker.auth_failed("b", at(10)));
        assert!(breaker.auth_failed("c", at(300)));
        assert_eq!(breaker.opened(), Some((at(300), vec!["a", "b", "c"])));
        breaker.auth_accepted("a");
        assert!(breaker.auth_failed("d", at(99_999)), "it does not close by time");
        breaker.credential_changed();
        assert!(!breaker.is_open());
    }

    #[test]
    fn old_failures_and_those_made_good_do_not_count() {
        let mut breaker = CredentialBreaker::default();
        breaker.auth_failed("a", at(0));
        breaker.auth_failed("b", at(10));
        assert!(!breaker.auth_failed("c", at(301)), "a is older than the window");
        breaker.auth_accepted("b");
        assert!(!breaker.auth_failed("d", at(302)));
        assert!(breaker.auth_failed("e", at(303)));
    }
}
