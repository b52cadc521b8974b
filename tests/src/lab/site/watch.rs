//! The tests' own watch of the cluster: writes `api.jsonl`, keeps the same lines in memory, and looks at the clocks.
//!
//! It knows nothing of Coroner but the names of its resources. What it hears late (after the API server was down) it
//! stamps late; nothing here is ever earlier than it was.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event as KubeEvent, Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    lab::writer::boottime_ns,
    oracles::{
        clock::Sample,
        record::files,
        watched::{Change, Kind, NodeSeen, PodSeen, Seen},
    },
};

/// Between two looks at the clocks.
const CLOCK_EVERY: Duration = Duration::from_secs(2);

/// A running watch; dropped, it ends.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<Sight>,
    _tasks: JoinSet<()>,
}

/// What was seen so far.
#[derive(Debug)]
struct Sight {
    lines: Mutex<Vec<Seen>>,
    file: Mutex<File>,
}

// === impl Watch ===

impl Watch {
    /// Starts to watch, and to write into `folder`.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub fn start(client: &Client, folder: &Path) -> Result<Self> {
        let append = |name: &str| {
            let file = OpenOptions::new().create(true).append(true).open(folder.join(name));
            file.with_context(|| format!("make {name}"))
        };
        let seen = Arc::new(Sight { lines: Mutex::new(Vec::new()), file: Mutex::new(append(files::SEEN)?) });
        let mut tasks = JoinSet::new();
        tasks.spawn(look_at_clocks(append(files::CLOCK)?));
        let sight = || Arc::clone(&seen);
        tasks.spawn(follow(Api::<Pod>::all(client.clone()), Kind::Pod, sight(), |pod| {
            PodSeen::of(pod).kept()
        }));
        tasks.spawn(follow(Api::<Node>::all(client.clone()), Kind::Node, sight(), |node| {
            NodeSeen::of(node).kept()
        }));
        tasks.spawn(follow(Api::<KubeEvent>::all(client.clone()), Kind::Page, sight(), page));
        for (kind, name, plural) in
            [(Kind::Incident, "Incident", "incidents"), (Kind::Binding, "MachineBinding", "machinebindings")]
        {
            let gvk = GroupVersionKind::gvk("coroner.dev", "v1alpha1", name);
            let api = Api::<DynamicObject>::all_with(
                client.clone(),
                &ApiResource::from_gvk_with_plural(&gvk, plural),
            );
            tasks.spawn(follow_dynamic(api, kind, sight()));
        }
        Ok(Self { seen, _tasks: tasks })
    }

    /// How many lines there are by now: where a later look begins.
    #[must_use]
    pub fn position(&self) -> usize {
        self.seen.lines().len()
    }

    /// The lines from `position` on.
    #[must_use]
    pub fn since(&self, position: usize) -> Vec<Seen> {
        self.seen.lines().get(position..).unwrap_or_default().to_vec()
    }

    /// The newest line about each object of that kind that is still there; what changed last comes last.
    #[must_use]
    pub fn present(&self, kind: Kind) -> Vec<Seen> {
        let lines = self.seen.lines();
        let mut there: BTreeMap<&str, &Seen> = BTreeMap::new();
        for seen in lines.iter().filter(|seen| seen.kind == kind) {
            match seen.change {
                Change::Applied => there.insert(&seen.uid, seen),
                Change::Gone => there.remove(seen.uid.as_str()),
            };
        }
        let mut present: Vec<Seen> = there.into_values().cloned().collect();
        present.sort_by_key(|seen| seen.t);
        present
    }
}

// === impl Sight ===

impl Sight {
    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<Seen>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line that cannot be written is kept in memory at least; the oracles miss it and say so by what they miss.
    fn note(&self, kind: Kind, name: String, uid: String, change: Change, object: Value) {
        let seen = Seen { t: boottime_ns(), kind, name, uid, change, object };
        if let Ok(mut text) = serde_json::to_string(&seen) {
            text.push('\n');
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = file.write_all(text.as_bytes()) {
                tracing::warn!(%error, "append to api.jsonl");
            }
        }
        self.lines().push(seen);
    }
}

// === tasks ===

async fn look_at_clocks(mut file: File) {
    let mut tick = tokio::time::interval(CLOCK_EVERY);
    loop {
        tick.tick().await;
        let sample = Sample::now();
        if let Err(error) = writeln!(file, "{}", json!(sample)) {
            tracing::warn!(%error, "append to clock.jsonl");
        }
    }
}

async fn follow_dynamic(api: Api<DynamicObject>, kind: Kind, sight: Arc<Sight>) {
    follow(api, kind, sight, |object| {
        let mut kept = object.data.clone();
        kept["generation"] = json!(object.metadata.generation);
        kept
    })
    .await;
}

/// Follows all objects of one kind for ever; a watch that breaks begins anew.
async fn follow<K>(api: Api<K>, kind: Kind, sight: Arc<Sight>, kept: impl Fn(&K) -> Value)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let (mut known, mut listed): (BTreeMap<String, (String, Value)>, Vec<String>) = Default::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                listed.push(object.uid().unwrap_or_default());
                applied(&object, kind, &sight, &mut known, &kept);
            }
            Ok(watcher::Event::Apply(object)) => applied(&object, kind, &sight, &mut known, &kept),
            // What a new list does not name went away meanwhile.
            Ok(watcher::Event::InitDone) => {
                let gone: Vec<String> = known.keys().filter(|uid| !listed.contains(uid)).cloned().collect();
                for uid in gone {
                    if let Some((name, _)) = known.remove(&uid) {
                        sight.note(kind, name, uid, Change::Gone, Value::Null);
                    }
                }
            }
            Ok(watcher::Event::Delete(object)) => {
                let uid = object.uid().unwrap_or_default();
                known.remove(&uid);
                sight.note(kind, full_name(&object), uid, Change::Gone, Value::Null);
            }
            Err(error) => tracing::debug!(?kind, %error, "the watch broke"),
        }
    }
}

fn applied<K: kube::Resource>(
    object: &K,
    kind: Kind,
    sight: &Sight,
    known: &mut BTreeMap<String, (String, Value)>,
    kept: &impl Fn(&K) -> Value,
) {
    let (name, uid, value) = (full_name(object), object.uid().unwrap_or_default(), kept(object));
    // Nothing that is kept has changed, or nothing is kept of it.
    if value.is_null() || known.get(&uid).is_some_and(|(_, last)| *last == value) {
        return;
    }
    known.insert(uid.clone(), (name.clone(), value.clone()));
    sight.note(kind, name, uid, Change::Applied, value);
}

fn full_name(object: &impl kube::Resource) -> String {
    let name = object.meta().name.clone().unwrap_or_default();
    match &object.meta().namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    }
}

/// What is kept of a kube event: of Coroner's only, and null of all others.
fn page(event: &KubeEvent) -> Value {
    if event.reporting_component.as_deref() != Some("coroner-arbiter") {
        return Value::Null;
    }
    json!({ "node": event.involved_object.name, "reason": event.reason, "message": event.message })
}
