//! Three replicas' threads, with real disks and clocks; the network is a task that hands messages on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coroner_arbiter::replica::{self, ProposeError, ReplicaHandle, Running};
use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::state::State;
use coroner_arbiter_replica::{Bootstrap, ReplicaConfig, Role};
use coroner_shared::id::ReplicaId;
use tempfile::TempDir;

/// Whatever takes longer than this on any machine hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Group {
    pub(crate) handles: BTreeMap<ReplicaId, ReplicaHandle>,
    cut: Arc<Mutex<BTreeSet<ReplicaId>>>,
    _disks: TempDir,
}

pub(crate) fn command(why: &str) -> Command {
    Command::Pause { node: None, who: "test".to_owned(), why: why.to_owned() }
}

// === impl Group ===

impl Group {
    pub(crate) fn start() -> Self {
        let disks = TempDir::new().unwrap();
        let members: Vec<ReplicaId> = (1..=3).map(|n| ReplicaId::new(n).unwrap()).collect();
        let bootstrap = Bootstrap { members: members.clone(), state: State::default() };
        let running: BTreeMap<ReplicaId, Running> = members
            .iter()
            .map(|id| {
                let path = disks.path().join(format!("replica-{id}/log"));
                (*id, replica::start(ReplicaConfig::new(*id), &path, &bootstrap).unwrap())
            })
            .collect();
        let handles: BTreeMap<_, _> = running.iter().map(|(id, r)| (*id, r.handle.clone())).collect();
        let cut = Arc::new(Mutex::new(BTreeSet::new()));
        for (from, Running { mut messages, .. }) in running {
            let (handles, cut) = (handles.clone(), Arc::clone(&cut));
            tokio::spawn(async move {
                while let Some((to, bytes)) = messages.recv().await {
                    let lost = {
                        let cut = cut.lock().unwrap();
                        cut.contains(&from) || cut.contains(&to)
                    };
                    if lost {
                        handles[&from].unreachable(to).await;
                    } else {
                        handles[&to].step(from, bytes).await;
                    }
                }
            });
        }
        Self { handles, cut, _disks: disks }
    }

    pub(crate) fn cut(&self, id: ReplicaId) {
        self.cut.lock().unwrap().insert(id);
    }

    pub(crate) fn heal(&self) {
        self.cut.lock().unwrap().clear();
    }

    /// Waits until `look` finds something.
    pub(crate) async fn until<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let found = tokio::time::timeout(LONG, async {
            loop {
                if let Some(found) = look(self) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("not within {LONG:?}: {what}"))
    }

    /// A leader that is none of those cut off and has committed in its term.
    pub(crate) async fn leader(&self) -> ReplicaHandle {
        let cut = self.cut.lock().unwrap().clone();
        loop {
            let handle = self
                .until("a leader", |group| {
                    let connected = group.handles.values().filter(|h| !cut.contains(&h.id()));
                    connected.into_iter().find(|h| h.published().role == Role::Leader).cloned()
                })
                .await;
            if handle.propose(format!("first of {}", handle.published().term), Command::Tick).await.is_ok() {
                return handle;
            }
        }
    }

    /// Commits through whoever leads, over changes of leader.
    pub(crate) async fn commit(&self, why: &str) -> Outcome {
        loop {
            match self.leader().await.propose(why.to_owned(), command(why)).await {
                Ok(outcome) => return outcome,
                Err(ProposeError::NotLeader(_) | ProposeError::Unknown) => {}
                Err(ProposeError::Stopped) => panic!("a replica stopped"),
            }
        }
    }
}
