//! What a release and a return write to a Node: each bound to uid and version, and nothing of others touched. Mirrors
//! `arbiter/src/k8s/release.rs`.

use coroner_arbiter_core::jobs::Life;
use coroner_arbiter_core::marks::{self, Edit};
use coroner_arbiter_core::phase::Released;
use coroner_shared::names::INCIDENT_ANNOTATION;

use crate::sim::api::{NodeObject, Ready};
use crate::sim::truth::Fact;
use crate::sim::world::{Shared, World};

/// One patch of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeWrite {
    Taint,
    NotReady,
    Untaint { keep_taint: bool, orphaned: bool },
    Uncordon,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    /// Somebody changed the Node in between.
    Conflict,
    /// No answer, or another Node.
    Failed,
}

impl Shared {
    /// The Node of exactly this uid, and what is bound to it.
    pub(super) async fn read_node(&self, index: usize, life: &Life) -> Option<(NodeObject, Released)> {
        let (name, uid) = (life.node.clone(), life.incarnation.node.clone());
        self.api(index, move |world| {
            let node = world.api.nodes.get(&name).filter(|n| n.uid == uid)?.clone();
            let pods = world.api.pods_of(&name);
            let attachments = world.api.attachments_of(&name);
            let released = Released {
                was_cordoned: node.unschedulable,
                was_tainted: node.marked().is_anothers(),
                pods: pods
                    .map(|(uid, pod)| (uid.to_string(), format!("default/w-{}", pod.workload)))
                    .collect(),
                attachments: attachments
                    .map(|(uid, a)| (uid.to_string(), format!("volume-{}", a.workload)))
                    .collect(),
            };
            Some((node, released))
        })
        .await
        .ok()?
    }

    pub(super) async fn write_node(
        &self,
        index: usize,
        life: &Life,
        version: u64,
        write: NodeWrite,
    ) -> Written {
        let life = life.clone();
        let wrote = self.api(index, move |world| world.patch_node(&life, version, write)).await;
        wrote.unwrap_or(Written::Failed)
    }
}

// === impl World ===

impl World {
    fn patch_node(&mut self, life: &Life, version: u64, write: NodeWrite) -> Written {
        let Some(node) = self.api.nodes.get(&life.node) else { return Written::Failed };
        if node.uid != life.incarnation.node || node.version != version {
            return Written::Conflict;
        }
        let marked = node.marked();
        let edits = match write {
            NodeWrite::Taint => marks::release(&marked, &life.incident, "evidence"),
            NodeWrite::Untaint { keep_taint, orphaned } => {
                marks::untaint(&marked, &life.incident, keep_taint, orphaned)
            }
            NodeWrite::NotReady | NodeWrite::Uncordon => Vec::new(),
        };
        let boot = life.incarnation.boot;
        self.api.change_node(&life.node, |node| {
            for edit in edits {
                edited(node, edit);
            }
            match write {
                NodeWrite::NotReady if node.ready == Ready::True => node.ready = Ready::Unknown,
                NodeWrite::Uncordon => node.unschedulable = false,
                NodeWrite::NotReady | NodeWrite::Taint | NodeWrite::Untaint { .. } => {}
            }
        });
        self.node_changed(&life.node);
        if write != NodeWrite::NotReady {
            self.say(&format!("{}: {write:?} written", life.node));
        }
        if write == NodeWrite::Taint {
            self.tell(&Fact::Tainted { node: life.node.clone(), boot });
        }
        Written::Done
    }
}

fn edited(node: &mut NodeObject, edit: Edit) {
    match edit {
        Edit::AddTaint(taint) => node.taints.push(taint),
        Edit::RemoveTaint { at } => {
            node.taints.remove(at);
        }
        Edit::RemoveTaints => node.taints.clear(),
        Edit::Cordon => node.unschedulable = true,
        Edit::Annotate(mark) => {
            node.annotations.insert(INCIDENT_ANNOTATION.to_owned(), mark);
        }
        Edit::RemoveAnnotation(_) => {
            node.annotations.remove(INCIDENT_ANNOTATION);
        }
    }
}
