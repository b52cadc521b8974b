//! Signs of life that the log must know: a proof of life that ends something, a silence after one, a Lease that moves, an
//! old key that speaks no more, and a BMC that says Off of a node that is heard.
//!
//! ```text
//!   Scene --> Heard, SilentAgain, LeaseMoved, OldKeySilent, BindingVerified{Err}
//! ```
//!
//! A proof counts here only if it is younger than S. A node is condemned no sooner than S after its last sign, so such a
//! proof is always newer than what it was condemned on, without remembering what that was.

use std::collections::BTreeMap;

use coroner_shared::id::{BootId, NodeName};
use coroner_shared::keys::PublicKey;
use coroner_shared::time::{Mono, Span};

use super::scene::{HEARD, Scene};
use super::views;
use crate::command::Command;
use crate::phase::Phase;
use crate::state::{Enforced, Node};
use crate::steady::OFF_BEFORE_SIGN;
use crate::view::BmcRead;
use crate::words;

/// While nothing comes of it a sign is told again after this.
const AGAIN: Span = Span::from_secs(1);
/// A node that is heard while power commands are on their way is told so at least this often.
const HEARD_EVERY: Span = Span::from_secs(5);
/// An old key that did not speak for so long speaks for the host no longer.
const OLD_KEY_SILENT: Span = Span::from_secs(60);
/// So many nodes are said to be heard since Enforce in one step: a fleet's first policy does not fill the log at once.
const UNHEARD_PER_STEP: usize = 64;

/// What was told to the log, so that it is not told twenty times a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    told: BTreeMap<(NodeName, Told), Mono>,
    /// When this leader first saw that a node was not heard since Enforce: only a sign that came after counts as since.
    unheard: BTreeMap<NodeName, Mono>,
    old_keys: BTreeMap<NodeName, (PublicKey, Mono)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Heard,
    SilentAgain,
    LeaseMoved,
    OldKeySilent,
    Contradiction,
}

// === impl Signs ===

impl Signs {
    /// What to tell now. A leader that has not listened for long enough (`settled`) may say that it hears somebody, and
    /// not that it does not.
    pub(super) fn commands(&mut self, scene: &Scene<'_>, settled: bool) -> Vec<Command> {
        self.told.retain(|(name, _), at| {
            scene.node(name).is_some() && scene.now.since(*at) < HEARD_EVERY.times(2)
        });
        self.unheard.retain(|name, _| scene.node(name).is_some_and(|n| n.enforced == Enforced::Unheard));
        let mut commands = Vec::new();
        let mut unheard = 0;
        for (name, node) in &scene.state().nodes {
            if scene.state().observers.seat(name).is_none() {
                continue;
            }
            commands.extend(self.of(scene, name, node, settled));
            if unheard < UNHEARD_PER_STEP
                && let Some(heard) = self.heard_since_enforce(scene, name, node)
            {
                commands.push(heard);
                unheard += 1;
            }
        }
        commands
    }

    /// A node whose policy enforces is heard for the first time since: from then on its silence may be acted on.
    fn heard_since_enforce(&mut self, scene: &Scene<'_>, name: &NodeName, node: &Node) -> Option<Command> {
        if node.enforced != Enforced::Unheard || waits_for_life(node) {
            return None;
        }
        let since = *self.unheard.entry(name.clone()).or_insert(scene.now);
        let boot = node.member.as_ref().filter(|m| !m.boot_is_over())?.boot;
        let held = scene.pooled.newest_of_any(name)?;
        let young = held.clock_ago < scene.rules(name).beacons.suspect;
        let since_then = held.at_most(scene.rules(name).beacons.suspect) < scene.now.since(since);
        let counts = young && since_then && held.source.boot().is_none_or(|of| of == boot);
        let seq = held.source.beacon().map_or(0, |(_, seq)| seq);
        (counts && self.may(scene.now, name, Told::Heard, AGAIN)).then(|| Command::Heard {
            node: name.clone(),
            boot,
            seq,
        })
    }

    fn of(&mut self, scene: &Scene<'_>, name: &NodeName, node: &Node, settled: bool) -> Vec<Command> {
        let mut commands = Vec::new();
        if waits_for_life(node)
            && let Some((boot, seq)) = heard(scene, name, node)
            && self.may(scene.now, name, Told::Heard, every(node))
        {
            commands.push(Command::Heard { node: name.clone(), boot, seq });
        }
        if settled
            && node.heard_since.is_some()
            && !scene.pooled.heard_within(name, HEARD)
            && self.may(scene.now, name, Told::SilentAgain, AGAIN)
        {
            commands.push(Command::SilentAgain { node: name.clone() });
        }
        if lease_moved(scene, name, node) && self.may(scene.now, name, Told::LeaseMoved, AGAIN) {
            commands.push(Command::LeaseMoved { node: name.clone() });
        }
        commands.extend(self.old_key(scene, name, node));
        commands.extend(self.contradiction(scene, name));
        commands
    }

    /// Whether this may be told now; notes that it is.
    fn may(&mut self, now: Mono, name: &NodeName, what: Told, every: Span) -> bool {
        let key = (name.clone(), what);
        if self.told.get(&key).is_some_and(|at| now.since(*at) < every) {
            return false;
        }
        self.told.insert(key, now);
        true
    }

