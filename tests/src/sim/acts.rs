//! What may be done to a site: everything that a fault, a person or another controller does.

use coroner_arbiter_core::policy::Policy;
use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::NodeName;
use coroner_shared::time::Span;

use super::bmc::Traits;
use super::network::{Cut, Ends, Flow};
use super::people::Act;
use super::trouble::isolation;
use super::{By, Sim};

impl Sim {
    /// Index of a node's machine.
    ///
    /// # Panics
    /// There is no such node: a story that names one is wrong.
    fn index(&self, node: &str) -> usize {
        let world = self.shared.world.borrow();
        let found = NodeName::new(node).ok().and_then(|name| world.machine_of(&name));
        found.unwrap_or_else(|| panic!("there is no node {node}"))
    }

    /// Something is done to the world by hand.
    #[cfg(test)]
    pub(crate) fn by_hand(&mut self, what: impl FnOnce(&mut super::world::World)) {
        what(&mut self.shared.world.borrow_mut());
    }

    /// The machine loses power; its BMC lives.
    pub fn cut_power(&mut self, node: &str) {
        let index = self.index(node);
        self.shared.world.borrow_mut().power_off(index, By::World);
    }

    /// Somebody powers the machine on.
    pub fn power_on(&mut self, node: &str) {
        let index = self.index(node);
        self.shared.world.borrow_mut().power_on(index, By::World);
    }

    /// The machine loses power and its BMC with it.
    pub fn pull_cord(&mut self, node: &str) {
        let index = self.index(node);
        self.shared.world.borrow_mut().pull_cord(index);
    }

    /// A person orders the machine off, at any replica that answers.
    pub fn order_off(&mut self, node: &str) {
        let index = self.index(node);
        self.shared.world.borrow_mut().people(&Act::Fence(index));
    }

    /// Nothing of the machine moves or answers until it is thawed.
    pub fn freeze(&mut self, node: &str) {
        let index = self.index(node);
        self.shared.world.borrow_mut().freeze(index);
    }

    /// It goes on.
    pub fn thaw(&mut self, node: &str) {
        let index = self.index(node);
        self.shared.world.borrow_mut().thaw(index);
    }

    /// Its programs are scheduled no more; its kernel answers.
    pub fn hang(&mut self, node: &str) {
        let index = self.index(node);
        self.shared.world.borrow_mut().hang(index);
    }

    /// The kernel crashes, dumps for so long while it answers ping, and reboots.
    pub fn panic(&mut self, node: &str, dumps_for: Span) {
        let index = self.index(node);
        self.shared.world.borrow_mut().panic(index, dumps_for);
    }

    /// The machine reboots without a word.
    pub fn reboot(&mut self, node: &str) {
        let index = self.index(node);
        self.shared.world.borrow_mut().reboot(index);
    }

    /// The machine says goodbye and reboots, with a firmware that takes so long.
    pub fn planned_reboot(&mut self, node: &str, firmware: Span) {
        let index = self.index(node);
        self.shared.world.borrow_mut().planned_reboot(index, firmware);
    }

    /// The machine says goodbye and shuts down: its power goes three seconds later. Or it means to reboot, and its power
    /// goes nevertheless.
    pub(crate) fn planned_shutdown(&mut self, node: &str, kind: GoodbyeKind) {
        let index = self.index(node);
        self.shared.world.borrow_mut().planned_shutdown(index, kind);
    }

    /// From now on its BMC is like that.
    pub(crate) fn change_bmc(&mut self, node: &str, change: impl Fn(&mut Traits)) {
        let index = self.index(node);
        let mut world = self.shared.world.borrow_mut();
        for bmc in world.bmcs.iter_mut().filter(|b| b.machine == index) {
            change(&mut bmc.traits);
        }
    }

    /// From now on its chassis restores the power so long after a loss; `None`: not any more.
    pub fn restores_power(&mut self, node: &str, after: Option<Span>) {
        self.change_bmc(node, |bmc| bmc.restores = after);
    }

    /// From now on its BMC says yes to commands and does nothing, or does them again.
    pub fn ignores_commands(&mut self, node: &str, ignores: bool) {
        self.change_bmc(node, |bmc| bmc.ignores = ignores);
    }

