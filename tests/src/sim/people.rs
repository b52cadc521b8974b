//! What people do, through whichever replica they happen to reach. Mirrors the acts of `arbiter/src/people.rs`.

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::hears::Hears;
use coroner_arbiter_core::marks::Taint;
use coroner_arbiter_core::phase::Confirmation;
use coroner_arbiter_core::policy::Mode;
use coroner_shared::id::{IncidentId, NodeName, NodeUid};
use coroner_shared::names::EXCLUDE_LABEL;
use coroner_shared::time::Span;

use super::world::World;

/// An act of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// `coroner fence`.
    Fence(usize),
    /// `coroner confirm-off`, by somebody who looked whether the machine is off.
    ConfirmOff(usize),
    Pause(Option<usize>),
    Resume(Option<usize>),
    Return(usize),
    ClearHeld(usize),
    /// Every policy in that mode.
    Mode(Mode),
    /// The opt-out label, set or taken away.
    Exclude(usize, bool),
    /// A Node moves to another rack, by its label.
    Relabel(usize, usize),
    Cordon(usize),
    Uncordon(usize),
    /// The Node object is deleted, and made anew under the same name a moment later.
    Recreate(usize),
    /// Another controller takes our taint away.
    TakeTaint(usize),
    /// Another controller sets a taint of its own.
    ForeignTaint(usize),
    /// `coroner confirm-off`, by somebody who did not look.
    ConfirmUnseen(usize),
    /// The same, of a machine that somebody hears: it must be refused.
    ConfirmHeard(usize),
    /// `coroner confirm-off` with the number of another incident.
    ConfirmOther(usize),
    /// `coroner confirm-off` with exactly these words.
    ConfirmAs(usize, Box<Confirmation>),
    /// `coroner fence` of a Node object that is no more.
    FenceReplaced(usize),
    /// `coroner fence` of a Node that never was.
    FenceNobody,
    /// `coroner repin`.
    Repin(usize),
    /// A second policy selects every node, or goes.
    SecondPolicy(bool),
    /// Every policy gets a value that cannot be meant, or a good one again.
    BadPolicy(bool),
    /// Somebody sets the level of rules.
    SetLevel(u32),
}

/// The taint that another controller sets.
pub(crate) fn foreign_taint() -> Taint {
    let key = "example.dev/shutdown".to_owned();
    Taint { key, value: String::new(), effect: "NoSchedule".to_owned() }
}

// === impl World ===

impl World {
    pub(crate) fn people(&mut self, act: &Act) {
        match *act {
            Act::Mode(_) | Act::SecondPolicy(_) | Act::BadPolicy(_) => self.change_policies(act),
            Act::Exclude(node, set) => self.change(node, |n| {
                if set {
                    n.labels.insert(EXCLUDE_LABEL.to_owned(), "true".to_owned());
                } else {
                    n.labels.remove(EXCLUDE_LABEL);
                }
            }),
            Act::Relabel(node, rack) => {
                let known = self.truth.state.nodes.get(&self.machines[node].name);
                if known.is_some_and(|known| known.phase.name() != "Alive") {
                    self.coverage.reach("people: labels changed in mid-incident");
                }
                self.change(node, |n| {
                    n.labels.insert(coroner_shared::names::DOMAIN_LABELS[0].to_owned(), format!("r{rack}"));
                });
            }
            Act::Cordon(node) => {
                // Somebody who finds a node cordoned leaves it so.
                let name = self.machines[node].name.clone();
                if self.api.nodes.get(&name).is_some_and(|n| !n.unschedulable) {
                    self.truth.cordoned_by_people.push(name);
                    self.change(node, |n| n.unschedulable = true);
                }
            }
            Act::Uncordon(node) => {
                let name = self.machines[node].name.clone();
                self.truth.cordoned_by_people.retain(|n| *n != name);
                self.change(node, |n| n.unschedulable = false);
            }
            Act::Recreate(node) => self.recreate(node),
            Act::TakeTaint(node) => self.change(node, |n| n.taints.retain(|t| !t.is_ours())),
            Act::ForeignTaint(node) => {
                self.truth.foreign_taints.push(self.machines[node].name.clone());
                self.change(node, |n| n.taints.push(foreign_taint()));
            }
            Act::Fence(_)
            | Act::ConfirmOff(_)
            | Act::ConfirmUnseen(_)
            | Act::ConfirmHeard(_)
            | Act::ConfirmOther(_)
            | Act::ConfirmAs(..)
            | Act::FenceReplaced(_)
            | Act::FenceNobody
            | Act::Repin(_)
            | Act::SetLevel(_)
            | Act::Pause(_)
            | Act::Resume(_)
            | Act::Return(_)
            | Act::ClearHeld(_) => self.ask_arbiter(act),
        }
    }

    fn change_policies(&mut self, act: &Act) {
        if let Act::Mode(mode) = *act {
            for policy in self.api.policies.values_mut() {
                policy.mode = mode;
                policy.hash = format!("{}-{mode:?}", policy.name);
            }
        } else if let Act::SecondPolicy(set) = *act {
            if set {
                let second = super::site::policy("second");
                self.api.policies.insert(second.name.clone(), second);
            } else {
                self.api.policies.remove("second");
            }
        } else if let Act::BadPolicy(bad) = *act {
            for policy in self.api.policies.values_mut() {
                policy.hash = format!("{}-bad-{bad}", policy.name);
                policy.brakes.deaths_per_day = if bad { 0 } else { 3 };
            }
        }
        self.settings_changed();
    }

