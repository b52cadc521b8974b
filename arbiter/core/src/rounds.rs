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

use coroner_shared::bmc::Power;
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

/// A BMC that says Off of a node that is heard is looked at this often, whenever its round is.
const DOUBTED: Span = Span::from_mins(1);
/// A node that spoke within this time is heard.
const HEARD: Span = Span::from_secs(3);
/// After a reading of Off a verification waits for so long, to see whether signs of life go on.
const AFTER_OFF: Span = Span::from_secs(6);

/// What this replica knows of a node and its BMC in calm times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Whether Off was read last, and lately.
    pub says_off: bool,
    /// How long ago at most the machine itself spoke; `None`: nobody knows that it ever did.
    pub spoke_ago: Option<Span>,
}

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
    /// When a BMC that says Off of a node that is heard was looked at last.
    doubted: BTreeMap<NodeName, Mono>,
}

// === impl Verified ===

impl Verified {
    /// The same with the power state that was read over the same session so long ago (`None`: it could not be), and how
    /// long ago at most the machine spoke. Identity proves whose the BMC says it is, and not whose cables it is on: if the
    /// machine has spoken well after Off, that BMC switches another one, or none. Once `disabled` for that, only On makes
    /// it good again: that the machine has fallen silent since says nothing for its BMC.
    #[must_use]
    pub fn with_power(
        self,
        power: Option<(&Power, Span)>,
        spoke_ago: Option<Span>,
        disabled: Option<&str>,
    ) -> Self {
        let Self::Judged(Ok(_)) = &self else { return self };
        let contradicted = match power {
            Some((Power::On, _)) => false,
            Some((Power::Off, ago)) if spoke_ago.is_some_and(|spoke| spoke + OFF_BEFORE_SIGN <= ago) => true,
            Some(_) | None => disabled == Some(words::OFF_WHILE_HEARD),
        };
        if contradicted { Self::Judged(Err(words::OFF_WHILE_HEARD.to_owned())) } else { self }
    }

    /// What the job that verifies a binding until it is good tells the log. A BMC that cannot be read is why one is not
    /// verified yet; of one that is pinned it says nothing, and what disabled it stays the reason.
    pub fn told_by_job(self, binding: &Binding) -> Result<Pin, String> {
        match (self, &binding.pin, &binding.disabled) {
            (Self::Judged(result), _, _) => result,
            (Self::NotRead(_), Some(_), Some(disabled)) => Err(disabled.clone()),
            (Self::NotRead(why), _, _) => Err(why),
        }
    }
}

// === impl Rounds ===

impl Rounds {
    /// Nothing verified yet; begun anew whenever a replica is elected.
    pub const fn new(now: Mono) -> Self {
        Self { since: now, good: BTreeMap::new(), next: BTreeMap::new(), doubted: BTreeMap::new() }
    }