    fn old_key(&mut self, scene: &Scene<'_>, name: &NodeName, node: &Node) -> Option<Command> {
        let Some(key) = node.member.as_ref().and_then(|m| m.old_key) else {
            self.old_keys.remove(name);
            return None;
        };
        let spoke = scene.pooled.key_spoke(name, &key).unwrap_or(Span::MAX);
        let known = self.old_keys.entry(name.clone()).or_insert((key, scene.now));
        if known.0 != key {
            *known = (key, scene.now);
        }
        let silent = spoke.min(scene.age(known.1)) >= OLD_KEY_SILENT;
        (silent && self.may(scene.now, name, Told::OldKeySilent, AGAIN))
            .then(|| Command::OldKeySilent { node: name.clone(), key })
    }

    /// Off is read, and a beacon came meanwhile: the binding names another machine's BMC.
    fn contradiction(&mut self, scene: &Scene<'_>, name: &NodeName) -> Option<Command> {
        let binding = scene.state().bindings.get(name).filter(|b| b.disabled.is_none() && b.pin.is_some())?;
        if !is_off_while_heard(scene, name) || !self.may(scene.now, name, Told::Contradiction, AGAIN) {
            return None;
        }
        Some(Command::BindingVerified {
            node: name.clone(),
            hash: binding.hash.clone(),
            result: Err(words::OFF_WHILE_HEARD.to_owned()),
        })
    }
}

// === helpers ===

/// Whether Off has been read for long enough before the newest beacon.
pub(super) fn is_off_while_heard(scene: &Scene<'_>, name: &NodeName) -> bool {
    let (Some(off_for), Some(ago)) = (off_for(scene, name), scene.pooled.spoke_ago(name)) else {
        return false;
    };
    ago <= HEARD && off_for >= ago + OFF_BEFORE_SIGN
}

/// For how long by now some replica has read nothing but Off, twice at least and just now.
fn off_for(scene: &Scene<'_>, name: &NodeName) -> Option<Span> {
    let reads = scene.sight.bmc.get(name)?;
    let fresh = scene.rules(name).bmc_silent;
    let off = reads.iter().filter(|b| b.age <= fresh).filter_map(|b| match b.read {
        BmcRead::Off { reads: 2.., over } => Some(over + b.age),
        BmcRead::Off { .. }
        | BmcRead::On
        | BmcRead::Silent { .. }
        | BmcRead::Unclear { .. }
        | BmcRead::NotRead => None,
    });
    off.max()
}

/// Whether the log waits for a sign of life of this node. A hold is ended by a view, a return by a new boot.
fn waits_for_life(node: &Node) -> bool {
    node.phase.is_dead() || node.goodbye.is_some() || node.in_storm || node.would_condemn_said.is_some()
}

fn every(node: &Node) -> Span {
    if node.heard_since.is_some() { HEARD_EVERY } else { AGAIN }
}

/// A proof of life younger than S of the registered boot. Where our hand is on the machine already, or its workloads are
/// released, only a beacon that names the boot will do: a replica speaks again after a reboot sooner than its agent.
fn heard(scene: &Scene<'_>, name: &NodeName, node: &Node) -> Option<(BootId, u64)> {
    // Of a boot that is over nothing is known any more; a new one registers.
    let boot = node.member.as_ref().filter(|m| !m.boot_is_over())?.boot;
    let young = scene.rules(name).beacons.suspect;
    if let Some(proof) = scene.pooled.newest_proof(name)
        && proof.clock_ago < young
        && proof.source.boot() == Some(boot)
        && !is_of_the_goodbye(scene, name, proof.source.beacon())
    {
        return Some((boot, proof.source.beacon().map_or(0, |(_, seq)| seq)));
    }
    let unnamed_will_do = match &node.phase {
        Phase::Alive | Phase::Held { .. } | Phase::Condemned { .. } => true,
        Phase::Fencing { attempt, released, .. } => attempt.is_none() && released.is_none(),
        Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => false,
    };
    let held = scene.pooled.newest_of_any(name)?;
    let counts = unnamed_will_do && held.clock_ago < young && held.source.boot().is_none();
    (counts && !is_of_the_goodbye(scene, name, None)).then_some((boot, 0))
}

/// A sign that may be from before a standing goodbye tells nothing that the goodbye did not: only a beacon with a higher
/// number is surely from after it.
fn is_of_the_goodbye(scene: &Scene<'_>, name: &NodeName, beacon: Option<(BootId, u64)>) -> bool {
    let seq = beacon.map_or(0, |(_, seq)| seq);
    views::goodbye(scene, name).is_some_and(|said| seq <= said.seq)
}

/// The kubelet renewed its Lease just now, and power commands are wanted or off is proven.
fn lease_moved(scene: &Scene<'_>, name: &NodeName, node: &Node) -> bool {
    let matters = match node.phase {
        Phase::Condemned { .. } | Phase::Fencing { .. } | Phase::ProvenOff { .. } => true,
        Phase::Alive
        | Phase::Held { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => false,
    };
    let young = scene.rules(name).beacons.suspect;
    let changed = scene.sight.leases.leases.get(name).and_then(|l| l.changed);
    matters && changed.is_some_and(|at| scene.now.since(at) < young)
}
