//! What Kubernetes does by itself: kubelets that renew, report and run pods, and the controllers that place pods, mark
//! Nodes and move volumes.

use coroner_shared::id::NodeName;
use coroner_shared::time::Span;

use super::api::{Api, Attachment, NodeObject, Pod, Ready};
use super::network::{End, Flow};
use super::truth::Fact;
use super::world::World;

/// Between two rounds of a kubelet.
const ROUND: Span = Span::from_secs(2);
/// It renews its Lease and tells its status every so many rounds.
const RENEWS: u64 = 5;
/// A Lease older than this makes its Node Unknown (the node controller's grace period).
const GRACE: Span = Span::from_secs(40);
/// Pods of a Node that is Unknown for so long are asked to go (the default toleration).
const EVICTED: Span = Span::from_secs(300);
/// Between two rounds of pod garbage collection.
const COLLECTS: u64 = 20;

// === impl World ===

impl World {
    pub(crate) fn kubelet_starts(&mut self, machine: usize) {
        if self.speaks_for(machine) != machine {
            // A clone's kubelet does not come up: its certificate is in use at another address.
            return;
        }
        self.machines[machine].kubelet = true;
        self.machines[machine].rounds = 0;
        self.kubelet_round(machine);
    }

    fn kubelet_round(&mut self, machine: usize) {
        if !self.machines[machine].kubelet {
            return;
        }
        let round = self.machines[machine].rounds;
        self.machines[machine].rounds += 1;
        if !self.api.down
            && let Some(after) = self.network.stream(End::Host(machine), End::Api, Flow::Api)
        {
            self.on_machine(after, machine, move |world| world.kubelet_reports(machine, round));
        }
        let jitter = Span::from_ms(self.draws.machines.below(50));
        self.on_machine(ROUND + jitter, machine, move |world| world.kubelet_round(machine));
    }

    fn kubelet_reports(&mut self, machine: usize, round: u64) {
        let name = self.machines[machine].name.clone();
        if self.api.down || !self.api.nodes.contains_key(&name) {
            return;
        }
        if round.is_multiple_of(RENEWS) {
            let boot = self.machines[machine].boot;
            let uuid = self.machines[machine].id.to_string();
            let ready = if self.machines[machine].unready { Ready::False } else { Ready::True };
            self.api.change_node(&name, |node| {
                node.boot = boot;
                node.ready = ready;
                node.system_uuid = uuid;
            });
            let version = self.api.renew(&name, self.now);
            self.node_changed(&name);
            self.lease_changed(&name, version);
        }
        self.sync_pods(machine, &name);
    }

    fn sync_pods(&mut self, machine: usize, name: &NodeName) {
        let bound: Vec<(u64, Pod)> = self.api.pods_of(name).map(|(uid, pod)| (uid, pod.clone())).collect();
        let wanted = |uid: &u64| bound.iter().any(|(u, pod)| u == uid && !pod.terminating);
        let over: Vec<u64> = self.machines[machine].runs.keys().copied().filter(|u| !wanted(u)).collect();
        for uid in over {
            self.machines[machine].runs.remove(&uid);
            self.api.delete_pods(|u, _| u == uid);
        }
        for (uid, pod) in bound {
            if pod.terminating {
                self.api.delete_pods(|u, _| u == uid);
            } else if !self.machines[machine].runs.contains_key(&uid)
                && self.api.attachments_of(name).any(|(_, a)| a.workload == pod.workload)
            {
                self.machines[machine].runs.insert(uid, pod.workload);
                self.say(&format!("{name} starts workload {} (pod {uid})", pod.workload));
                self.tell(&Fact::Started { machine, workload: pod.workload, pod: uid });
            }
        }
    }

    /// One round of the controllers.
    pub(crate) fn controllers(&mut self, round: u64) {
        if !self.api.down {
            self.mark_nodes();
            self.evict();
            self.place_pods();
            self.move_volumes();
            let out = self.api.out_of_service(self.now);
            if round.is_multiple_of(COLLECTS) {
                self.api.delete_pods(|_, pod| out.contains(&pod.node));
            }
        }
        self.after(Span::from_secs(1), move |world| world.controllers(round + 1));
    }

    fn mark_nodes(&mut self) {
        let now = self.now;
        let age =
            |name: &NodeName| self.api.leases.get(name).map_or(Span::MAX, |(_, renewed)| now.since(*renewed));
        let lost: Vec<NodeName> = self
            .api
            .nodes
            .values()
            .filter(|node| node.ready != Ready::Unknown && age(&node.name) > GRACE)
            .map(|node| node.name.clone())
            .collect();
        let gone: Vec<NodeName> = self.api.nodes.keys().filter(|name| age(name) > EVICTED).cloned().collect();
        for name in lost {
            self.api.change_node(&name, |node| node.ready = Ready::Unknown);
            self.node_changed(&name);
        }
        for pod in self.api.pods.values_mut().filter(|pod| gone.contains(&pod.node)) {
            pod.terminating = true;
        }
    }

    /// Pods of a Node whose taint says NoExecute are asked to go at once, whatever the node's kubelet does.
    fn evict(&mut self) {
        let Api { nodes, pods, .. } = &mut self.api;
        for pod in pods.values_mut() {
            pod.terminating |= nodes.get(&pod.node).is_some_and(NodeObject::tainted);
        }
    }

    fn place_pods(&mut self) {
        for workload in 0..self.site.workloads {
            if self.api.pods.values().any(|pod| pod.workload == workload) {
                continue;
            }
            let good: Vec<NodeName> = self
                .api
                .nodes
                .values()
                .filter(|n| n.ready == Ready::True && !n.unschedulable && n.taints.is_empty())
                .map(|n| n.name.clone())
                .collect();
            let index = self.draws.machines.index(good.len());
            if let Some(node) = good.get(index) {
                let uid = self.api.uid();
                let pod = Pod { workload, node: node.clone(), terminating: false };
                self.api.pods.insert(uid, pod);
            }
        }
    }

    /// One volume each, on one node at a time.
    fn move_volumes(&mut self) {
        let needed = |a: &Attachment, api: &Api| {
            api.pods.values().any(|pod| pod.workload == a.workload && pod.node == a.node)
        };
        let free: Vec<u64> = self
            .api
            .attachments
            .iter()
            .filter(|(_, a)| !needed(a, &self.api) && self.may_detach(a))
            .map(|(uid, _)| *uid)
            .collect();
        for uid in free {
            self.api.attachments.remove(&uid);
        }
        let wanted: Vec<(usize, NodeName)> =
            self.api.pods.values().map(|pod| (pod.workload, pod.node.clone())).collect();
        for (workload, node) in wanted {
            if !self.api.attachments.values().any(|a| a.workload == workload) {
                let uid = self.api.uid();
                self.api.attachments.insert(uid, Attachment { workload, node });
            }
        }
    }

    /// The kubelet says that the volume is no longer in use, or the Node is out of service.
    fn may_detach(&self, attachment: &Attachment) -> bool {
        let Some(node) = self.api.nodes.get(&attachment.node) else { return true };
        if node.tainted() {
            return true;
        }
        let machine = self.machines.iter().find(|m| m.name == attachment.node);
        node.ready == Ready::True
            && machine.is_some_and(|m| m.kubelet && !m.runs.values().any(|w| *w == attachment.workload))
    }
}
