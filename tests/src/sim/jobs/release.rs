//! Performs release, watch and return. Mirrors `arbiter/src/executor/release.rs` and `arbiter/src/k8s/release.rs`.

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::fence::{Ended, Fence, FenceEvent, Identified, Over, Step};
use coroner_arbiter_core::identity;
use coroner_arbiter_core::jobs::{
    self, ExpediteJob, Job, Life, PowerOnJob, ReleaseJob, ReturnJob, ReturnStep, WatchReleasedJob,
    WriteReleaseJob,
};
use coroner_arbiter_core::last_read::{LastRead, LastReadVerdict, judge};
use coroner_arbiter_core::phase::{FenceProof, OffReadings, Released};
use coroner_arbiter_core::policy::{Pin, Quirk, ReleaseStrategy};
use coroner_arbiter_core::proof::ProofNeeds;
use coroner_shared::bmc::{CommandAnswer, Login, Power, PowerReading};
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::time::{Mono, Span};

use super::fence::{look, open_session};
use super::writes::{NodeWrite, Written};
use crate::sim::bmc::Op;
use crate::sim::driver::{Driver, Failed};
use crate::sim::pool::{fleet, node_side};
use crate::sim::world::Shared;

const READ: Span = Span::from_secs(20);
const CONFIRMED: Span = Span::from_secs(3);
/// How long a release waits, once, for a leader that has only just been elected.
const SETTLES: Span = Span::from_secs(30);
const LOOK: Span = Span::from_ms(500);
const POWER: Span = Span::from_secs(30);
const CONFLICTS_MAX: u32 = 10;

pub(super) async fn release(shared: &Shared, index: usize, job: &Job, release: &ReleaseJob) {
    let life = &release.life;
    if !shared.settles(index, SETTLES).await {
        return;
    }
    let (verdict, again) = last_read(shared, index, job, release).await;
    let before = match &release.kept {
        Some(kept) => kept.clone(),
        None => match shared.read_node(index, life).await {
            Some((_, before)) => before,
            None => return shared.reactor.sleep(LOOK).await,
        },
    };
    let (node, incident) = (life.node.clone(), life.incident.clone());
    let command = match verdict {
        LastReadVerdict::Good => Command::ReleaseBegun { node, incident, before, again },
        LastReadVerdict::On => Command::LastReadOn { node, incident },
        LastReadVerdict::Redo(why) | LastReadVerdict::Failed(why) => {
            Command::LastReadFailed { node, incident, why }
        }
    };
    if !matches!(shared.commit(index, command).await, Ok(Outcome::Done)) {
        shared.reactor.sleep(LOOK).await;
    }
}

pub(super) async fn write(shared: &Shared, index: usize, job: &Job, write: &WriteReleaseJob) {
    let life = &write.life;
    let Some(release) = as_release(shared, index, write) else { return };
    if !shared.settles(index, SETTLES).await {
        return;
    }
    for _ in 0..CONFLICTS_MAX {
        let Some((node, _)) = shared.read_node(index, life).await else {
            return shared.reactor.sleep(LOOK).await;
        };
        let (verdict, _) = last_read(shared, index, job, &release).await;
        if verdict != LastReadVerdict::Good {
            return shared.reactor.sleep(LOOK).await;
        }
        if node.boot != Some(life.incarnation.boot) || !shared.still_wanted(index, job).await {
            return shared.reactor.sleep(LOOK).await;
        }
        let wrote = shared.write_node(index, life, node.version, NodeWrite::Taint).await;
        match wrote {
            Written::Done => {
                let command = Command::TaintSeen { node: life.node.clone(), incident: life.incident.clone() };
                if shared.commit(index, command).await.is_err() {
                    shared.reactor.sleep(LOOK).await;
                }
                return;
            }
            Written::Conflict => {}
            Written::Failed => return shared.reactor.sleep(LOOK).await,
        }
    }
}

