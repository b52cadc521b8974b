//! Registrations: which key, machine, boot and address speak for a node; and planned silences.
//!
//! A boot id once left never comes back. A registration of the boot under incident is a proof of life; one of a new boot
//! means that the old life is over, and what that ends is in `boot`.

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::{BootId, NodeName, NodeUid};
use coroner_shared::keys::PublicKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::mutant::{Mutant, planted};
use std::collections::VecDeque;
use std::net::IpAddr;

use super::refusal::{FactRefusal, Refuses};
use super::{At, boot, facts, ledger, signs};
use crate::command::{Command, Outcome};
use crate::observers;
use crate::state::{Goodbye, Member, Node, State};

/// Boots once left that are remembered of one node.
const LEFT_BOOTS_MAX: usize = 64;

/// What a registration says.
struct Said<'a> {
    uid: &'a NodeUid,
    machine: &'a Result<MachineId, String>,
    boot: BootId,
    key: PublicKey,
    address: IpAddr,
    by_token: bool,
}

/// Takes a registration.
pub(crate) fn register(state: &mut State, at: At<'_>) -> Outcome {
    let Command::Register { node, uid, machine, boot, key, address, by_token } = &at.entry.command else {
        return Outcome::Unchanged;
    };
    let said = Said { uid, machine, boot: *boot, key: *key, address: *address, by_token: *by_token };
    if let Err(refusal) = admit(state.nodes.get(node), &said) {
        return refusal.refuse(node);
    }
    if state.nodes.get(node).and_then(|n| n.member.as_ref()).is_some_and(|m| m.uid != *uid) {
        // The token names the Node that stands now: whatever was open belongs to the one before.
        facts::end_of_node(state, at, node);
    }
    let now = state.now;
    let known = ledger::known(state, node);
    let before = known.member.clone();
    let new_boot = before.as_ref().is_none_or(|m| m.boot != *boot);
    let member = match before.clone() {
        Some(member) => renewed(member, &said, now),
        None => Member {
            uid: uid.clone(),
            machine: machine.clone(),
            key: *key,
            old_key: None,
            boot: *boot,
            left_boots: VecDeque::new(),
            address: *address,
            since: now,
        },
    };
    let changed = before.as_ref() != Some(&member);
    known.member = Some(member);
    if changed {
        observers::moved(state, node);
        ledger::settle_domain(state, node);
    }
    let life = if new_boot {
        boot::registered(state, at, node);
        signs::is_well(state, node, true)
    } else if before.is_some_and(|m| m.machine != *machine) {
        // The same boot on another machine is nobody's proof of life; what it is, `boot` says.
        false
    } else {
        signs::heard(state, at, node, (*boot, None)) == Outcome::Done
    };
    if changed || life { Outcome::Done } else { Outcome::Unchanged }
}

/// Whether this registration may be taken at all.
fn admit(node: Option<&Node>, said: &Said<'_>) -> Result<(), FactRefusal> {
    let stands = node.and_then(|n| n.facts.as_ref()).map(|f| &f.uid);
    if stands.is_some_and(|uid| uid != said.uid) {
        return Err(FactRefusal::NodeMismatch);
    }
    let Some(member) = node.and_then(|n| n.member.as_ref()).filter(|m| m.uid == *said.uid) else {
        return if said.by_token { Ok(()) } else { Err(FactRefusal::KeyUnknown) };
    };
    if member.left_boots.contains(&said.boot) && !planted(Mutant::StaleBoot) {
        return Err(FactRefusal::BootLeft);
    }
    let committed = said.key == member.key || member.old_key == Some(said.key);
    if committed {
        return Ok(());
    }
    if !said.by_token {
        return Err(FactRefusal::KeyUnknown);
    }
    if said.boot == member.boot && member.old_key.is_some() {
        return Err(FactRefusal::OldKeyAlive);
    }
    Ok(())
}

/// The member after this registration.
fn renewed(mut member: Member, said: &Said<'_>, now: coroner_shared::time::Mono) -> Member {
    if member.boot == said.boot {
        if said.key != member.key && member.old_key != Some(said.key) {
            // The older key keeps its voice until it was silent, so that a stolen token cannot take it away.
            member.old_key = Some(member.key);
            member.key = said.key;
        }
    } else {
        leave_boot(&mut member);
        member.boot = said.boot;
        member.key = said.key;
        member.old_key = None;
        member.since = now;
    }
    member.machine = said.machine.clone();
    member.address = said.address;
    member
}

/// Marks the registered boot as left for good.
pub(crate) fn leave_boot(member: &mut Member) {
    if member.left_boots.contains(&member.boot) {
        return;
    }
    member.left_boots.push_back(member.boot);
    if member.left_boots.len() > LEFT_BOOTS_MAX {
        member.left_boots.pop_front();
    }
}

/// An older key of the same boot was silent long enough.
pub(crate) fn old_key_silent(state: &mut State, name: &NodeName, key: &PublicKey) -> Outcome {
    let Some(member) = state.nodes.get_mut(name).and_then(|n| n.member.as_mut()) else {
        return Outcome::Stale;
    };
    if member.old_key.as_ref() != Some(key) {
        return Outcome::Stale;
    }
    member.old_key = None;
    observers::moved(state, name);
    Outcome::Done
}

/// A planned silence of the registered boot: what is planned, and the number that later beacons exceed. Said again it
/// changes nothing, and one that was overtaken by a later one neither.
pub(crate) fn goodbye(
    state: &mut State,
    name: &NodeName,
    boot: BootId,
    (kind, seq): (GoodbyeKind, u64),
) -> Outcome {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(name) else { return Outcome::Stale };
    if node.member.as_ref().is_none_or(|m| m.boot != boot || m.boot_is_over()) {
        return Outcome::Stale;
    }
    if node.goodbye.as_ref().is_some_and(|g| g.boot == boot && g.seq >= seq) {
        return Outcome::Unchanged;
    }
    node.goodbye = Some(Goodbye { kind, boot, seq, at: now });
    Outcome::Done
}
