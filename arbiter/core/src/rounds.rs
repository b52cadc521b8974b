//! Continuous verification of the bindings (page 4 of the design: every BMC, every ten minutes, with jitter): which are
//! due, and what a round tells the log.
//!
//! ```text
//!   since when this replica leads --+                +--> due(now): whose BMC to read
//!   State's bindings ---------------+--> Rounds -----+
//!   who says Off of whom -----------+                |
//!   what was read (Verified) -------+                +--> command(now): Command::BindingVerified, or nothing to tell
//! ```
//!
//! Why a BMC that was not read once disables nothing: it says nothing about whose it is, and a network that is away for
//! a minute must not make a rack unfenceable. Half an hour without a good verification is another matter: nobody knows
//! any more where that address leads.

use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use crate::command::{Command, Outcome};
use crate::phase::Phase;
use crate::policy::{Binding, Pin};
use crate::state::State;
use crate::steady::OFF_BEFORE_SIGN;
use crate::words;

/// Between two verifications of one binding; spread over the nodes so that they do not come in a burst.
pub const ROUND: Span = Span::from_mins(10);
/// A binding without a good verification for so long is stale: the node cannot be fenced through it.
pub const STALE: Span = Span::from_mins(30);

/// A BMC that says Off of a node that is well is looked at this often, whenever its round is.
const DOUBTED: Span = Span::from_mins(1);
/// After a reading of Off a verification waits for so long, to see whether signs of life go on.
pub const AFTER_OFF: Span = Span::from_secs(6);

/// What a verification gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// An identity was read and judged ([`crate::identity::verify`]).
    Judged(Result<Pin, String>),
    /// The BMC could not be read: says nothing about whose it is.
    NotRead(String),
}

/// The rounds of one replica, for as long as it leads.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// Since when this replica leads: before that it verified nothing, and knows of nothing that is stale.
    since: Mono,
    good: BTreeMap<NodeName, Mono>,
    next: BTreeMap<NodeName, Mono>,
    /// When a BMC that says Off of a node that is well was looked at last.
    doubted: BTreeMap<NodeName, Mono>,
}

// === impl Verified ===

impl Verified {
    /// The same, where Off was read with it so long ago: identity proves whose the BMC says it is, and not whose cables it
    /// is on. If the machine has spoken well after that (`spoke_ago`, at most), the BMC switches another one, or none.
    #[must_use]
    pub fn with_off(self, off_ago: Span, spoke_ago: Option<Span>) -> Self {
        match self {
            Self::Judged(Ok(_)) if spoke_ago.is_some_and(|ago| ago + OFF_BEFORE_SIGN <= off_ago) => {
                Self::Judged(Err(words::OFF_WHILE_HEARD.to_owned()))
            }
            Self::Judged(_) | Self::NotRead(_) => self,
        }
    }

    /// What the first verification of a binding tells the log: there nothing is known that could stay.
    pub fn of_new(self) -> Result<Pin, String> {
        match self {
            Self::Judged(result) => result,
            Self::NotRead(why) => Err(why),
        }
    }
}

// === impl Rounds ===

impl Rounds {
    /// Nothing verified yet; begun anew whenever a replica is elected.
    pub const fn new(now: Mono) -> Self {
        Self { since: now, good: BTreeMap::new(), next: BTreeMap::new(), doubted: BTreeMap::new() }
    }

    /// Whose BMC is to be read now; each is due again a [`ROUND`] later, and at once where its BMC `says_off` and nobody
    /// misses the node. Only bindings with a pin: what has none is verified until it has one, by its own job.
    pub fn due(&mut self, now: Mono, state: &State, says_off: impl Fn(&NodeName) -> bool) -> Vec<NodeName> {
        self.good.retain(|node, _| state.bindings.contains_key(node));
        self.next.retain(|node, _| state.bindings.contains_key(node));
        let mut due = Vec::new();
        for node in state.bindings.iter().filter(|(_, b)| b.pin.is_some()).map(|(node, _)| node) {
            let next = self
                .next
                .entry(node.clone())
                .or_insert_with(|| now + Span::from_ms(spread(node) % ROUND.as_ms()));
            if *next <= now {
                *next = now + ROUND;
                due.push(node.clone());
            }
        }
        let well = |node: &NodeName| state.nodes.get(node).is_some_and(|n| matches!(n.phase, Phase::Alive));
        let trusted = |binding: &Binding| binding.pin.is_some() && binding.disabled.is_none();
        let trusted = state.bindings.iter().filter(|(_, binding)| trusted(binding));
        let off: BTreeSet<&NodeName> =
            trusted.map(|(node, _)| node).filter(|node| well(node) && says_off(node)).collect();
        self.doubted.retain(|node, _| off.contains(node));
        for node in off {
            let last = self.doubted.get(node).copied();
            if last.is_none_or(|at| now.since(at) >= DOUBTED) {
                self.doubted.insert(node.clone(), now);
                if !due.contains(node) {
                    due.push(node.clone());
                }
            }
        }
        due
    }

