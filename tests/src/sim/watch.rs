//! A replica's watches of the API server: Nodes, policies, bindings, Leases, each change a moment after it was made;
//! and what becomes of them when the API server is away. Mirrors `arbiter/src/k8s/watch.rs`.

use coroner_shared::id::NodeName;
use coroner_shared::time::Span;

use super::network::{End, Flow};
use super::world::{Group, World};

/// The API server is asked this often whether it is there.
const PROBES: Span = Span::from_secs(1);

// === impl World ===

impl World {
    /// A Node object changed or went.
    pub(crate) fn node_changed(&mut self, name: &NodeName) {
        let name = name.clone();
        self.tell_watches(move |world, index| {
            let facts = world.api.nodes.get(&name).map(super::api::NodeObject::facts);
            let Some(process) = world.replicas[index].process.as_deref_mut() else { return };
            let Some(nodes) = process.shown.nodes.as_mut() else { return };
            let changed = match facts {
                Some(facts) => nodes.insert(name.to_string(), facts.clone()) != Some(facts),
                None => nodes.remove(name.as_str()).is_some(),
            };
            if changed {
                process.shown_changed.send();
            }
        });
    }

    pub(crate) fn lease_changed(&mut self, name: &NodeName, version: u64) {
        let name = name.clone();
        self.tell_watches(move |world, index| {
            let host = world.site.replicas[index];
            let now = world.machines[host].host_time(world.now);
            if let Some(process) = world.replicas[index].process.as_deref_mut() {
                process.leases.note(name.clone(), &version.to_string(), now);
            }
        });
    }

    /// A policy or binding changed.
    pub(crate) fn settings_changed(&mut self) {
        self.tell_watches(|world, index| {
            let (policies, bindings) = (world.api.policies.clone(), world.api.bindings.clone());
            if let Some(process) = world.replicas[index].process.as_deref_mut() {
                process.shown.policies = Some(policies);
                process.shown.bindings = Some(bindings);
                process.shown_changed.send();
            }
            world.reconcile_bmcs(index);
        });
    }

    fn tell_watches(&mut self, change: impl Fn(&mut World, usize) + Clone + 'static) {
        for index in 0..self.replicas.len() {
            let Some(group) = self.replicas[index].process.as_ref().map(|p| p.group) else { continue };
            let host = self.site.replicas[index];
            let (low, high) = self.api.watch_takes;
            let after = self.draws.replicas.span(low, high);
            let change = change.clone();
            self.on_machine(after, host, move |world| {
                let whole = !world.api.down && world.network.loss(End::Api, End::Host(host), Flow::Api) < 100;
                let Some(process) = world.process(index, group) else { return };
                if whole && !process.watch_stuck && !process.watch_broken {
                    change(world, index);
                } else {
                    process.watch_broken = true;
                }
            });
        }
    }

    /// Asks whether the API server is there, and lists anew what a broken watch missed.
    pub(crate) fn watch_round(&mut self, index: usize, group: Group) {
        let host = self.site.replicas[index];
        let asked = self.machines[host].host_time(self.now);
        if self.process(index, group).is_none() {
            return;
        }
        let way = self.network.stream(End::Host(host), End::Api, Flow::Api);
        if let Some(after) = way.filter(|_| !self.api.down) {
            self.on_machine(after + after, host, move |world| {
                if world.api.down {
                    return;
                }
                let Some(process) = world.process(index, group) else { return };
                process.leases.answered(asked);
                if process.watch_broken && !process.watch_stuck {
                    world.list(index);
                }
            });
        }
        self.on_machine(PROBES, host, move |world| world.watch_round(index, group));
    }

    /// Lists everything.
    fn list(&mut self, index: usize) {
        let host = self.site.replicas[index];
        let now = self.machines[host].host_time(self.now);
        let nodes = self.api.nodes.values().map(|n| (n.name.to_string(), n.facts())).collect();
        let (policies, bindings) = (self.api.policies.clone(), self.api.bindings.clone());
        let leases: Vec<(NodeName, u64)> =
            self.api.leases.iter().map(|(name, (version, _))| (name.clone(), *version)).collect();
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return };
        process.watch_broken = false;
        process.shown.nodes = Some(nodes);
        process.shown.policies = Some(policies);
        process.shown.bindings = Some(bindings);
        for (name, version) in leases {
            process.leases.note(name, &version.to_string(), now);
        }
        process.leases.listed(now);
        process.shown_changed.send();
        self.reconcile_bmcs(index);
    }
}
