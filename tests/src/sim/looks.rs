//! What may be looked at from outside.

use coroner_arbiter_core::state::State;
use coroner_shared::id::NodeName;
use coroner_shared::time::Span;

use super::machine::Condition;
use super::set_up::WARM_UP;
use super::truth::{Fact, Violation};
use super::world::START;
use super::{Coverage, Sim};

impl Sim {
    /// Lets everybody register and every BMC become steady.
    pub fn warm_up(&mut self) {
        self.run_for(WARM_UP);
    }

    /// Since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Span {
        self.shared.reactor.now().since(START)
    }

    /// The state as committed.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.world.borrow().truth.state.clone()
    }

    /// The phase of a node, by its word.
    #[must_use]
    pub fn phase(&self, node: &str) -> &'static str {
        let world = self.shared.world.borrow();
        let name = NodeName::new(node);
        let found = name.ok().and_then(|name| world.truth.state.nodes.get(&name).map(|n| n.phase.name()));
        found.unwrap_or("Unknown")
    }

    /// Why a node is held, by its word; empty if it is not.
    #[must_use]
    pub fn held(&self, node: &str) -> &'static str {
        let world = self.shared.world.borrow();
        let Some(node) = NodeName::new(node).ok().and_then(|name| world.truth.state.nodes.get(&name)) else {
            return "";
        };
        if let coroner_arbiter_core::phase::Phase::Held { why, .. } = &node.phase { why.word() } else { "" }
    }

    /// What the leader's desk finds now, in words.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        let world = self.shared.world.borrow();
        let process = world.leader().and_then(|index| world.replicas[index].process.as_ref());
        process.map_or_else(Vec::new, |p| p.ears.findings.iter().map(ToString::to_string).collect())
    }

    /// Power commands that reached BMCs: milliseconds since the beginning, the machine whose power it was, what.
    #[must_use]
    pub fn ledger(&self) -> Vec<(u64, String, String)> {
        let world = self.shared.world.borrow();
        let line = |l: &super::bmc::Line| {
            (l.at.since(START).as_ms(), world.machines[l.machine].name.to_string(), l.what.clone())
        };
        world.ledger.iter().map(line).collect()
    }

    /// The node of the replica that leads.
    #[must_use]
    pub fn leader(&self) -> Option<String> {
        let world = self.shared.world.borrow();
        let host = world.site.replicas[world.leader()?];
        Some(world.machines[host].name.to_string())
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.shared.world.borrow().site.nodes
    }

    /// Reasons of the pages given about a node so far.
    #[must_use]
    pub fn pages_about(&self, node: &str) -> Vec<String> {
        let world = self.shared.world.borrow();
        let of = |name: &NodeName| name.as_str() == node;
        world.truth.pages.keys().filter(|(name, _)| of(name)).map(|(_, reason)| reason.clone()).collect()
    }

    /// How often people were told the same of a node at most, and of what.
    #[must_use]
    pub fn told_most(&self, node: &str) -> (u32, String) {
        let world = self.shared.world.borrow();
        let of = world.truth.pages.iter().filter(|((name, _), _)| name.as_str() == node);
        of.map(|((_, reason), count)| (*count, reason.clone())).max().unwrap_or_default()
    }

    /// Whether a machine has power, in truth.
    #[must_use]
    pub fn has_power(&self, node: &str) -> bool {
        self.condition(node).is_some_and(|condition| condition != Condition::Off)
    }

    /// The replica that leads, by its place among the replicas.
    #[must_use]
    pub fn leader_index(&self) -> Option<usize> {
        self.shared.world.borrow().leader()
    }

    /// The machine of the replica that leads.
    #[must_use]
    pub fn leader_host(&self) -> Option<usize> {
        let world = self.shared.world.borrow();
        Some(world.site.replicas[world.leader()?])
    }

    /// Taints of a Node that are not ours, and whether ours stands.
    #[must_use]
    pub fn taints(&self, node: &str) -> (usize, bool) {
        let world = self.shared.world.borrow();
        let found = world.api.nodes.values().find(|n| n.name.as_str() == node);
        let others = |n: &super::api::NodeObject| n.taints.iter().filter(|t| !t.is_ours()).count();
        found.map_or((0, false), |n| (others(n), n.tainted()))
    }

    /// What a machine is, in truth.
    #[must_use]
    pub fn condition(&self, node: &str) -> Option<Condition> {
        let world = self.shared.world.borrow();
        let name = NodeName::new(node).ok()?;
        Some(world.machines[world.machine_of(&name)?].condition)
    }

    /// What must never be, and was.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.world.borrow().truth.violations.clone()
    }

    /// Pages given so far.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.shared.world.borrow().truth.pages.values().sum()
    }

    /// Entries committed so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.shared.world.borrow().truth.entries()
    }

    /// What was reached.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        self.shared.world.borrow().coverage.clone()
    }

    /// Over everything that happened; the same in every run of a seed.
    #[must_use]
    pub fn hash(&self) -> String {
        self.shared.world.borrow().trace.hash()
    }

    /// The story so far, with what is wrong now: for a test that fails.
    #[must_use]
    pub fn story(&self) -> String {
        let world = self.shared.world.borrow();
        let mut text = world.trace.lines().join("\n");
        for (name, node) in world.truth.state.nodes.iter().filter(|(_, n)| n.phase.name() != "Alive") {
            text.push_str(&format!("\nin the end {name} is {:?}", node.phase));
        }
        text
    }

    /// Happenings so far.
    #[must_use]
    pub fn happenings(&self) -> u64 {
        self.shared.world.borrow().queue.count()
    }

    /// Asks the invariants for the last time; to be called once faults were healed and time was given.
    pub fn finish(&mut self) {
        let mut world = self.shared.world.borrow_mut();
        world.compare_replicas();
        world.tell(&Fact::End);
    }
}