pub(super) async fn expedite(shared: &Shared, index: usize, expedite: &ExpediteJob) {
    let life = &expedite.life;
    loop {
        if let Some((node, _)) = shared.read_node(index, life).await {
            if node.boot != Some(life.incarnation.boot) {
                // Its pods are no longer those of a dead machine.
                shared.reactor.sleep(Span::from_secs(1)).await;
                continue;
            }
            // Tried again at the next look.
            let _ = shared.write_node(index, life, node.version, NodeWrite::NotReady).await;
        }
        if expedite.strategy == ReleaseStrategy::Expedite {
            let recorded: Vec<String> = expedite.released.pods.iter().map(|(uid, _)| uid.clone()).collect();
            let node = life.node.clone();
            // Tried again at the next look.
            let _ = shared
                .api(index, move |world| {
                    world.api.delete_pods(|uid, pod| pod.node == node && recorded.contains(&uid.to_string()));
                })
                .await;
        }
        shared.reactor.sleep(Span::from_secs(1)).await;
    }
}

pub(super) async fn watch(shared: &Shared, index: usize, watch: &WatchReleasedJob) {
    let life = &watch.life;
    let mut power: Option<Power> = None;
    let mut read_at: Option<Mono> = None;
    loop {
        if let Some(leftovers) = &watch.leftovers {
            look_for_leftovers(shared, index, life, leftovers).await;
        }
        let now = shared.host_now(index);
        if watch.power && read_at.is_none_or(|at| now.since(at) >= POWER) {
            read_at = Some(now);
            if let Ok(reading) = read_power(shared, index, life, None).await
                && matches!(reading.power, Power::On | Power::Off)
                && power.as_ref() != Some(&reading.power)
            {
                let on = reading.power == Power::On;
                let (node, incident) = (life.node.clone(), life.incident.clone());
                let command = Command::PowerAfterRelease { node, incident, on };
                if shared.commit(index, command).await.is_ok() {
                    power = Some(reading.power);
                }
            }
        }
        shared.reactor.sleep(LOOK).await;
    }
}

async fn look_for_leftovers(shared: &Shared, index: usize, life: &Life, leftovers: &Released) {
    let Some((_, now)) = shared.read_node(index, life).await else { return };
    let left = |recorded: &[(String, String)], there: &[(String, String)]| {
        recorded.iter().any(|(uid, _)| there.iter().any(|(other, _)| uid == other))
    };
    if !left(&leftovers.pods, &now.pods) && !left(&leftovers.attachments, &now.attachments) {
        let command = Command::LeftoversGone { node: life.node.clone(), incident: life.incident.clone() };
        // Not committed: asked again at the next look.
        let _ = shared.commit(index, command).await;
    }
}

pub(super) async fn power_on(shared: &Shared, index: usize, on: &PowerOnJob) {
    let node = on.life.node.clone();
    let Ok(mut driver) = shared.open(index, &node) else {
        return shared.reactor.sleep(Span::from_secs(5)).await;
    };
    let Ok(facts) = driver.identify(shared).await else {
        return shared.reactor.sleep(Span::from_secs(5)).await;
    };
    let Some(published) = shared.published(index) else { return };
    let state = published.state;
    let verdict = identity::check(&on.pin, &node_side(&state, &node), &facts, &fleet(&state));
    if !verdict.is_match() {
        return shared.reactor.sleep(Span::from_secs(30)).await;
    }
    if driver.power_state(shared).await.is_err() {
        return shared.reactor.sleep(Span::from_secs(5)).await;
    }
    // The commit takes this job away: what follows is a task of its own.
    shared.send_power_on(index, driver, node, on.life.incident.clone());
    shared.reactor.sleep(Span::from_secs(12)).await;
}

impl Shared {
    fn send_power_on(&self, index: usize, mut driver: Driver, node: NodeName, incident: IncidentId) {
        let mut world = self.world.borrow_mut();
        let Some(group) = world.replicas[index].process.as_ref().map(|p| p.group) else { return };
        let host = world.site.replicas[index];
        world.spawn(host, group, move |shared| {
            Box::pin(async move {
                let command = Command::PowerOn { node, incident };
                if matches!(shared.commit(index, command).await, Ok(Outcome::Done)) {
                    // Not sent: a person may do it.
                    let _ = driver.command(&shared, Op::On, &|| true, Span::from_secs(10)).await;
                }
                driver.close(&shared).await;
            })
        });
    }
}

