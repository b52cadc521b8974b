//! The beginning of a site: machines, Nodes, bindings, replicas.

use coroner_arbiter_core::policy::Binding;
use coroner_arbiter_replica::MemoryStore;
use coroner_shared::id::{NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::PublicKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::names::DOMAIN_LABELS;
use coroner_shared::time::{Mono, Span};
use std::collections::{BTreeMap, VecDeque};

use super::api::{NodeObject, Ready};
use super::bmc::{Bmc, Traits};
use super::machine::{Condition, Machine, address_of};
use super::process::ReplicaHost;
use super::world::World;

// === impl World ===

impl World {
    pub(crate) fn set_up(&mut self) {
        for index in 0..self.site.nodes {
            self.set_up_machine(index);
        }
        for index in 0..self.site.nodes {
            self.set_up_bmc(index);
        }
        self.api.policies.clone_from(&self.site.policies);
        for index in 0..self.site.replicas.len() {
            self.set_up_replica(index);
        }
        self.controllers(0);
        for index in 0..self.site.nodes {
            if self.site.cold {
                self.power_on(index, super::life::By::World);
            } else {
                self.has_been_up(index);
            }
        }
    }

    fn set_up_machine(&mut self, index: usize) {
        let Ok(name) = NodeName::new(format!("n{index}")) else { return };
        let mut bytes = self.draws.machines.bytes16();
        bytes[0] |= 1;
        let Ok(id) = MachineId::from_bytes(bytes) else { return };
        let (low, high) = self.site.firmware;
        let firmware_takes = self.draws.machines.span(low, high);
        self.machines.push(Machine {
            name,
            address: address_of(index),
            id,
            key: key(1, index),
            rack: self.site.racks[index],
            condition: Condition::Off,
            boot: None,
            life: 0,
            booted: Mono::default(),
            agent: None,
            kept_slice: None,
            kubelet: false,
            unready: false,
            runs: BTreeMap::new(),
            firmware_takes,
            missed: VecDeque::new(),
            sleeping: Vec::new(),
            off_by_us: None,
            wall: 0,
            drift: super::drift::Drift::default(),
            odd: super::odd::Oddities::default(),
            disturbed: self.now,
            pauses: Vec::new(),
            rounds: 0,
        });
        self.add_node(index, &format!("uid-{index}-1"));
    }

    /// A Node object for a machine: the first, or one made anew under the same name.
    pub(crate) fn add_node(&mut self, index: usize, uid: &str) {
        let Ok(uid) = NodeUid::new(uid) else { return };
        let machine = &self.machines[index];
        let label = |rack: usize| (DOMAIN_LABELS[0].to_owned(), format!("r{rack}"));
        self.api.version += 1;
        let node = NodeObject {
            name: machine.name.clone(),
            uid,
            version: self.api.version,
            system_uuid: machine.id.to_string(),
            boot: machine.boot,
            ready: if self.site.cold { Ready::Unknown } else { Ready::True },
            labels: machine.rack.map(label).into_iter().collect(),
            taints: Vec::new(),
            unschedulable: false,
            annotations: BTreeMap::new(),
            control_plane: self.site.control_plane[index],
        };
        self.api.renew(&node.name, self.now);
        self.api.nodes.insert(node.name.clone(), node);
    }

    fn set_up_bmc(&mut self, index: usize) {
        let plan = self.site.bmcs[index].clone();
        let mut traits = Traits::good(self.machines[plan.machine].id.to_string());
        (plan.change)(&mut traits);
        if let Some(next) = plan.neighbour {
            traits.other = Some(self.machines[next].id.to_string());
            traits.neighbour = Some(next);
        }
        let power = self.machines[plan.machine].has_power() || !self.site.cold;
        self.bmcs.push(Bmc::new(plan.machine, traits, power));
        if plan.bound {
            self.bind(index, index, 1);
        }
    }

    /// Binds a node to a BMC; `version` makes it another binding.
    pub(crate) fn bind(&mut self, node: usize, bmc: usize, version: u32) {
        let plan = &self.site.bmcs[bmc];
        let binding = Binding {
            hash: format!("bmc-{bmc}-{version}"),
            network: format!("bmc-network-{}", plan.network),
            quirks: plan.quirks.clone(),
            pin: None,
            disabled: None,
        };
        let name = self.machines[node].name.clone();
        self.api.bindings.insert(name, binding);
    }

    fn set_up_replica(&mut self, index: usize) {
        let Ok(id) = ReplicaId::new(index as u64 + 1) else { return };
        // Different ones, or the same two would stand for election together again and again.
        let spread = usize::try_from(self.draws.replicas.below(6)).unwrap_or(0);
        self.replicas.push(ReplicaHost {
            id,
            key: key(2, index),
            disk: Some(MemoryStore::new()),
            process: None,
            copy: None,
            tears: false,
            level: None,
            patience: 20 + 6 * index + spread,
        });
    }
}

/// A key that nobody else has.
fn key(kind: u8, index: usize) -> PublicKey {
    let mut bytes = [0; 32];
    bytes[0] = kind;
    bytes[1..9].copy_from_slice(&(index as u64).to_be_bytes());
    PublicKey::from_bytes(bytes)
}

/// From the beginning until every BMC is known as steady.
pub(crate) const WARM_UP: Span = Span::from_secs(150);
