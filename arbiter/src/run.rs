//! Wires one replica: every task is named and awaited; if one ends, the process ends and says which.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::facts::{Refused, Shown as Facts};
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::{apply, jobs};
use coroner_arbiter_replica::{Bootstrap, ReplicaConfig, Role};
use coroner_shared::api::SOCKET;
use coroner_shared::names::{PORT_PEOPLE, PORT_REPLICA, PORT_REPORT};
use coroner_shared::time::Span;
use kube::Client;
use tokio::net::{TcpListener, UdpSocket, UnixListener};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::args::Args;
use crate::birth::{self, BirthError, Identity};
use crate::bmc_open::{Opener, Specs};
use crate::bmc_pool::BmcPool;
use crate::datagrams::{self, Datagrams};
use crate::executor::{self, Tools};
use crate::hearing::{self, Hearing};
use crate::ingress::{self, Ingress};
use crate::k8s::auth::Reviewer;
use crate::k8s::convert;
use crate::k8s::publish::Publisher;
use crate::k8s::release::Writer;
use crate::k8s::watch::{self as k8s_watch, Watched};
use crate::people::{self, People};
use crate::propose::Proposer;
use crate::replica::{self, ReplicaHandle, Running};
use crate::shown::Shown;
use crate::telemetry::Telemetry;
use crate::{begun, clock, pki, serve, transport};

/// Commands proposed at once when much of what Kubernetes shows is new to the log.
const FACTS_AT_ONCE: usize = 64;

/// Folder of the log within the state.
const LOG: &str = "log";

/// The tasks of the process, by name.
type Tasks = JoinSet<&'static str>;

/// Runs until a task ends or the process is told to stop.
///
/// # Errors
/// A part cannot start, or has failed.
pub async fn run(args: Args) -> anyhow::Result<String> {
    let client = kube_client(&args).await?;
    let identity = identity(&args, &client).await?;
    tracing::info!(replica = %identity.id, cluster = %identity.founders.cluster, address = %args.address, "this replica starts");
    let peers: BTreeMap<_, _> = identity.founders.members.iter().map(|m| (m.id, m.address)).collect();
    let bootstrap = Bootstrap { members: peers.keys().copied().collect(), state: State::default() };
    let config = ReplicaConfig::new(identity.id);
    let running = replica::start_on(args.store, config, &args.state.join(LOG), &bootstrap)?;
    let Running { handle, messages, ended } = running;
    let mut tasks = Tasks::new();
    let http = transport::client(pki::client(&identity.ca, &identity.certificate)?)?;
    tasks.spawn(named("transport", transport::run(handle.clone(), http.clone(), peers.clone(), messages)));
    let proposer = Proposer::new(handle.clone(), http, peers, &format!("{:x}", clock::now().as_ms()));

    let watched = k8s_watch::start(&client, &mut tasks);
    let opener = Opener::new(client.clone(), &args.namespace, specs(&watched, &mut tasks));
    let bmcs = BmcPool::new(handle.clone(), opener);
    tasks.spawn(named("BMC pool", bmcs.clone().run()));
    let telemetry = Arc::new(Telemetry::new());
    let hearing = hear(&args, &identity, &proposer, &bmcs, &watched, &telemetry, &mut tasks).await?;
    let shown = Arc::new(Shown::new(
        identity.founders.cluster,
        args.node_name.clone(),
        handle.clone(),
        hearing.clone(),
        bmcs.clone(),
    ));
    let reviewer = Reviewer::new(client.clone(), &args.namespace, &args.agent_service_account);
    listen(&args, &identity, &proposer, &hearing, &reviewer, shown, &telemetry, &mut tasks).await?;
    tasks.spawn(named("facts", facts(proposer.clone(), watched)));
    tasks.spawn(named("own record and ticks", keep_time(proposer.clone(), identity, args.clone())));
    let writer = Writer::new(&client);
    let publisher = Publisher::new(client);
    tasks.spawn(named("pruning", prune(proposer.clone(), publisher.clone())));
    let (made_again, told) = (executor::Kept::default(), executor::Kept::default());
    let tools = Tools { proposer, bmcs, hearing, writer, publisher, telemetry, made_again, told };
    tasks.spawn(named("executor", executor::run(tools)));
    wait(tasks, ended).await
}

async fn named(name: &'static str, work: impl Future<Output = ()>) -> &'static str {
    work.await;
    name
}

/// Waits for the first end of anything.
async fn wait(
    mut tasks: Tasks,
    ended: tokio::sync::oneshot::Receiver<Result<(), coroner_arbiter_replica::Fatal>>,
) -> anyhow::Result<String> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = ended => match ended {
            Ok(Ok(())) => anyhow::bail!("the replica's thread ended"),
            Ok(Err(fatal)) => Err(fatal.into()),
            Err(_) => anyhow::bail!("the replica's thread panicked; its log says where"),
        },
        task = tasks.join_next() => match task {
            Some(Ok(name)) => anyhow::bail!("task {name} ended"),
            Some(Err(error)) => Err(error).context("a task panicked"),
            None => anyhow::bail!("no task is left"),
        },
        _ = terminate.recv() => Ok("told to stop".to_owned()),
        _ = interrupt.recv() => Ok("interrupted".to_owned()),
    }
}