    /// Whose BMC is to be read now; each is due again a [`ROUND`] later, and at once where it says Off of a node that is
    /// heard. Only bindings with a pin: what has none is verified until it has one, by its own job.
    pub fn due(
        &mut self,
        now: Mono,
        state: &State,
        glance: impl Fn(&NodeName) -> Option<Glance>,
    ) -> Vec<NodeName> {
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
        let doubtful: BTreeSet<&NodeName> = state
            .bindings
            .iter()
            .filter(|(_, binding)| binding.pin.is_some() && binding.disabled.is_none())
            .map(|(node, _)| node)
            .filter(|node| state.nodes.get(*node).is_some_and(|n| matches!(n.phase, Phase::Alive)))
            .filter(|node| {
                let heard = |seen: Glance| seen.spoke_ago.is_some_and(|ago| ago <= HEARD);
                glance(node).is_some_and(|seen| seen.says_off && heard(seen))
            })
            .collect();
        self.doubted.retain(|node, at| doubtful.contains(node) && now.since(*at) < DOUBTED);
        for node in doubtful {
            if !self.doubted.contains_key(node) {
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

/// How long a verification waits after that reading, before it asks who has spoken since.
pub fn wait_after(power: Option<&Power>) -> Span {
    if power == Some(&Power::Off) { AFTER_OFF } else { Span::ZERO }
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
            for node in rounds.due(now, &w.state, |_| None) {
                seen.entry(node).or_default().push(now);
            }
        }
        assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), [name(1), name(2), name(3)]);
        for (node, at) in seen {
            assert_eq!(at.len(), 2, "{node} in two rounds");
            assert_eq!(at[1].since(at[0]), ROUND, "{node}");
        }
        w.state.bindings.clear();
        rounds.due(BEGIN, &w.state, |_| None);
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
    fn a_bmc_that_says_off_of_a_node_that_is_heard_is_looked_at_each_minute() {
        let mut w = World::new(5);
        w.done(Command::Judge(Box::new(w.view(2).bmc_silent())));
        w.state.bindings.get_mut(&name(3)).unwrap().disabled = Some("x".to_owned());
        w.state.bindings.get_mut(&name(4)).unwrap().pin = None;
        let mut rounds = Rounds::new(BEGIN);
        let glance = |says_off, spoke_ago: Option<u64>| {
            Some(Glance { says_off, spoke_ago: spoke_ago.map(Span::from_ms) })
        };
        let off = |node: &NodeName| glance(*node != name(5), Some(3_000));
        let mut seen = Vec::new();
        for tick in 0..25 {
            let due = rounds.due(BEGIN + Span::from_secs(5 * tick), &w.state, off);
            seen.extend(due.iter().filter(|node| **node == name(1)).map(|_| 5 * tick));
            // Not one that is held, disabled or without a pin; and nobody whose BMC says On, but for its round.
            assert!(tick > 0 || due == [name(1)], "{due:?}");
        }
        assert_eq!(seen, [0, 60, 120]);
        // It said On in between.
        let at = |seconds| BEGIN + Span::from_secs(seconds);
        rounds.due(at(125), &w.state, |_| glance(false, Some(0)));
        assert!(rounds.due(at(130), &w.state, off).contains(&name(1)));
        // Off of one that went down in peace, or of whom nobody knows anything, is what it should be.
        for (seconds, unheard) in [(200, Some(3_001)), (205, None)] {
            assert!(!rounds.due(at(seconds), &w.state, |_| glance(true, unheard)).contains(&name(1)));
        }
    }

    #[test]
    fn off_is_contradicted_by_what_the_machine_says_well_after_it_until_on_is_read() {
        let secs = Span::from_secs;
        let good = || Verified::Judged(Ok(pin(1)));
        let contradicted = || Verified::Judged(Err(words::OFF_WHILE_HEARD.to_owned()));
        let off = Power::Off;
        let judged = |spoke| good().with_power(Some((&off, secs(6))), spoke, None);
        assert_eq!(judged(Some(secs(3))), contradicted());
        assert_eq!(judged(Some(Span::ZERO)), contradicted());
        // It may have been on its way when the machine lost power.
        assert_eq!(judged(Some(Span::from_ms(3_001))), good());
        assert_eq!(judged(None), good());
        // Its silence gives the BMC no credit, and neither does a reading that fails or says something else.
        let other = Power::PoweringOn;
        for power in [Some((&off, secs(6))), Some((&other, Span::ZERO)), None] {
            assert_eq!(good().with_power(power, None, Some(words::OFF_WHILE_HEARD)), contradicted());
            assert_eq!(good().with_power(power, None, Some("stale: not verified for 30m00s")), good());
        }
        let on = Some((&Power::On, Span::ZERO));
        assert_eq!(good().with_power(on, Some(Span::ZERO), Some(words::OFF_WHILE_HEARD)), good());
        // What refuses already refuses for its own reason.
        for refuses in [refused("Mismatch"), not_read()] {
            let with = refuses.clone().with_power(Some((&off, secs(6))), Some(Span::ZERO), None);
            assert_eq!(with, refuses);
        }
        assert_eq!(
            [wait_after(Some(&off)), wait_after(Some(&Power::On)), wait_after(None)],
            [secs(6), secs(0), secs(0)]
        );
    }

    #[test]
    fn a_bmc_that_cannot_be_read_verifies_nothing_new_and_takes_no_reason_away() {
        let new = Binding { pin: None, disabled: Some("refused".to_owned()), ..binding(1) };
        assert_eq!(not_read().told_by_job(&new), Err("no route".to_owned()));
        assert_eq!(Verified::Judged(Ok(pin(1))).told_by_job(&new), Ok(pin(1)));
        let off = disabled(words::OFF_WHILE_HEARD);
        assert_eq!(not_read().told_by_job(&off), Err(words::OFF_WHILE_HEARD.to_owned()));
        assert_eq!(refused("Mismatch").told_by_job(&off), Err("Mismatch".to_owned()));
        assert_eq!(Verified::Judged(Ok(pin(1))).told_by_job(&off), Ok(pin(1)));
    }
}