    fn change(&mut self, node: usize, change: impl FnOnce(&mut super::api::NodeObject)) {
        let name = self.machines[node].name.clone();
        self.api.change_node(&name, change);
        self.node_changed(&name);
    }

    fn recreate(&mut self, node: usize) {
        let name = self.machines[node].name.clone();
        self.api.nodes.remove(&name);
        self.api.leases.remove(&name);
        self.api.pods.retain(|_, pod| pod.node != name);
        self.node_changed(&name);
        self.truth.cordoned_by_people.retain(|n| *n != name);
        self.truth.foreign_taints.retain(|n| *n != name);
        // Who deletes a Node says that nothing runs there: Kubernetes deletes its pods and starts them elsewhere, and no
        // fence is asked.
        let vouched = self.machines[node].runs.keys().copied();
        self.truth.vouched.extend(vouched);
        self.after(Span::from_secs(2), move |world| {
            let uid = format!("uid-{node}-{}", world.api.uid());
            world.add_node(node, &uid);
            let name = world.machines[node].name.clone();
            world.node_changed(&name);
        });
    }

    /// An act on the arbiter, by the first replica that runs.
    fn ask_arbiter(&mut self, act: &Act) {
        let Some(command) = self.command_of(act) else { return };
        let count = self.replicas.len();
        let first = self.draws.replicas.index(count);
        let up =
            (0..count).map(|n| (first + n) % count).find(|index| self.replicas[*index].process.is_some());
        let Some(index) = up else { return };
        let Some(group) = self.replicas[index].process.as_ref().map(|p| p.group) else { return };
        let host = self.site.replicas[index];
        let key = format!("act-{}", self.draws.replicas.number());
        self.spawn(host, group, move |shared| {
            Box::pin(async move {
                let outcome = super::ingress::anywhere(&shared, index, Some(key), command).await;
                shared.world.borrow_mut().say(&format!("a person's act: {outcome:?}"));
            })
        });
    }

    fn command_of(&self, act: &Act) -> Option<Command> {
        let (who, why) = ("a person".to_owned(), "as they said".to_owned());
        let name = |node: &usize| -> NodeName { self.machines[*node].name.clone() };
        Some(match act {
            Act::Fence(node) => {
                let uid = self.api.nodes.get(&name(node))?.uid.clone();
                Command::Order { node: name(node), uid, who, why }
            }
            Act::ConfirmOff(node) | Act::ConfirmUnseen(node) | Act::ConfirmHeard(node) => {
                // They went and looked, or did not.
                let looked = matches!(act, Act::ConfirmOff(_)) && self.machines[*node].has_power();
                let unheard = matches!(act, Act::ConfirmHeard(_)) && !self.is_surely_heard(*node);
                if looked || unheard {
                    return None;
                }
                Command::ConfirmOff {
                    node: name(node),
                    confirmation: self.confirms(*node)?,
                    heard: Hears::Node,
                }
            }
            Act::ConfirmOther(node) => {
                let incident = IncidentId::of(&name(node), u64::MAX);
                let confirmation = Confirmation { incident, ..self.confirms(*node)? };
                Command::ConfirmOff { node: name(node), confirmation, heard: Hears::Node }
            }
            Act::ConfirmAs(node, confirmation) => {
                let confirmation = Confirmation::clone(confirmation);
                Command::ConfirmOff { node: name(node), confirmation, heard: Hears::Node }
            }
            Act::FenceReplaced(node) => {
                let uid = NodeUid::new("uid-of-a-node-that-went").ok()?;
                Command::Order { node: name(node), uid, who, why }
            }
            Act::FenceNobody => {
                let (node, uid) = (NodeName::new("nobody").ok()?, NodeUid::new("uid-of-nobody").ok()?);
                Command::Order { node, uid, who, why }
            }
            Act::Repin(node) => Command::Repin { node: name(node), who, why },
            Act::SetLevel(level) => Command::SetLevel(*level),
            Act::Pause(node) => Command::Pause { node: node.as_ref().map(name), who, why },
            Act::Resume(node) => Command::Resume { node: node.as_ref().map(name), who, why },
            Act::Return(node) => Command::Return { node: name(node), who, why },
            Act::ClearHeld(node) => Command::ClearHeld { node: name(node), who, why },
            Act::Mode(_)
            | Act::Exclude(..)
            | Act::Relabel(..)
            | Act::Cordon(_)
            | Act::Uncordon(_)
            | Act::Recreate(_)
            | Act::TakeTaint(_)
            | Act::SecondPolicy(_)
            | Act::BadPolicy(_)
            | Act::ForeignTaint(_) => return None,
        })
    }

    /// What somebody confirms who looked at the open incident of that node.
    fn confirms(&self, node: usize) -> Option<Confirmation> {
        let (incident, record) = self.truth.state.open_incident(&self.machines[node].name)?;
        Some(Confirmation {
            incident: incident.clone(),
            node: record.incarnation.node.clone(),
            boot: record.incarnation.boot,
            who: "a person".to_owned(),
            why: "as they said".to_owned(),
        })
    }

    /// Whether its present boot is heard by somebody whose word reaches the leader at once, and has been for a while.
    pub(crate) fn is_surely_heard(&self, machine: usize) -> bool {
        let long = Span::from_secs(3);
        self.machines[machine].is_up()
            && self.truth.hears(machine).any(|(receiver, hears)| {
                receiver != machine
                    && self.now.since(hears.last) < Span::from_ms(500)
                    && hears.last.since(hears.since) > long
                    && self.is_well_connected(receiver)
            })
    }
}
