//! What a power-off would take from the control plane and from the arbiter itself. A machine that is already off costs
//! nothing more; one that is merely silent may still be serving etcd to somebody.

use coroner_shared::id::NodeName;

use crate::brake::is_in_flight;
use crate::phase::{Brake, EvidenceClass, Phase};
use crate::state::{Node, State};

/// Whether the control plane can spare this node.
///
/// # Errors
/// [`Brake::ControlPlane`] where the voters that are left and well would be fewer than a quorum, or another node of the
/// control plane is in flight; [`Brake::ArbiterHosts`] for a second host of a replica, unless a person orders it, and for
/// an order of anybody that would leave the arbiter no majority: it could neither prove what it did nor do anything else.
pub fn ask(state: &State, name: &NodeName, class: &EvidenceClass) -> Result<(), Brake> {
    let Some(node) = state.nodes.get(name) else { return Ok(()) };
    if serves(node) {
        let other_in_flight = state.nodes.iter().any(|(n, k)| n != name && serves(k) && is_in_flight(k));
        if other_in_flight || (votes(node) && !quorum_without(state, name)) {
            return Err(Brake::ControlPlane);
        }
    }
    if hosts_replica(state, name) {
        let second = another_host_is_down(state, name) && !by_a_person(class);
        if second || (is_order(class) && !majority_without(state, name)) {
            return Err(Brake::ArbiterHosts);
        }
    }
    Ok(())
}

/// Whether the etcd voters that would be left, and are well, still are a quorum of all.
fn quorum_without(state: &State, name: &NodeName) -> bool {
    let voters = state.nodes.iter().filter(|(_, node)| votes(node));
    let (all, well) = voters.fold((0_usize, 0_usize), |(all, well), (n, node)| {
        let ready = node.facts.as_ref().is_some_and(|f| f.ready);
        (all + 1, well + usize::from(n != name && ready && matches!(node.phase, Phase::Alive)))
    });
    well > all / 2
}

fn votes(node: &Node) -> bool {
    node.facts.as_ref().is_some_and(|f| f.etcd_voter)
}

fn serves(node: &Node) -> bool {
    node.facts.as_ref().is_some_and(|f| f.control_plane || f.etcd_voter)
}

fn hosts_replica(state: &State, name: &NodeName) -> bool {
    state.replicas.values().any(|replica| replica.host == *name)
}

/// Whether the host of another replica is silent, dead or not yet back.
fn another_host_is_down(state: &State, name: &NodeName) -> bool {
    state
        .replicas
        .values()
        .filter(|replica| replica.host != *name)
        .filter_map(|replica| state.nodes.get(&replica.host))
        .any(|host| !matches!(host.phase, Phase::Alive))
}

/// Whether a majority of the replicas would be left, were this host off. Whoever is condemned or worse is off, or soon
/// will be; a host that is only silent, or on its way back, may well have its replica.
fn majority_without(state: &State, name: &NodeName) -> bool {
    let off = |host: &NodeName| state.nodes.get(host).is_some_and(|node| node.phase.is_dead());
    let left = state.replicas.values().filter(|replica| replica.host != *name && !off(&replica.host));
    left.count() > state.replicas.len() / 2
}

fn is_order(class: &EvidenceClass) -> bool {
    match class {
        EvidenceClass::Ordered { .. } => true,
        EvidenceClass::FoundOff | EvidenceClass::HostSilentBmcOn => false,
    }
}

/// Orders of policies are named `policy/<name>`; all others are persons'.
fn by_a_person(class: &EvidenceClass) -> bool {
    match class {
        EvidenceClass::Ordered { who, .. } => !who.starts_with("policy/"),
        EvidenceClass::FoundOff | EvidenceClass::HostSilentBmcOn => false,
    }
}
