//! Machines that live and look dead to somebody. None of them may be fenced, whatever is missing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Told, returns::Return, story::Story};
use crate::{
    lab::{
        Cut, Target,
        emulator::control::Command,
        site::{Site, tell::Look},
        truth,
    },
    oracles::watched::Kind,
};

/// Well past the deadline of a silent host (8 s, and a missed renewal of its Lease).
const LONG_ENOUGH: Duration = Duration::from_secs(40);

/// Without a network configuration containerd says so, and the kubelet says Ready=False at its next report. The agent
/// is stopped again whenever the kubelet has started it anew.
const HURT: &str = "mkdir /etc/cni/away && mv /etc/cni/net.d/* /etc/cni/away/ && \
    { setsid sh -c 'while :; do kill -STOP $(pidof coroner-agent); sleep 0.1; done' > /dev/null 2>&1 & echo $! > /run/hurt; }";
/// And back. containerd heeds files that are written, not files that are moved there.
const HEAL: &str = "kill $(cat /run/hurt); cat /etc/cni/away/* > /etc/cni/net.d/10-pods.conflist; rm -r /etc/cni/away; \
    kill -CONT $(pidof coroner-agent) || true";

/// Only one observer still hears the node; the API server does not hear its kubelet either.
///
/// # Errors
/// What did not go as it should.
pub async fn one_observer_hears(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let hears = other_worker(site, &victim)?;
    let back = Return::of(site, &victim).await?.same_life();
    let mut story = Story::begin(site, &victim).await?;
    story
        .harm(
            &format!("it is cut off from everybody but {hears}, and from the API server"),
            async |site, victim| {
                for machine in &site.plan().machines {
                    if machine.name != victim && machine.name != hears {
                        let (machine, peer) = (victim.to_owned(), machine.name.clone());
                        site.power.cut(Cut::new(Target::Pair { machine, peer })).await?;
                    }
                }
                site.power.cut(Cut::new(Target::Api { machine: Some(victim.to_owned()) })).await
            },
        )
        .await?;
    let untouched = untouched_for(&mut story, LONG_ENOUGH).await;
    let explained = site.people.explain(&victim).await;
    site.power.heal(None).await?;
    untouched?;
    let explained = explained?;
    explained.sentences.iter().for_each(|sentence| site.tell.note(sentence));
    let why = format!("{victim} was left alone: findings {}", explained.summary.findings.join(", "));
    Ok(Told { why, returns: vec![back], ..Told::default() })
}

