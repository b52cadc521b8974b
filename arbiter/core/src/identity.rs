//! Whose BMC is it? Judges the raw facts of one BMC against what is known of one node. Permits nothing by itself: only
//! [`IdentityVerdict::Match`] lets a power command out, and every other answer is a refusal that shows both values.
//!
//! ```text
//!   node:  SMBIOS UUID as its agent read it --+
//!          nodeInfo.systemUUID ---------------+--> enrol, once, while the node is well --> Pin
//!   BMC:   UUID of each Systems member -------+       all named byte orders                  |
//!          serial, manager, TLS key ----------+                                              v
//!   the same facts, at any later time -----------------------------------------------> check --> Match
//!                                                     the pinned byte order only             Mismatch
//!                                                                                            Ambiguous
//!                                                                                            NoIdentity
//! ```
//!
//! Why a pin and not a rule: SMBIOS changed the order of the first three fields with 2.6 (DSP0134, 7.2.1), Redfish
//! gives whichever its firmware's authors read in the schema (DSP0268, ComputerSystem.UUID), and IPMI (2.0, 20.8 and
//! 22.14) is sent in all orders there are. A match in *some* order would accept the BMC of another machine whose UUID
//! is this one's mirror image.
//!
//! Deliberately absent: any choice by position or name of a member, any filter on how random a UUID looks (Dell's and
//! HPE's spell words), any identity by serial number alone, and any way to pin anew: a pin ends with its binding
//! or by a person's recorded word.

use coroner_shared::mutant::{Mutant, planted};

use std::collections::BTreeMap;

use coroner_shared::bmc::{IdentityFacts, MemberFacts};
use coroner_shared::id::NodeName;
use coroner_shared::machine_id::{MachineId, NoIdentity, Transform};
use thiserror::Error;

use crate::policy::Pin;
use crate::words::MISMATCH;

mod member;

use member::{
    describe, is_machine, not_the_pinned, orders_of, pinned_member_lost, pinned_path, second_match,
    secondary_refuses, serial_of, spelling_refuses, uuid_of,
};

/// What is known of a node without asking its BMC.
#[derive(Clone, Debug)]
pub struct NodeSide<'a> {
    /// Which node.
    pub node: &'a NodeName,
    /// SMBIOS UUID as its agent registered it, or why there is none.
    pub machine: Result<MachineId, &'a str>,
    /// `status.nodeInfo.systemUUID`, byte for byte.
    pub system_uuid: &'a str,
}

/// Whether a BMC is the pinned machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityVerdict {
    /// It is. The only answer that permits.
    Match {
        /// The Systems member, as pinned.
        member: String,
        /// The byte order, as pinned.
        transform: Transform,
        /// The member's UUID as the BMC gave it.
        given: String,
        /// Members that could not be read or have no usable UUID; shown, not judged.
        notes: Vec<String>,
    },
    /// A usable identity, of another machine.
    Mismatch {
        /// What is pinned.
        want: String,
        /// What was found, and where.
        got: String,
    },
    /// Right and wrong at once: only under another byte order, at two places, or with a secondary fact that changed.
    Ambiguous {
        /// What speaks against it, with both values.
        why: String,
    },
    /// Nothing that identifies exactly one machine.
    NoIdentity {
        /// What is missing.
        why: String,
    },
}

/// Why a node is not fenceable through a BMC.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NotEnrolled {
    /// The agent found no usable SMBIOS UUID.
    #[error("the node's own SMBIOS UUID identifies no machine: {why}")]
    NodeWithout {
        /// What the agent said.
        why: String,
    },
    /// The kubelet's value identifies nothing.
    #[error("nodeInfo.systemUUID {given:?} identifies no machine: {why}")]
    SystemUuid {
        /// As the kubelet gives it.
        given: String,
        /// Why not.
        why: NoIdentity,
    },
    /// Agent and kubelet speak of different machines.
    #[error(
        "the agent reads SMBIOS UUID {agent}, nodeInfo.systemUUID is {kubelet}: no byte order makes them equal"
    )]
    NodeDisagrees {
        /// The agent's value.
        agent: MachineId,
        /// The kubelet's value, as given.
        kubelet: String,
    },
    /// Another node has this UUID, or one that a BMC could give for this one in another byte order.
    #[error("UUID {machine} is not unique: node {other} has {theirs}, the same or its mirror image")]
    NotUnique {
        /// This node's.
        machine: MachineId,
        /// Whose it is, too.
        other: NodeName,
        /// Theirs.
        theirs: MachineId,
    },
    /// No member of the BMC has a usable UUID.
    #[error("the BMC gives no usable UUID: {}", seen.join("; "))]
    NoUsableMember {
        /// Each member with what it gave.
        seen: Vec<String>,
    },
    /// The BMC's values are other machines'.
    #[error("the node's UUID is {node}, the BMC has: {}", seen.join("; "))]
    NoMatch {
        /// The node's.
        node: MachineId,
        /// Each member with what it gave.
        seen: Vec<String>,
    },
    /// The UUID spells another serial number than the member gives.
    #[error("{why}")]
    SerialContradicts {
        /// Both values.
        why: String,
    },
    /// More than one member has the node's UUID.
    #[error("{machine} is the UUID of more than one member: {}", members.join(", "))]
    TwoMatches {
        /// The node's.
        machine: MachineId,
        /// Their paths.
        members: Vec<String>,
    },
}