pub(super) async fn give_back(shared: &Shared, index: usize, job: &Job, back: &ReturnJob) {
    // A leader that was asleep must not take away what a later release wrote.
    if !shared.still_wanted(index, job).await {
        return shared.reactor.sleep(LOOK).await;
    }
    let life = &back.life;
    let (node, incident) = (life.node.clone(), life.incident.clone());
    let Some((found, _)) = shared.read_node(index, life).await else {
        return shared.reactor.sleep(Span::from_secs(1)).await;
    };
    let written = match back.step {
        ReturnStep::RemoveTaint { keep_taint, orphaned } => {
            let write = NodeWrite::Untaint { keep_taint, orphaned };
            shared.write_node(index, life, found.version, write).await
        }
        ReturnStep::Finish { uncordon: true } => {
            shared.write_node(index, life, found.version, NodeWrite::Uncordon).await
        }
        ReturnStep::Finish { uncordon: false } => Written::Done,
    };
    let command = match (written, &back.step) {
        (Written::Done, ReturnStep::RemoveTaint { .. }) => Command::TaintRemoved { node, incident },
        (Written::Done, ReturnStep::Finish { .. }) => Command::Returned { node, incident },
        (Written::Conflict, _) => return shared.reactor.sleep(Span::from_ms(100)).await,
        (Written::Failed, _) => return shared.reactor.sleep(Span::from_secs(1)).await,
    };
    if shared.commit(index, command).await.is_err() {
        shared.reactor.sleep(LOOK).await;
    }
}

// === the last read ===

fn as_release(shared: &Shared, index: usize, write: &WriteReleaseJob) -> Option<ReleaseJob> {
    let state = shared.published(index)?.state;
    let binding = state.bindings.get(&write.life.node);
    Some(ReleaseJob {
        life: write.life.clone(),
        proof: write.proof.clone(),
        kept: Some(write.released.clone()),
        pin: binding.and_then(|b| b.pin.clone()),
        cached: binding.is_some_and(|b| b.quirks.contains(&Quirk::Cached)),
    })
}

async fn last_read(
    shared: &Shared,
    index: usize,
    job: &Job,
    release: &ReleaseJob,
) -> (LastReadVerdict, Option<Box<OffReadings>>) {
    let first = one_last_read(shared, index, release, None).await;
    let LastReadVerdict::Redo(_) = &first else { return (first, None) };
    shared.world.borrow_mut().coverage.reach("last read: the readings are made again");
    match read_again(shared, index, job, release).await {
        Ok((readings, at)) => {
            (one_last_read(shared, index, release, Some((&readings, at))).await, Some(Box::new(readings)))
        }
        Err(verdict) => (verdict, None),
    }
}

async fn one_last_read(
    shared: &Shared,
    index: usize,
    release: &ReleaseJob,
    again: Option<(&OffReadings, Mono)>,
) -> LastReadVerdict {
    let ReleaseJob { life, proof, kept: _, pin, cached } = release;
    let (pin, cached) = (pin.as_ref(), *cached);
    let asked = shared.host_now(index);
    let reading = match pin {
        Some(_) => {
            let limit = if matches!(proof, FenceProof::PersonConfirmed { .. }) { CONFIRMED } else { READ };
            let read = shared.reactor.within(limit, read_power(shared, index, life, pin)).await;
            read.unwrap_or_else(|| Err("the BMC gave no answer in time".to_owned()))
        }
        None => Err("the node has no binding".to_owned()),
    };
    let now = shared.host_now(index);
    let Some(published) = shared.published(index) else {
        return LastReadVerdict::Failed("this replica ends".to_owned());
    };
    let proven_ago = published.state.now.since(proof.at()) + now.since(published.at);
    let since = |at: Mono| now.since(at) < proven_ago;
    let needs = pin.map(|pin| ProofNeeds { pin, machine: life.incarnation.machine, cached, answer: None });
    let steady = shared.entry(index, &life.node).and_then(|e| e.with_track(|t| t.steady(now)));
    let signs = shared.world.borrow().signs(index, &life.node);
    judge(&LastRead {
        proof,
        again: again.map(|(readings, _)| readings),
        age: again.map_or(proven_ago, |(_, at)| now.since(at)),
        needs,
        steady: steady.unwrap_or(false),
        reading: reading.as_ref().map_err(String::as_str),
        reading_age: now.since(asked),
        heard: signs.heard.is_some_and(since),
        lease_moved: signs.lease_moved.is_some_and(since),
    })
}