/// Every worker's traffic to all replicas' hosts is lost, at once: it is the arbiter that is blind.
///
/// # Errors
/// What did not go as it should.
pub async fn fleet_silence(site: &Site) -> Result<Told> {
    let workers: Vec<String> = workers(site);
    let replicas = site.config().replicas.clone();
    let mut returns = Vec::new();
    let mut stories = Vec::new();
    for worker in &workers {
        returns.push(Return::of(site, worker).await?.same_life());
        stories.push(Story::begin(site, worker).await?);
    }
    site.tell.line(&format!(
        "  {} are cut off from the replicas' hosts {}",
        workers.join(", "),
        replicas.join(", ")
    ));
    for worker in &workers {
        for replica in &replicas {
            let (machine, peer) = (worker.clone(), replica.clone());
            site.power.cut(Cut::new(Target::Pair { machine, peer })).await?;
        }
        site.power.cut(Cut::new(Target::Api { machine: Some(worker.clone()) })).await?;
    }
    let end = truth::now_ns()? + 40_000_000_000;
    let mut untouched = Ok(());
    while untouched.is_ok() && truth::now_ns()? < end {
        for story in &mut stories {
            story.hear();
            untouched =
                untouched.and_then(|()| left_alone(story).map_or(Ok(()), |what| Err(anyhow::anyhow!(what))));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let status = site.people.status().await;
    site.power.heal(None).await?;
    untouched?;
    let status = status?;
    let stands: Vec<String> = stories.iter().map(Story::stands).collect();
    ensure!(
        !status.attention.is_empty() || !status.problems.is_empty(),
        "half the fleet cannot be heard, and the status says that all is well: {}",
        status.verdict
    );
    let why = format!("nobody was fenced; status: {}; incidents: {}", status.verdict, stands.join(", "));
    Ok(Told { why, returns, ..Told::default() })
}

/// A rack of two is cut off from the others: both are On, both are silent, and one of them hosts a replica.
///
/// # Errors
/// What did not go as it should.
pub async fn rack_cut(site: &Site) -> Result<Told> {
    let leader = site.people.leader().await?.context("a leader")?.host.to_string();
    let rack = site.plan().machines.iter().rev().find(|m| m.name == leader).map(|m| m.rack.clone());
    let rack =
        site.plan().racks.iter().rev().find(|name| Some(*name) != rack.as_ref()).context("another rack")?;
    let inside: Vec<String> =
        site.plan().machines.iter().filter(|m| m.rack == *rack).map(|m| m.name.clone()).collect();
    let mut returns = Vec::new();
    let mut stories = Vec::new();
    for name in &inside {
        returns.push(Return::of(site, name).await?.same_life());
        stories.push(Story::begin(site, name).await?);
    }
    site.tell.line(&format!("  rack {rack} ({}) is cut off from the others", inside.join(", ")));
    site.power.cut(Cut::new(Target::Rack { rack: rack.clone() })).await?;
    let held = site
        .tell
        .until("both to be held by name", Duration::from_secs(60), async || {
            let mut stands = Vec::new();
            for story in &mut stories {
                story.hear();
                if let Some(what) = left_alone(story) {
                    return Ok(Look::There(Err(what)));
                }
                stands.push(story.stands());
            }
            let held = stands.iter().all(|stands| stands.starts_with("Held"));
            Ok(if held { Look::There(Ok(stands.join(", "))) } else { Look::Missing(stands.join(", ")) })
        })
        .await;
    let mut untouched = Ok(());
    for story in &mut stories {
        untouched = untouched.and(untouched_for(story, Duration::from_secs(20)).await);
    }
    site.power.heal(None).await?;
    let held = held?.map_err(anyhow::Error::msg)?;
    untouched?;
    Ok(Told { why: format!("both are held: {held}"), returns, ..Told::default() })
}

/// The pod network is broken and the agent hangs: the kubelet says Ready=False, and renews its Lease.
///
/// # Errors
/// What did not go as it should.
pub async fn not_ready_with_lease(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?.same_life();
    let mut story = Story::begin(site, &victim).await?;
    let shell = |script: &str| ["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    site.tell.line(&format!(
        "  {victim}: its pod network is broken, and its agent hangs, however often it is started"
    ));
    let done = site.power.exec(&victim, shell(HURT)).await?;
    ensure!(done.code == 0, "{HURT}: {}", done.stderr);
    let seen = async {
        story
            .until("its kubelet to say Ready=False", Duration::from_secs(60), |_| {
                let seen = site.watch.present(Kind::Node).into_iter().find(|seen| seen.name == victim)?;
                (seen.node()?.ready == "False").then_some(())
            })
            .await?;
        untouched_for(&mut story, LONG_ENOUGH).await
    }
    .await;
    let node = site.people.node(&victim).await;
    let done = site.power.exec(&victim, shell(HEAL)).await?;
    ensure!(done.code == 0, "{HEAL}: {}", done.stderr);
    seen?;
    let node = node?;
    let silent = node.heard_ago.is_none_or(|ago| ago.as_ms() > 10_000);
    ensure!(silent, "it was not silent: heard {:?} ago", node.heard_ago);
    let why = format!(
        "{victim} was left alone: {} {}, findings {}",
        node.phase,
        node.reason.unwrap_or_default(),
        node.findings.join(", ")
    );
    Ok(Told { why, returns: vec![back], ..Told::default() })
}

/// The host is cut off and lives; its BMC restarts at that moment and says Off for a while, which is not true.
///
/// # Errors
/// What did not go as it should.
pub async fn bmc_restart_says_off(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?.same_life();
    let mut story = Story::begin(site, &victim).await?;
    let link = Target::Link { machine: victim.clone() };
    story
        .harm(
            "its BMC restarts, and says Off for 25 s; its cable is cut, and it lives",
            async |site, victim| {
                let restart =
                    Command::Restart { bmc: victim.to_owned(), down_ms: 2_000, says_off_ms: 25_000 };
                site.bmcs.control.command(&restart).await?;
                site.power.cut(Cut::new(link.clone())).await
            },
        )
        .await?;
    let begin = story.death.silent;
    let untouched = untouched_for(&mut story, Duration::from_secs(24)).await;
    site.power.heal(Some(link)).await?;
    untouched?;
    let mut ledger = site.record().await?.ledger;
    ledger.retain(|entry| entry.bmc == victim && entry.t >= begin);
    let lies = ledger.iter().filter(|entry| entry.shown.as_ref().is_some_and(|shown| shown == "Off")).count();
    ensure!(lies >= 2, "Off was read {lies} times; nothing is shown");
    let sent = ledger.iter().find(|entry| entry.path.contains("ComputerSystem.Reset"));
    ensure!(sent.is_none(), "a power command was sent to a machine that lives: {sent:?}");
    Ok(Told {
        why: format!("{victim} lived, and no word of its BMC was taken for it"),
        returns: vec![back],
        ..Told::default()
    })
}

// === helpers ===

async fn untouched_for(story: &mut Story<'_>, span: Duration) -> Result<()> {
    story.nothing_for(span, left_alone).await
}

/// What was done to it, if anything was.
fn left_alone(story: &Story<'_>) -> Option<String> {
    let name = &story.death.machine;
    if story.tainted() {
        return Some(format!("{name} was tainted"));
    }
    let steps = ["Attempt", "Proven", "ReleaseBegun"];
    steps
        .iter()
        .find(|step| story.has(step))
        .map(|step| format!("{name} lives, and its incident says {step}"))
}

fn workers(site: &Site) -> Vec<String> {
    let names = site.plan().machines.iter().map(|machine| machine.name.clone());
    names.filter(|name| !site.hosts_replica(name)).collect()
}

/// A machine without a replica other than that one, in another rack.
fn other_worker(site: &Site, than: &str) -> Result<String> {
    let rack = &site.plan().machine(than)?.rack;
    let machines = &site.plan().machines;
    let other = machines.iter().find(|m| m.rack != *rack && !site.hosts_replica(&m.name));
    Ok(other.context("a second machine without a replica")?.name.clone())
}
