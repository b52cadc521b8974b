//! Watches: the Nodes, our own resources, and the kubelets' Leases. What they hold is published as it changes; what of
//! it the log must know is a pure difference ([`super::facts`]), so a lost event can leave nothing stuck.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use coroner_arbiter_core::command::NodeFacts;
use coroner_arbiter_core::leases::Leases;
use coroner_shared::id::NodeName;
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
                    to.send_modify(|leases| Arc::make_mut(leases).note(node, &version, now));
                }
            }
            Ok(Event::InitDone) => to.send_modify(|leases| {
                Arc::make_mut(leases).listed(now);
            }),
            Ok(Event::Delete(lease)) => {
                if let Some(node) = lease.metadata.name.and_then(|n| NodeName::new(n).ok()) {
                    to.send_modify(|leases| {
                        Arc::make_mut(leases).gone(&node, now);
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
            to.send_modify(|leases| Arc::make_mut(leases).answered(asked));
        }
    }
}
