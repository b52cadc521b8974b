//! Watches: the Nodes, our own resources, and the kubelets' Leases. What they hold is published as it changes; what of
//! it the log must know is a pure difference ([`super::facts`]), so a lost event can leave nothing stuck.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use coroner_arbiter_core::command::NodeFacts;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};
use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::convert;
use super::types::{FencingPolicy, MachineBinding};
use crate::clock;

/// A map that is `None` until the first complete list: absence before that means nothing.
pub type Listed<V> = Option<Arc<BTreeMap<String, V>>>;

/// Namespace of the kubelets' Leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// A watch call is renewed this often, and a dead connection is noticed 5 s later.
const WATCH_SECONDS: u32 = 55;
/// The kubelet's renewal period (a quarter of nodeLeaseDurationSeconds, 40 s), until another one is learnt.
const RENEWAL: Span = Span::from_secs(10);
/// Some kubelet renews within this time, or the watch is stale: three nodes renewing every 10 s leave no such gap.
const LEASES_QUIET: Span = Span::from_secs(15);
/// The API server counts as readable for so long after an answer.
const ANSWER_COUNTS: Span = Span::from_secs(3);

/// One kubelet's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSeen {
    version: String,
    /// When it was last seen to change; `None`: not since the watch began.
    pub changed: Option<Mono>,
    /// Learnt from the last two changes.
    pub interval: Span,
}

/// All Leases, and whether the API server can be read.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    /// By node.
    pub seen: BTreeMap<NodeName, LeaseSeen>,
    /// When the watch was complete for the first time.
    pub since: Option<Mono>,
    /// When any of them changed last.
    pub newest: Option<Mono>,
    /// When the API server last answered.
    pub answered: Option<Mono>,
}

/// Everything watched.
#[derive(Clone)]
pub struct Watched {
    /// Node facts.
    pub nodes: watch::Receiver<Listed<NodeFacts>>,
    /// Policies as written.
    pub policies: watch::Receiver<Listed<FencingPolicy>>,
    /// Bindings as written.
    pub bindings: watch::Receiver<Listed<MachineBinding>>,
    /// Leases.
    pub leases: watch::Receiver<Arc<Leases>>,
}

// === impl Leases ===

impl Leases {
    /// Whether the API server can be read now and the watch is alive.
    pub fn readable(&self, now: Mono) -> bool {
        let answered = self.answered.is_some_and(|at| now.since(at) <= ANSWER_COUNTS);
        let fresh = self.seen.len() < 2 || self.newest.is_some_and(|at| now.since(at) <= LEASES_QUIET);
        answered && self.since.is_some() && fresh
    }

    fn note(&mut self, node: NodeName, version: String, now: Mono) {
        match self.seen.get_mut(&node) {
            None => {
                self.seen.insert(node, LeaseSeen { version, changed: None, interval: RENEWAL });
            }
            Some(lease) if lease.version != version => {
                if let Some(before) = lease.changed {
                    let interval = now.since(before);
                    // A kubelet that was away is not one that renews rarely.
                    if interval >= Span::from_secs(1) && interval <= RENEWAL.times(2) {
                        lease.interval = interval.max(Span::from_secs(2));
                    }
                }
                lease.version = version;
                lease.changed = Some(now);
                self.newest = Some(now);
            }
            Some(_) => {}
        }
    }
}

/// Starts the watches; they end when the task set they are spawned into ends.
pub fn start(client: &Client, tasks: &mut tokio::task::JoinSet<&'static str>) -> Watched {
    let config = || watcher::Config::default().timeout(WATCH_SECONDS);
    let nodes_api: Api<Node> = Api::all(client.clone());
    let (nodes, nodes_out) = watch::channel(None);
    let (policies, policies_out) = watch::channel(None);
    let (bindings, bindings_out) = watch::channel(None);
    let (leases, leases_out) = watch::channel(Arc::new(Leases::default()));
    tasks.spawn(named("watch of Nodes", keep(watcher(nodes_api, config()), nodes, convert::facts)));
    let all: Api<FencingPolicy> = Api::all(client.clone());
    tasks.spawn(named(
        "watch of FencingPolicies",
        keep(watcher(all, config()), policies, |p| {
            Some(FencingPolicy { metadata: written(&p.metadata), spec: p.spec.clone(), status: None })
        }),
    ));
    let all: Api<MachineBinding> = Api::all(client.clone());
    tasks.spawn(named(
        "watch of MachineBindings",
        keep(watcher(all, config()), bindings, |b| {
            Some(MachineBinding { metadata: written(&b.metadata), spec: b.spec.clone(), status: None })
        }),
    ));
    let leases = Arc::new(leases);
    // Metadata only: the node controller's own cost allows no more at 5,000 nodes.
    let all: Api<PartialObjectMeta<Lease>> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    tasks.spawn(named("watch of Leases", keep_leases(watcher(all, config()), Arc::clone(&leases))));
    tasks.spawn(named("probe of the API server", probe(client.clone(), leases)));
    Watched { nodes: nodes_out, policies: policies_out, bindings: bindings_out, leases: leases_out }
}

/// What an operator wrote of the metadata, so that our own writes of a status wake nobody.
fn written(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        generation: metadata.generation,
        ..ObjectMeta::default()
    }
}