    /// What the log hears of a verification: changes only. A binding that was good stays so until it is stale; a refusal
    /// of identity is told whatever disabled it before, so that people see it.
    pub fn command(
        &mut self,
        now: Mono,
        node: &NodeName,
        binding: &Binding,
        verified: Verified,
    ) -> Option<Command> {
        let result = match verified {
            Verified::Judged(Ok(pin)) => {
                self.good.insert(node.clone(), now);
                binding.disabled.is_some().then_some(Ok(pin))
            }
            Verified::Judged(Err(why)) => (binding.disabled.as_ref() != Some(&why)).then_some(Err(why)),
            Verified::NotRead(why) => {
                let unverified = now.since(self.good.get(node).copied().unwrap_or(self.since));
                let stale = unverified >= STALE && binding.disabled.is_none();
                stale.then(|| Err(format!("stale: not verified for {unverified}: {why}")))
            }
        }?;
        Some(Command::BindingVerified { node: node.clone(), hash: binding.hash.clone(), result })
    }
}

/// How long the job that verifies a new binding rests: each try is a log-in, and what the BMC or the log refuses now it
/// will refuse in a moment too (the log takes no pin until the node's agent has registered). `outcome`: what the log
/// made of it, `None` where that is not known.
pub fn rest_after(verified: bool, outcome: Option<&Outcome>) -> Span {
    match outcome {
        Some(Outcome::Done) if verified => Span::ZERO,
        Some(Outcome::Done | Outcome::Unchanged | Outcome::Stale | Outcome::Refused(_)) | None => {
            Span::from_secs(5)
        }
    }
}