/// Finds the one member and byte order under which the BMC is this node's, and pins them. For a node that is well and
/// has no pin yet.
///
/// `fleet`: the machines of all registered nodes; this node's own entry is passed over.
///
/// # Errors
/// [`NotEnrolled`], with both values, wherever less than exactly one member is this machine.
pub fn enrol(
    node: &NodeSide<'_>,
    facts: &IdentityFacts,
    fleet: &BTreeMap<NodeName, MachineId>,
) -> Result<Pin, NotEnrolled> {
    let machine = node.machine.map_err(|why| NotEnrolled::NodeWithout { why: why.to_owned() })?;
    let system: MachineId = node
        .system_uuid
        .parse()
        .map_err(|why| NotEnrolled::SystemUuid { given: node.system_uuid.to_owned(), why })?;
    // The kubelet's text was seen upper-case and with the first three fields swapped, never reversed.
    let system_transform = first_order(&TEXT_ORDERS, system, machine)
        .ok_or_else(|| NotEnrolled::NodeDisagrees { agent: machine, kubelet: node.system_uuid.to_owned() })?;
    if let Some((other, theirs)) = twin(node.node, machine, fleet) {
        return Err(NotEnrolled::NotUnique { machine, other, theirs });
    }
    let seen = || facts.members.iter().map(describe).collect::<Vec<_>>();
    let usable: Vec<(&MemberFacts, MachineId)> =
        facts.members.iter().filter_map(|m| uuid_of(m).ok().map(|(_, uuid)| (m, uuid))).collect();
    let alike: Vec<&MemberFacts> = usable
        .iter()
        .filter(|(_, uuid)| first_order(&Transform::ALL, *uuid, machine).is_some())
        .map(|(member, _)| *member)
        .collect();
    let permitted = usable.iter().find_map(|(member, uuid)| {
        first_order(orders_of(&member.path), *uuid, machine).map(|transform| (*member, transform))
    });
    if let Some(why) = permitted.and_then(|(member, _)| spelling_refuses(machine, member)) {
        return Err(NotEnrolled::SerialContradicts { why });
    }
    match (permitted, alike.as_slice()) {
        (Some((member, transform)), [_]) => Ok(Pin {
            machine,
            transform,
            system_transform,
            member: pinned_path(member, facts),
            serial: serial_of(member).map(str::to_owned),
            manager: facts.manager_uuid.clone(),
            tls_key: facts.tls_key_sha256.clone(),
        }),
        (_, [_, _, ..]) => Err(NotEnrolled::TwoMatches {
            machine,
            members: alike.iter().map(|member| member.path.clone()).collect(),
        }),
        (None, _) | (Some(_), []) if usable.is_empty() => Err(NotEnrolled::NoUsableMember { seen: seen() }),
        (None, _) | (Some(_), []) => Err(NotEnrolled::NoMatch { node: machine, seen: seen() }),
    }
}

/// Whether this BMC, now, is the pinned machine's, and the node still the one that was pinned. Only the pinned member
/// and byte order can answer Match.
pub fn check(
    pin: &Pin,
    node: &NodeSide<'_>,
    facts: &IdentityFacts,
    fleet: &BTreeMap<NodeName, MachineId>,
) -> IdentityVerdict {
    if let Some(refusal) = node_refuses(pin, node, fleet) {
        return refusal;
    }
    let is_it = |member: &&MemberFacts| {
        if planted(Mutant::WrongMember) { is_machine(pin, member) } else { member.path == pin.member }
    };
    let mut pinned = facts.members.iter().filter(is_it);
    let (Some(member), None) = (pinned.next(), pinned.next()) else {
        return pinned_member_lost(pin, facts);
    };
    let (given, uuid) = match uuid_of(member) {
        Ok(found) => found,
        Err(why) => return IdentityVerdict::NoIdentity { why: format!("{}: {why}", member.path) },
    };
    if pin.transform.apply(uuid.bytes()) != pin.machine.bytes() {
        return not_the_pinned(pin, member, given, uuid);
    }
    if let Some(second) = second_match(pin, facts).filter(|_| !planted(Mutant::WrongMember)) {
        return IdentityVerdict::Ambiguous {
            why: format!("{} is the UUID of {} and of {second}", pin.machine, pin.member),
        };
    }
    let spelling = || spelling_refuses(pin.machine, member);
    if let Some(why) = secondary_refuses(pin, member, facts).or_else(spelling) {
        return IdentityVerdict::Ambiguous { why };
    }
    IdentityVerdict::Match {
        member: pin.member.clone(),
        transform: pin.transform,
        given: given.to_owned(),
        notes: facts.members.iter().filter(|m| uuid_of(m).is_err()).map(describe).collect(),
    }
}