/// One reading over the warm session.
async fn read_power(
    shared: &Shared,
    index: usize,
    life: &Life,
    pin: Option<&Pin>,
) -> Result<PowerReading, String> {
    let node = &life.node;
    let state = shared.published(index).ok_or("this replica ends")?.state;
    let pin = pin
        .or_else(|| state.bindings.get(node).and_then(|b| b.pin.as_ref()))
        .ok_or("the binding is not verified")?;
    let entry = shared.entry(index, node).ok_or("the node has no binding")?;
    let _held = entry.lock.hold().await;
    let mut driver = entry.take_driver(index);
    let result: Result<PowerReading, Failed> = async {
        if driver.login().is_none() {
            let facts = driver.identify(shared).await?;
            let verdict = identity::check(pin, &node_side(&state, node), &facts, &fleet(&state));
            entry.identified(&verdict, shared.host_now(index));
            if !verdict.is_match() {
                return Err(Failed { why: verdict.to_string(), no_answer: false });
            }
        }
        driver.power_state(shared).await
    }
    .await;
    entry.put_driver(driver);
    let now = shared.host_now(index);
    match result {
        Ok(reading) => {
            entry.note_power(&reading, now);
            Ok(reading)
        }
        Err(failed) => {
            entry.note_failure(&failed, Span::ZERO, now);
            Err(failed.why)
        }
    }
}

/// Drives a fence that only reads.
async fn read_again(
    shared: &Shared,
    index: usize,
    job: &Job,
    release: &ReleaseJob,
) -> Result<(OffReadings, Mono), LastReadVerdict> {
    let node = release.life.node.clone();
    let failed = |why: &str| LastReadVerdict::Failed(why.to_owned());
    let state = shared.published(index).ok_or_else(|| failed("this replica ends"))?.state;
    let entry = shared.entry(index, &node).ok_or_else(|| failed("the node has no binding"))?;
    let order = jobs::again_order(&state, release, entry.known(shared.host_now(index)))
        .ok_or_else(|| failed("the binding is not verified"))?;
    let mut fence = Fence::new(order);
    let mut first = shared.open(index, &node).map_err(|why| failed(&why))?;
    let mut second = None;
    let mut step = fence.next(shared.host_now(index), FenceEvent::Start);
    let readings = loop {
        let event = match step {
            Step::LastLook => FenceEvent::Looked(look(shared, index, job, &node).await),
            Step::Identify(over) => {
                let driver = if over == Over::First { Some(&mut first) } else { second.as_mut() };
                let Some(driver) = driver else { break Err(failed("the second session is not open")) };
                let facts = driver.identify(shared).await.map_err(|e| e.why);
                let login = driver.login().unwrap_or(Login::Basic);
                FenceEvent::Identity(facts.map(|facts| Identified { facts, login }))
            }
            Step::ReadPower(over) => {
                let driver = if over == Over::First { Some(&mut first) } else { second.as_mut() };
                let Some(driver) = driver else { break Err(failed("the second session is not open")) };
                let reading = driver.power_state(shared).await.map_err(|e| e.why);
                let login = driver.login().unwrap_or(Login::Basic);
                FenceEvent::Power(reading.map(|reading| (reading, login)))
            }
            Step::NewSession => {
                let opened = open_session(shared, index, &node).await;
                FenceEvent::Opened(opened.map(|driver| second = Some(driver)))
            }
            Step::Wait { until } => {
                let left = until.since(shared.host_now(index));
                shared.reactor.sleep(left).await;
                FenceEvent::Woke
            }
            Step::DeleteSession { .. } => FenceEvent::Deleted,
            Step::Commit(_) => FenceEvent::Committed(Err("only reading".to_owned())),
            Step::SendForceOff { .. } => {
                FenceEvent::Answered(CommandAnswer::Refused { why: "only reading".to_owned() })
            }
            Step::Ended(Ended::OffAgain { readings }) => break Ok((*readings, shared.host_now(index))),
            Step::Ended(Ended::OnAgain) => break Err(LastReadVerdict::On),
            Step::Ended(Ended::Proven) => break Err(failed("it ended as a proof")),
            Step::Ended(Ended::Closed { why }) => break Err(failed(&why)),
        };
        step = fence.next(shared.host_now(index), event);
    };
    for mut driver in [Some(first), second].into_iter().flatten() {
        driver.close(shared).await;
    }
    readings
}