/// A number of the name: the same on every replica, different for most nodes (FNV-1a).
fn spread(node: &NodeName) -> u64 {
    let bytes = node.as_str().bytes();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::tests::world::{World, binding, name, pin};

    const BEGIN: Mono = Mono::from_ms(100_000_000);

    fn told(command: Option<Command>) -> Option<Result<Pin, String>> {
        command.map(|command| {
            let Command::BindingVerified { node, hash, result } = command else { panic!("{command:?}") };
            assert_eq!((node, hash), (name(1), binding(1).hash));
            result
        })
    }

    fn good() -> Binding {
        Binding { pin: Some(pin(1)), disabled: None, ..binding(1) }
    }

    fn disabled(why: &str) -> Binding {
        Binding { disabled: Some(why.to_owned()), ..good() }
    }

    fn not_read() -> Verified {
        Verified::NotRead("no route".to_owned())
    }

    fn refused(why: &str) -> Verified {
        Verified::Judged(Err(why.to_owned()))
    }

    #[test]
    fn verifications_are_spread_over_the_round() {
        let at = |n: u32| spread(&NodeName::new(format!("node-{n}")).unwrap()) % ROUND.as_ms();
        let early = (0..1000).filter(|n| at(*n) < ROUND.as_ms() / 2).count();
        assert!((400..600).contains(&early), "{early} of 1000 in the first half");
    }

    #[test]
    fn each_pinned_binding_is_due_once_in_each_round() {
        let mut w = World::new(5);
        w.state.bindings.get_mut(&name(4)).unwrap().pin = None;
        w.state.bindings.remove(&name(5));
        let mut rounds = Rounds::new(BEGIN);
        let mut seen: BTreeMap<NodeName, Vec<Mono>> = BTreeMap::new();
        for tick in 0..2 * ROUND.as_ms() / 5000 {
            let now = BEGIN + Span::from_secs(5 * tick);
            for node in rounds.due(now, &w.state, |_| false) {
                seen.entry(node).or_default().push(now);
            }
        }
        assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), [name(1), name(2), name(3)]);
        for (node, at) in seen {
            assert_eq!(at.len(), 2, "{node} in two rounds");
            assert_eq!(at[1].since(at[0]), ROUND, "{node}");
        }
        w.state.bindings.clear();
        rounds.due(BEGIN, &w.state, |_| true);
        assert!(rounds.next.is_empty(), "nothing is kept of a binding that is gone");
    }

    #[test]
    fn a_binding_is_stale_after_half_an_hour_without_a_good_verification_and_not_a_moment_before() {
        let mut rounds = Rounds::new(BEGIN);
        assert_eq!(told(rounds.command(BEGIN, &name(1), &good(), Verified::Judged(Ok(pin(1))))), None);
        let verified = BEGIN + Span::from_mins(2);
        rounds.command(verified, &name(1), &good(), Verified::Judged(Ok(pin(1))));
        let almost = verified + Span::from_ms(STALE.as_ms() - 1);
        assert_eq!(told(rounds.command(almost, &name(1), &good(), not_read())), None);
        let stale =
            told(rounds.command(verified + STALE, &name(1), &good(), not_read())).unwrap().unwrap_err();
        assert!(stale.starts_with("stale: not verified for 30m") && stale.ends_with("no route"), "{stale}");
        // Said once: each further round finds it disabled already.
        let later = verified + Span::from_mins(50);
        assert_eq!(told(rounds.command(later, &name(1), &disabled(&stale), not_read())), None);
        // And good again at once.
        let back = rounds.command(later, &name(1), &disabled(&stale), Verified::Judged(Ok(pin(1))));
        assert_eq!(told(back), Some(Ok(pin(1))));
    }

    /// A replica that was a follower for hours has verified nothing meanwhile; its predecessor has.
    #[test]
    fn a_new_leader_counts_from_its_election() {
        let elected = BEGIN + Span::from_mins(600);
        let mut rounds = Rounds::new(elected);
        let first = elected + Span::from_mins(9);
        assert_eq!(told(rounds.command(first, &name(1), &good(), not_read())), None);
        assert!(told(rounds.command(elected + STALE, &name(1), &good(), not_read())).is_some());
    }

    #[test]
    fn an_identity_that_refuses_is_told_at_once_and_whatever_disabled_the_binding_before() {
        let mut rounds = Rounds::new(BEGIN);
        let other = || Err("Mismatch: a, b".to_owned());
        assert_eq!(told(rounds.command(BEGIN, &name(1), &good(), refused("Mismatch: a, b"))), Some(other()));
        let stale = disabled("stale: not verified for 30m00s: no route");
        assert_eq!(told(rounds.command(BEGIN, &name(1), &stale, refused("Mismatch: a, b"))), Some(other()));
        let known = disabled("Mismatch: a, b");
        assert_eq!(told(rounds.command(BEGIN, &name(1), &known, refused("Mismatch: a, b"))), None, "known");
    }

    #[test]
    fn a_log_in_that_came_to_nothing_is_not_repeated_at_once() {
        let refused = Outcome::Refused(crate::command::Refusal { reason: "x".into(), message: "y".into() });
        assert_eq!(rest_after(true, Some(&Outcome::Done)), Span::ZERO);
        for (verified, outcome) in [
            (false, Some(&Outcome::Done)),
            (true, Some(&Outcome::Unchanged)),
            (true, Some(&Outcome::Stale)),
            (true, Some(&refused)),
            (true, None),
        ] {
            assert_eq!(rest_after(verified, outcome), Span::from_secs(5), "{verified} {outcome:?}");
        }
    }

    #[test]
    fn a_bmc_that_says_off_of_a_node_that_is_well_is_looked_at_each_minute() {
        let mut w = World::new(5);
        w.done(Command::Judge(Box::new(w.view(2).bmc_silent())));
        w.state.bindings.get_mut(&name(3)).unwrap().disabled = Some("x".to_owned());
        w.state.bindings.get_mut(&name(4)).unwrap().pin = None;
        let mut rounds = Rounds::new(BEGIN);
        let off = |node: &NodeName| *node != name(5);
        let mut seen = Vec::new();
        for tick in 0..25 {
            let due = rounds.due(BEGIN + Span::from_secs(5 * tick), &w.state, off);
            seen.extend(due.iter().filter(|node| **node == name(1)).map(|_| 5 * tick));
            // Not one that is held, disabled or without a pin; and nobody whose BMC says On, but for its round.
            assert!(tick > 0 || due == [name(1)], "{due:?}");
        }
        assert_eq!(seen, [0, 60, 120]);
        // It said On in between.
        rounds.due(BEGIN + Span::from_secs(125), &w.state, |_| false);
        assert!(rounds.due(BEGIN + Span::from_secs(130), &w.state, off).contains(&name(1)));
    }

    #[test]
    fn off_is_contradicted_by_what_the_machine_says_well_after_it() {
        let secs = Span::from_secs;
        let judged = |off, spoke| Verified::Judged(Ok(pin(1))).with_off(secs(off), spoke);
        let contradicted = Verified::Judged(Err(words::OFF_WHILE_HEARD.to_owned()));
        assert_eq!(judged(6, Some(secs(3))), contradicted);
        assert_eq!(judged(6, Some(Span::ZERO)), contradicted);
        // It may have been on its way when the machine lost power.
        assert_eq!(judged(6, Some(Span::from_ms(3_001))), Verified::Judged(Ok(pin(1))));
        assert_eq!(judged(6, None), Verified::Judged(Ok(pin(1))));
        // What refuses already refuses for its own reason.
        assert_eq!(refused("Mismatch").with_off(secs(6), Some(Span::ZERO)), refused("Mismatch"));
        assert_eq!(not_read().with_off(secs(6), Some(Span::ZERO)), not_read());
    }

    #[test]
    fn a_new_binding_that_cannot_be_read_is_not_verified() {
        assert_eq!(not_read().of_new(), Err("no route".to_owned()));
        assert_eq!(Verified::Judged(Ok(pin(1))).of_new(), Ok(pin(1)));
    }
}