/// One verification: enrols where there is no pin yet, else checks the pin and gives back that same pin. Never
/// another one.
///
/// # Errors
/// Why the binding refuses, for people.
pub fn verify(
    pin: Option<&Pin>,
    node: &NodeSide<'_>,
    facts: &IdentityFacts,
    fleet: &BTreeMap<NodeName, MachineId>,
) -> Result<Pin, String> {
    match pin {
        None => enrol(node, facts, fleet).map_err(|why| why.to_string()),
        Some(pin) => match check(pin, node, facts, fleet) {
            IdentityVerdict::Match { .. } => Ok(pin.clone()),
            refusal @ (IdentityVerdict::Mismatch { .. }
            | IdentityVerdict::Ambiguous { .. }
            | IdentityVerdict::NoIdentity { .. }) => Err(refusal.to_string()),
        },
    }
}

/// Whether a UUID as a BMC gave it is the pinned machine's under the pinned byte order.
pub fn is_pinned(pin: &Pin, given: &str) -> bool {
    given.parse::<MachineId>().is_ok_and(|uuid| pin.transform.apply(uuid.bytes()) == pin.machine.bytes())
        || planted(Mutant::IdentityOnce)
        || planted(Mutant::WrongMember)
}

// === impl IdentityVerdict ===

impl IdentityVerdict {
    /// Whether a power command may go out as far as identity is concerned.
    pub fn is_match(&self) -> bool {
        match self {
            Self::Match { .. } => true,
            Self::Mismatch { .. } | Self::Ambiguous { .. } | Self::NoIdentity { .. } => false,
        }
    }
}

impl std::fmt::Display for IdentityVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Match { member, transform, given, notes } => {
                write!(f, "Match: {member} gives {given}, byte order {transform}")?;
                notes.iter().try_for_each(|note| write!(f, "; {note}"))
            }
            Self::Mismatch { want, got } => write!(f, "{MISMATCH}pinned is {want}, found is {got}"),
            Self::Ambiguous { why } => write!(f, "Ambiguous: {why}"),
            Self::NoIdentity { why } => write!(f, "NoIdentity: {why}"),
        }
    }
}

// === helpers: the node's side ===

/// Text forms of a UUID that people and Redfish write: as it stands, or with the first three fields swapped. A text
/// that needs a full reversal is a tool's mistake; the raw bytes must be read instead.
const TEXT_ORDERS: [Transform; 2] = [Transform::Rfc, Transform::Wire];

/// What speaks against the node being the one that was pinned.
fn node_refuses(
    pin: &Pin,
    node: &NodeSide<'_>,
    fleet: &BTreeMap<NodeName, MachineId>,
) -> Option<IdentityVerdict> {
    let machine = match &node.machine {
        Ok(machine) => *machine,
        Err(why) => {
            let why = format!("the node's own SMBIOS UUID: {why}; pinned is {}", pin.machine);
            return Some(IdentityVerdict::NoIdentity { why });
        }
    };
    if machine != pin.machine {
        return Some(match first_order(&Transform::ALL, machine, pin.machine) {
            Some(transform) => IdentityVerdict::Ambiguous {
                why: format!(
                    "the agent reads {machine}, pinned is {}: equal only in byte order {transform}",
                    pin.machine
                ),
            },
            None => IdentityVerdict::Mismatch {
                want: pin.machine.to_string(),
                got: format!("{machine} (the node's own SMBIOS UUID)"),
            },
        });
    }
    let same_system = node
        .system_uuid
        .parse::<MachineId>()
        .is_ok_and(|uuid| pin.system_transform.apply(uuid.bytes()) == pin.machine.bytes());
    if !same_system {
        // The kubelet can write its own status, so a change there is a sign of trouble and never a reason to re-pin.
        return Some(IdentityVerdict::Ambiguous {
            why: format!(
                "nodeInfo.systemUUID is {:?}, pinned is {} in byte order {}",
                node.system_uuid, pin.machine, pin.system_transform
            ),
        });
    }
    twin(node.node, machine, fleet).map(|(other, theirs)| IdentityVerdict::NoIdentity {
        why: NotEnrolled::NotUnique { machine, other, theirs }.to_string(),
    })
}

/// Another node that shares an appearance with this one: 16 bytes that a BMC might give for either.
fn twin(
    own: &NodeName,
    machine: MachineId,
    fleet: &BTreeMap<NodeName, MachineId>,
) -> Option<(NodeName, MachineId)> {
    let mine = machine.appearances();
    let shared = |theirs: &MachineId| {
        theirs.appearances().iter().any(|(_, theirs)| mine.iter().any(|(_, mine)| mine == theirs))
    };
    fleet
        .iter()
        .find(|(name, theirs)| *name != own && shared(theirs))
        .map(|(name, theirs)| (name.clone(), *theirs))
}

/// The first of these byte orders that leads from one value to the other.
fn first_order(orders: &[Transform], from: MachineId, to: MachineId) -> Option<Transform> {
    orders.iter().copied().find(|transform| transform.apply(from.bytes()) == to.bytes())
}

#[cfg(test)]
mod tests;