    /// Somebody writes into the Node's status that it is Ready, or that this is not known.
    pub fn says_ready(&mut self, node: &str, ready: bool) {
        let index = self.index(node);
        let mut world = self.shared.world.borrow_mut();
        let name = world.machines[index].name.clone();
        let ready = if ready { super::api::Ready::True } else { super::api::Ready::Unknown };
        world.api.change_node(&name, |node| node.ready = ready);
        world.node_changed(&name);
    }

    /// From now on its kubelet renews its Lease and reports Ready=False, as where its runtime is broken; or all is well.
    pub(crate) fn kubelet_is_unready(&mut self, node: &str, unready: bool) {
        let index = self.index(node);
        self.shared.world.borrow_mut().machines[index].unready = unready;
    }

    /// Somebody edits every policy.
    pub(crate) fn edit_policies(&mut self, edit: impl Fn(&mut Policy)) {
        let mut world = self.shared.world.borrow_mut();
        for policy in world.api.policies.values_mut() {
            edit(policy);
        }
        world.settings_changed();
    }

    /// Somebody's finalizer holds back the pods of a node, or lets them go.
    pub fn hold_pods(&mut self, node: &str, hold: bool) {
        let index = self.index(node);
        let mut world = self.shared.world.borrow_mut();
        let name = world.machines[index].name.clone();
        if hold {
            world.api.held_pods.insert(name);
        } else {
            world.api.held_pods.remove(&name);
            world.api.delete_pods(|_, pod| pod.terminating && pod.node == name);
        }
    }

    /// Cuts nodes' data links from everything and back; the number heals it.
    pub fn isolate(&mut self, nodes: &[&str]) -> Vec<u64> {
        let hosts: Vec<usize> = nodes.iter().map(|n| self.index(n)).collect();
        let mut world = self.shared.world.borrow_mut();
        let now = world.now;
        world.say(&format!("{} cut off", nodes.join(", ")));
        isolation(&hosts).into_iter().map(|cut| world.network.cut(now, cut)).collect()
    }

    /// From now on what agents send each other takes so much longer; what they send to replicas does not.
    pub(crate) fn slow_peers(&mut self, by: Span) {
        let mut world = self.shared.world.borrow_mut();
        world.say(&format!("agents reach each other {by} later"));
        (world.network.changed, world.network.slow_peers) = (world.now, by);
    }

    /// Replicas reach no BMC any more.
    pub fn cut_bmc_network(&mut self) -> u64 {
        let mut world = self.shared.world.borrow_mut();
        let now = world.now;
        world.say("the BMC network is cut");
        let flows = Some(vec![Flow::Bmc]);
        world.network.cut(
            now,
            Cut {
                name: "BMC network".to_owned(),
                from: Ends::Any,
                to: Ends::Any,
                flows,
                loss: 100,
                longer_than: 0,
            },
        )
    }

    /// Heals cuts.
    pub fn heal(&mut self, cuts: &[u64]) {
        let mut world = self.shared.world.borrow_mut();
        let now = world.now;
        for cut in cuts {
            world.network.heal(now, *cut);
        }
    }

    /// Two BMCs answer at each other's address; a second time they are back.
    pub fn swap_bmcs(&mut self, one: &str, other: &str) {
        let (one, other) = (self.index(one), self.index(other));
        self.shared.world.borrow_mut().bmcs.swap(one, other);
    }

    /// A BMC answers nobody, or does again.
    pub fn bmc_dead(&mut self, node: &str, dead: bool) {
        let index = self.index(node);
        self.shared.world.borrow_mut().bmcs[index].dead = dead;
    }

    /// A BMC answers so many of a hundred calls with 500.
    pub fn bmc_errors(&mut self, node: &str, percent: u64) {
        let index = self.index(node);
        self.shared.world.borrow_mut().bmcs[index].traits.errors = percent;
    }

    /// The process of the replica that leads is killed, and starts again after so long.
    pub fn kill_leader(&mut self, away: Span) {
        let mut world = self.shared.world.borrow_mut();
        if let Some(replica) = world.leader() {
            world.begin(super::trouble::Trouble::ReplicaKilled { replica, away });
        }
    }

    /// The API server answers nobody, or does again.
    pub fn api_down(&mut self, down: bool) {
        self.shared.world.borrow_mut().api.down = down;
    }
}