async fn kube_client(args: &Args) -> anyhow::Result<Client> {
    let mut config = kube::Config::infer()
        .await
        .context("no way to the API server: neither a pod's token nor a kubeconfig")?;
    if let Some(url) = &args.api_server {
        config.cluster_url = url.parse().with_context(|| format!("--api-server {url}"))?;
    }
    // A stalled API server must not stall us; watches renew themselves within a minute.
    config.connect_timeout = Some(Duration::from_secs(3));
    config.read_timeout = Some(Duration::from_secs(70));
    Client::try_from(config).context("cannot make a client of the API server")
}

/// From the disk, or born now; says what it waits for and since when.
async fn identity(args: &Args, client: &Client) -> anyhow::Result<Identity> {
    let begun = begun::is_begun(&args.state.join(LOG));
    let began = clock::now();
    let mut said: Option<String> = None;
    loop {
        match birth::identity(client, &args.namespace, &args.node_name, &args.state, begun).await {
            Ok(identity) => return Ok(identity),
            Err(error @ (BirthError::NoSecret | BirthError::Api(_))) => {
                let text = transport::chain(&error);
                if said.as_ref() != Some(&text) {
                    tracing::warn!(waiting_for = %clock::now().since(began), "{text}");
                    said = Some(text);
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The bindings' specs, by node.
fn specs(watched: &Watched, tasks: &mut Tasks) -> watch::Receiver<Arc<Specs>> {
    let (send, receive) = watch::channel(Arc::new(Specs::new()));
    let mut bindings = watched.bindings.clone();
    tasks.spawn(named("bindings", async move {
        loop {
            if let Some(listed) = bindings.borrow_and_update().clone() {
                let good = listed
                    .values()
                    .filter_map(|b| convert::binding(b).ok().map(|(node, ..)| (node, b.spec.clone())));
                send.send_replace(Arc::new(good.collect()));
            }
            if bindings.changed().await.is_err() {
                return;
            }
        }
    }));
    receive
}

/// UDP 7461 and the task that hears.
async fn hear(
    args: &Args,
    identity: &Identity,
    proposer: &Proposer,
    bmcs: &BmcPool,
    watched: &Watched,
    telemetry: &Arc<Telemetry>,
    tasks: &mut Tasks,
) -> anyhow::Result<Hearing> {
    let published = proposer.handle().watch();
    let (hearing, task) = hearing::new(published.clone(), watched.leases.clone());
    let (asks, asked) = mpsc::channel(1024);
    tasks.spawn(named(
        "hearing",
        task(hearing::Parts { proposer: proposer.clone(), bmcs: bmcs.clone(), asks }),
    ));
    let socket = UdpSocket::bind((args.address, PORT_REPORT)).await;
    let socket = Arc::new(socket.with_context(|| format!("cannot bind UDP {}:{PORT_REPORT}", args.address))?);
    let cluster = identity.founders.cluster;
    tasks.spawn(named(
        "probes",
        datagrams::ask(Arc::clone(&socket), identity.id, cluster, identity.key.clone(), asked),
    ));
    let datagrams = Datagrams {
        socket,
        id: identity.id,
        cluster,
        key: identity.key.clone(),
        published,
        hearing: hearing.clone(),
        telemetry: Arc::clone(telemetry),
    };
    tasks.spawn(async move {
        if let Err(error) = datagrams.receive().await {
            tracing::error!(%error, "UDP {PORT_REPORT} failed");
        }
        "datagrams"
    });
    Ok(hearing)
}

/// TCP 7462 and 7463, and the socket.
async fn listen(
    args: &Args,
    identity: &Identity,
    proposer: &Proposer,
    hearing: &Hearing,
    reviewer: &Reviewer,
    shown: Arc<Shown>,
    telemetry: &Arc<Telemetry>,
    tasks: &mut Tasks,
) -> anyhow::Result<()> {
    let tls = pki::server(&identity.ca, &identity.certificate)?;
    let ingress = Ingress {
        proposer: proposer.clone(),
        reviewer: reviewer.clone(),
        hearing: hearing.clone(),
        shown: Arc::clone(&shown),
        cluster: identity.founders.cluster,
        numbers: Arc::default(),
    };
    let people = People {
        proposer: proposer.clone(),
        shown,
        hearing: hearing.clone(),
        reviewer: reviewer.clone(),
        telemetry: Arc::clone(telemetry),
    };
    for (name, port, router) in [
        ("replicas' port", PORT_REPLICA, ingress::router(ingress)),
        ("people's port", PORT_PEOPLE, people::router(people.clone())),
    ] {
        let listener = TcpListener::bind((args.address, port)).await;
        let listener =
            listener.with_context(|| format!("cannot bind TCP {}:{port} ({name})", args.address))?;
        let tls = Arc::clone(&tls);
        tasks.spawn(async move {
            if let Err(error) = serve::tls(listener, tls, router).await {
                tracing::error!(%error, "{name} failed");
            }
            name
        });
    }
    let listener = local_socket(&args.state.join(SOCKET))?;
    let router = people::local_router(people);
    tasks.spawn(async move {
        if let Err(error) = serve::unix(listener, router).await {
            tracing::error!(%error, "the local socket failed");
        }
        "local socket"
    });
    Ok(())
}

/// Opened by root only.
fn local_socket(path: &Path) -> anyhow::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(e).with_context(|| format!("cannot remove the old {}", path.display())),
    }
    let listener = UnixListener::bind(path).with_context(|| format!("cannot bind {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot make {} root's alone", path.display()))?;
    Ok(listener)
}

/// While this replica leads: what Kubernetes shows and the log does not know becomes commands.
async fn facts(proposer: Proposer, watched: Watched) {
    let Watched { mut nodes, mut policies, mut bindings, leases: _ } = watched;
    let mut published = proposer.handle().watch();
    let mut complaints: BTreeMap<String, String> = BTreeMap::new();
    let mut refused = Refused::default();
    loop {
        let shown = Facts {
            nodes: nodes.borrow_and_update().as_deref().cloned(),
            policies: policies.borrow_and_update().as_ref().map(|all| {
                let read = all.iter().map(|(name, p)| match convert::policy(p) {
                    Ok(policy) => (name.clone(), policy),
                    Err(wrong) => {
                        complain(&mut complaints, "FencingPolicy", name, &wrong);
                        (name.clone(), convert::unusable(p, &wrong))
                    }
                });
                read.collect()
            }),
            bindings: bindings.borrow_and_update().as_ref().map(|all| {
                let read = all.iter().filter_map(|(name, b)| {
                    let (read, wrong) = match convert::binding(b) {
                        Ok((node, binding, wrong)) => (Some((node, binding)), wrong),
                        Err(wrong) => (None, wrong),
                    };
                    if !wrong.is_empty() {
                        complain(&mut complaints, "MachineBinding", name, &wrong);
                    }
                    read
                });
                read.collect()
            }),
        };
        let snapshot = published.borrow_and_update().clone();
        if snapshot.role == Role::Leader {
            for command in refused.differences(&snapshot.state, &shown, FACTS_AT_ONCE) {
                match proposer.here(command.clone()).await {
                    Ok(outcome) => refused.note(command, &outcome),
                    Err(_) => break,
                }
            }
        } else {
            refused.clear();
        }
        let changed = tokio::select! {
            changed = nodes.changed() => changed.is_ok(),
            changed = policies.changed() => changed.is_ok(),
            changed = bindings.changed() => changed.is_ok(),
            // Leadership, and what was left over from the last round.
            changed = published.changed() => changed.is_ok(),
        };
        if !changed {
            return;
        }
    }
}

/// While this replica leads: Incidents that the log has forgotten (after 30 days, or beyond 1,000) are deleted.
async fn prune(proposer: Proposer, publisher: Publisher) {
    let mut every = tokio::time::interval(Duration::from_secs(600));
    loop {
        every.tick().await;
        let published = proposer.published();
        // A young state may not hold yet what a restored or new group will: nothing is deleted in its first minutes.
        if published.role != Role::Leader || published.state.now.as_ms() < 600_000 {
            continue;
        }
        let state = published.state;
        let kept = |name: &str| state.incidents.keys().any(|id| id.as_str() == name);
        match publisher.prune(kept).await {
            Ok(0) => {}
            Ok(gone) => tracing::info!(gone, "old Incidents deleted"),
            Err(error) => {
                tracing::debug!(error = %transport::chain(&error), "old Incidents are not deleted; trying again in 10 minutes");
            }
        }
    }
}

/// A resource with a wrong value is not used; it is said once per value.
fn complain(said: &mut BTreeMap<String, String>, kind: &str, name: &str, wrong: &[convert::Wrong]) {
    let text = convert::all(wrong);
    if said.insert(format!("{kind}/{name}"), text.clone()).as_ref() != Some(&text) {
        tracing::warn!(kind, name, "not used: {text}");
    }
}

/// This replica's own record in the log, and the passing of time while anything in the state has a deadline.
async fn keep_time(proposer: Proposer, identity: Identity, args: Args) {
    let handle: ReplicaHandle = proposer.handle().clone();
    let mut every = tokio::time::interval(Duration::from_millis(250));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let published = handle.published();
        let own = published.state.replicas.get(&identity.id);
        let same = own.is_some_and(|r| {
            r.host == args.node_name
                && r.address == args.address
                && r.key == identity.key.public()
                && r.level == apply::LEVEL
        });
        if !same {
            let command = Command::ReplicaKnows {
                replica: identity.id,
                host: args.node_name.clone(),
                address: args.address,
                key: identity.key.public(),
                level: apply::LEVEL,
            };
            if proposer.anywhere(proposer.key(), command).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            continue;
        }
        if published.role == Role::Leader {
            let quiet: Span = clock::now().since(published.at);
            if jobs::tick_after(&published.state).is_some_and(|after| quiet >= after) {
                // A tick that is lost is followed by another.
                let _ = proposer.here(Command::Tick).await;
            }
        }
    }
}