async fn named(name: &'static str, work: impl Future<Output = ()>) -> &'static str {
    work.await;
    name
}

/// Keeps a map of what a watch shows, narrowed at the border.
async fn keep<K, V>(
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
    to: watch::Sender<Listed<V>>,
    narrow: impl Fn(&K) -> Option<V> + Send,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    V: PartialEq + Send + Sync + Clone + 'static,
{
    let kind = K::kind(&()).to_string();
    let mut stream = Box::pin(stream.default_backoff());
    let mut listing: BTreeMap<String, V> = BTreeMap::new();
    let mut failing = false;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                if std::mem::take(&mut failing) {
                    tracing::info!(kind, "the watch works again");
                }
                take(event, &mut listing, &to, &narrow);
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(kind, error = %crate::transport::chain(&error), "a watch broke off; it is tried again for ever");
                }
            }
        }
    }
}

fn take<K, V>(
    event: Event<K>,
    listing: &mut BTreeMap<String, V>,
    to: &watch::Sender<Listed<V>>,
    narrow: &impl Fn(&K) -> Option<V>,
) where
    K: Resource<DynamicType = ()>,
    V: PartialEq + Clone,
{
    let change = |work: &dyn Fn(&mut BTreeMap<String, V>)| {
        to.send_if_modified(|listed| {
            let Some(map) = listed else { return false };
            let before = Arc::clone(map);
            work(Arc::make_mut(map));
            *map != before
        });
    };
    match event {
        Event::Init => listing.clear(),
        Event::InitApply(object) => {
            if let (Some(name), Some(value)) = (object.meta().name.clone(), narrow(&object)) {
                listing.insert(name, value);
            }
        }
        Event::InitDone => {
            let complete = Some(Arc::new(std::mem::take(listing)));
            to.send_if_modified(|listed| {
                let changed = *listed != complete;
                *listed = complete;
                changed
            });
        }
        Event::Apply(object) => {
            if let (Some(name), Some(value)) = (object.meta().name.clone(), narrow(&object)) {
                change(&|map| {
                    map.insert(name.clone(), value.clone());
                });
            }
        }
        Event::Delete(object) => {
            if let Some(name) = &object.meta().name {
                change(&|map| {
                    map.remove(name);
                });
            }
        }
    }
}

/// Keeps the Leases: metadata only, as the node controller's cost allows no more at 5,000 nodes.
async fn keep_leases(
    stream: impl Stream<Item = Result<Event<PartialObjectMeta<Lease>>, watcher::Error>> + Send,
    to: Arc<watch::Sender<Arc<Leases>>>,
) {
    let mut stream = Box::pin(stream.default_backoff());
    while let Some(event) = stream.next().await {
        let now = clock::now();
        match event {
            Ok(Event::InitApply(lease) | Event::Apply(lease)) => {
                let name = lease.metadata.name.and_then(|n| NodeName::new(n).ok());
                if let (Some(node), Some(version)) = (name, lease.metadata.resource_version) {
                    to.send_modify(|leases| Arc::make_mut(leases).note(node, version, now));
                }
            }
            Ok(Event::InitDone) => to.send_modify(|leases| {
                let leases = Arc::make_mut(leases);
                leases.since.get_or_insert(now);
                leases.newest = Some(now);
            }),
            Ok(Event::Delete(lease)) => {
                if let Some(node) = lease.metadata.name.and_then(|n| NodeName::new(n).ok()) {
                    to.send_modify(|leases| {
                        Arc::make_mut(leases).seen.remove(&node);
                    });
                }
            }
            Ok(Event::Init) | Err(_) => {}
        }
    }
}

/// Asks the API server once a second whether it is there: a watch alone cannot tell silence from absence.
async fn probe(client: Client, to: Arc<watch::Sender<Arc<Leases>>>) {
    let mut every = tokio::time::interval(Duration::from_secs(1));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let asked = clock::now();
        let answer = tokio::time::timeout(Duration::from_secs(2), client.apiserver_version()).await;
        if matches!(answer, Ok(Ok(_))) {
            to.send_modify(|leases| Arc::make_mut(leases).answered = Some(asked));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sight_of_a_lease_is_no_change_of_it() {
        let node = NodeName::new("n1").unwrap();
        let at = Mono::from_ms;
        let mut leases = Leases::default();
        leases.note(node.clone(), "1".to_owned(), at(0));
        assert_eq!(leases.seen[&node].changed, None);
        leases.note(node.clone(), "1".to_owned(), at(1000));
        assert_eq!(leases.seen[&node].changed, None);
        leases.note(node.clone(), "2".to_owned(), at(2000));
        assert_eq!(leases.seen[&node].changed, Some(at(2000)));
        leases.note(node.clone(), "3".to_owned(), at(7000));
        assert_eq!(leases.seen[&node].interval, Span::from_secs(5));
        // Away for a while: the interval that was learnt stays.
        leases.note(node.clone(), "4".to_owned(), at(100_000));
        assert_eq!(leases.seen[&node].interval, Span::from_secs(5));
    }

    #[test]
    fn a_quiet_watch_is_not_taken_for_silent_kubelets() {
        let at = Mono::from_ms;
        let mut leases = Leases {
            since: Some(at(0)),
            newest: Some(at(0)),
            answered: Some(at(20_000)),
            ..Leases::default()
        };
        for n in ["n1", "n2", "n3"] {
            leases.note(NodeName::new(n).unwrap(), "1".to_owned(), at(0));
        }
        assert!(!leases.readable(at(20_000)), "no Lease has changed for 20 s");
        leases.newest = Some(at(10_000));
        assert!(leases.readable(at(20_000)));
        assert!(!leases.readable(at(24_000)), "the API server has not answered for 4 s");
    }
}
