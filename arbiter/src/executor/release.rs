//! Performs release, watch and return: the last read, the patch, the deletions, the way back. Every function does one
//! job until its command is committed, or until the job is no longer asked for.

use std::time::Duration;

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::identity;
use coroner_arbiter_core::jobs::{
    self, ExpediteJob, Job, Life, PowerOnJob, ReleaseJob, ReturnJob, ReturnStep, WatchReleasedJob,
    WriteReleaseJob,
};
use coroner_arbiter_core::last_read::{self, AtHand, LastRead, LastReadVerdict, judge};
use coroner_arbiter_core::phase::{OffReadings, Released};
use coroner_arbiter_core::policy::{Pin, ReleaseStrategy};
use coroner_shared::bmc::{Power, PowerReading};
use coroner_shared::time::{Mono, Span};

use super::Tools;
use super::fence::{self, signs};
use crate::bmc_pool::{fleet, node_side};
use crate::clock;
use crate::k8s::release::{Subject, WriteError};
use crate::shown::log_age;

/// How long a release waits, once, for a leader that has only just been elected to hear who is heard.
const SETTLES: Duration = Duration::from_secs(30);
/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(500);
/// Between two readings of a released machine's power.
const POWER: Span = Span::from_secs(30);
/// A patch refused because somebody changed the Node is tried so often before the job begins anew.
const CONFLICTS_MAX: u32 = 10;

/// The last read, then `ReleaseBegun`.
pub(super) async fn release(tools: &Tools, job: &Job, release: &ReleaseJob) {
    let life = &release.life;
    if !tools.hearing.settles(SETTLES).await {
        return;
    }
    let (verdict, again) = make_last_read(tools, job, release).await;
    // After the last read, which may take a minute: who cordons the node meanwhile, as people do with a dead one, must
    // find it cordoned after its return.
    let before = match &release.kept {
        // A re-fence: what the Node was like before us is known from the first time.
        Some(kept) => kept.clone(),
        None => match tools.writer.read(&subject(life)).await {
            Ok(found) => found.before,
            Err(error) => return complain(tools, life, &error).await,
        },
    };
    let outcome = tools.commit(last_read::command(verdict, life, before, again)).await;
    if !matches!(outcome, Ok(Outcome::Done)) {
        tokio::time::sleep(LOOK).await;
    }
}

/// The patch. The last read is made again first: between its commit and this patch a leader may have changed.
pub(super) async fn write(tools: &Tools, job: &Job, write: &WriteReleaseJob) {
    let life = &write.life;
    let subject = subject(life);
    let digest = digest(tools, life);
    let release = jobs::read_before_patch(&tools.proposer.published().state, write);
    if !tools.hearing.settles(SETTLES).await {
        return;
    }
    for _ in 0..CONFLICTS_MAX {
        let node = match tools.writer.node(&subject).await {
            Ok(node) => node,
            Err(error) => return complain(tools, life, &error).await,
        };
        let (verdict, _) = make_last_read(tools, job, &release).await;
        if verdict != LastReadVerdict::Good {
            tracing::warn!(node = %life.node, ?verdict, "the taint is not written: the last read does not permit it");
            return tokio::time::sleep(LOOK).await;
        }
        // The last look: whoever leads by now may have heard the node again.
        if !tools.still_wanted(job).await {
            tracing::warn!(node = %life.node, "the taint is not written: the last look does not permit it");
            return tokio::time::sleep(LOOK).await;
        }
        match tools.writer.taint(&subject, &node, life.incarnation.boot, &digest).await {
            Ok(()) => {
                tracing::info!(node = %life.node, incident = %life.incident, "out-of-service taint written");
                let command = Command::TaintSeen { node: life.node.clone(), incident: life.incident.clone() };
                if tools.commit(command).await.is_err() {
                    tokio::time::sleep(LOOK).await;
                }
                return;
            }
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return complain(tools, life, &error).await,
        }
    }
}

/// After the taint: `Ready=Unknown`, and with `Expedite` the deletions.
pub(super) async fn expedite(tools: &Tools, expedite: &ExpediteJob) {
    let subject = subject(&expedite.life);
    let boot = expedite.life.incarnation.boot;
    loop {
        match tools.writer.not_ready(&subject, boot, &clock::wall(Span::ZERO)).await {
            Ok(()) | Err(WriteError::Conflict { .. }) => {}
            Err(error @ WriteError::BootChanged { .. }) => {
                // Its pods are no longer those of a dead machine; the log hears of the new boot from the watch.
                tracing::info!(node = %subject.node, %error, "nothing is deleted any more");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(error) => {
                tracing::warn!(node = %subject.node, %error, "Ready=Unknown is not written; trying on");
            }
        }
        match expedite.strategy {
            ReleaseStrategy::Taint => {}
            ReleaseStrategy::Expedite => match tools.writer.expedite(&subject, &expedite.released).await {
                Ok(failed) if failed.is_empty() => {}
                Ok(failed) => {
                    tracing::warn!(node = %subject.node, ?failed, "pods could not be deleted; trying on");
                }
                Err(error) => {
                    tracing::warn!(node = %subject.node, %error, "pods could not be deleted; trying on");
                }
            },
        }
        // Again until the job is gone: a pod may be bound to the node a moment later, or a deletion may have failed.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What is left, and the machine's power.
pub(super) async fn watch(tools: &Tools, watch: &WatchReleasedJob) {
    let life = &watch.life;
    let mut power: Option<Power> = None;
    let mut read_at: Option<Mono> = None;
    loop {
        if let Some(leftovers) = &watch.leftovers {
            look_for_leftovers(tools, life, leftovers).await;
        }
        let now = clock::now();
        if watch.power && read_at.is_none_or(|at| now.since(at) >= POWER) {
            read_at = Some(now);
            if let Ok(reading) = read_power(tools, life, None).await
                && matches!(reading.power, Power::On | Power::Off)
                && power.as_ref() != Some(&reading.power)
            {
                let on = reading.power == Power::On;
                let command = Command::PowerAfterRelease {
                    node: life.node.clone(),
                    incident: life.incident.clone(),
                    on,
                };
                if tools.commit(command).await.is_ok() {
                    power = Some(reading.power);
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn look_for_leftovers(tools: &Tools, life: &Life, leftovers: &Released) {
    match tools.writer.left(&subject(life), leftovers).await {
        Ok(left) if left.is_empty() => {
            let command = Command::LeftoversGone { node: life.node.clone(), incident: life.incident.clone() };
            // Not committed: asked again at the next look.
            let _ = tools.commit(command).await;
        }
        Ok(left) => tracing::debug!(node = %life.node, ?left, "still there"),
        Err(error) => tracing::warn!(node = %life.node, %error, "what is left cannot be listed; trying on"),
    }
}

/// One committed power-on, to the right machine only.
pub(super) async fn power_on(tools: &Tools, on: &PowerOnJob) {
    let life = &on.life;
    let node = &life.node;
    let mut driver = match tools.bmcs.open(node).await {
        Ok(driver) => driver,
        Err(why) => {
            tracing::warn!(%node, why, "the BMC cannot be opened to power the machine on; trying on");
            return tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    let facts = match driver.identify().await {
        Ok(facts) => facts,
        Err(error) => {
            tracing::warn!(%node, error = error.full(), "the BMC cannot be identified to power the machine on; trying on");
            return tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    let state = tools.proposer.published().state;
    let verdict = identity::check(&on.pin, &node_side(&state, node), &facts, &fleet(&state));
    if !verdict.is_match() {
        tracing::error!(%node, %verdict, "the machine is not powered on: its BMC's identity refuses");
        return tokio::time::sleep(Duration::from_secs(30)).await;
    }
    // The commit takes this job away, and with it this future: what follows is a task of its own, so that the one
    // sending that was permitted is not cut off between the commit and the wire.
    let (tools, node, incident, member) =
        (tools.clone(), node.clone(), life.incident.clone(), on.pin.member.clone());
    let sending = tokio::spawn(async move {
        let command = Command::PowerOn { node: node.clone(), incident };
        if matches!(tools.commit(command).await, Ok(Outcome::Done)) {
            match driver.power_on(&member, Span::from_secs(10)).await {
                Ok(answer) => tracing::info!(%node, ?answer, "power on sent"),
                Err(error) => {
                    tracing::warn!(%node, error = error.full(), "power on was not sent; a person may do it");
                }
            }
        }
        // Best effort: a session left behind dies by its own time-out.
        let _ = driver.close().await;
    });
    if sending.await.is_err() {
        tracing::error!(node = %life.node, "the task that powers the machine on failed; a person may do it");
    }
    tokio::time::sleep(LOOK).await;
}

/// The way back, one step.
pub(super) async fn give_back(tools: &Tools, job: &Job, back: &ReturnJob) {
    // A leader that was asleep must not take away what a later release wrote.
    if !tools.still_wanted(job).await {
        return tokio::time::sleep(LOOK).await;
    }
    let life = &back.life;
    let subject = subject(life);
    let (node, incident) = (life.node.clone(), life.incident.clone());
    let written = match back.step {
        ReturnStep::RemoveTaint { keep_taint, orphaned } => {
            tools.writer.untaint(&subject, keep_taint, orphaned).await
        }
        ReturnStep::Finish { uncordon: true } => tools.writer.uncordon(&subject).await,
        ReturnStep::Finish { uncordon: false } => Ok(()),
    };
    let command = match (written, &back.step) {
        (Ok(()), ReturnStep::RemoveTaint { .. }) => Command::TaintRemoved { node, incident },
        (Ok(()), ReturnStep::Finish { .. }) => Command::Returned { node, incident },
        (Err(WriteError::Conflict { .. }), _) => return tokio::time::sleep(Duration::from_millis(100)).await,
        (Err(error), _) => {
            tracing::warn!(node = %life.node, %error, "the way back is not written; trying on");
            return tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    if tools.commit(command).await.is_err() {
        tokio::time::sleep(LOOK).await;
    }
}

// === the last read ===

/// Reads the power state once more and judges it; makes the proof's readings again where one does not do. Gives those
/// that stand for the proof's own, if any do.
async fn make_last_read(
    tools: &Tools,
    job: &Job,
    release: &ReleaseJob,
) -> (LastReadVerdict, Option<Box<OffReadings>>) {
    let incident = &release.life.incident;
    let now = clock::now();
    let proven_ago = log_age(&tools.proposer.published(), release.proof.at(), now);
    let made = tools.made_again.with(|made| made.since_proof(incident, now, proven_ago).cloned());
    let first = one_last_read(tools, release, made.as_ref()).await;
    tools.made_again.with(|made| made.judged(incident, &first));
    let LastReadVerdict::Redo(why) = &first else { return (first, made.map(|(again, _)| Box::new(again))) };
    tracing::info!(node = %release.life.node, why, "the proof's readings are made again");
    let again = match fence::read_again(tools, job, release).await {
        Ok(readings) => (readings, clock::now()),
        Err(verdict) => return (verdict, None),
    };
    let verdict = one_last_read(tools, release, Some(&again)).await;
    tools.made_again.with(|made| {
        made.keep(incident, again.0.clone(), again.1);
        made.judged(incident, &verdict);
    });
    (verdict, Some(Box::new(again.0)))
}

async fn one_last_read(
    tools: &Tools,
    release: &ReleaseJob,
    again: Option<&(OffReadings, Mono)>,
) -> LastReadVerdict {
    let life = &release.life;
    let asked = clock::now();
    let reading = match &release.pin {
        Some(pin) => {
            let limit = last_read::answer_within(&release.proof);
            let read = tokio::time::timeout(limit.into(), read_power(tools, life, Some(pin))).await;
            read.unwrap_or_else(|_| Err(format!("the BMC gave no answer within {limit}")))
        }
        None => Err("the node has no verified binding".to_owned()),
    };
    let now = clock::now();
    let published = tools.proposer.published();
    judge(&LastRead::of(&AtHand {
        release,
        now,
        proven_ago: log_age(&published, release.proof.at(), now),
        again,
        asked,
        reading: reading.as_ref().map_err(String::as_str),
        steady: tools.bmcs.entry(&life.node).is_some_and(|e| e.known(now).steady),
        signs: signs(tools, &life.node),
    }))
}

/// One reading over the warm session, whose identity matched in it.
async fn read_power(tools: &Tools, life: &Life, pin: Option<&Pin>) -> Result<PowerReading, String> {
    let node = &life.node;
    let state = tools.proposer.published().state;
    let pin = pin
        .or_else(|| state.bindings.get(node).and_then(|b| b.pin.as_ref()))
        .ok_or("the binding is not verified")?;
    let entry = tools.bmcs.entry(node).ok_or("the node has no binding")?;
    let mut warm = entry.borrow().await;
    warm.driver(tools.bmcs.opener(), node).await?;
    let identified = warm.is_identified();
    let driver = warm.driver(tools.bmcs.opener(), node).await?;
    if !identified {
        let facts = driver.identify().await.map_err(|e| e.full())?;
        let verdict = identity::check(pin, &node_side(&state, node), &facts, &fleet(&state));
        entry.note_identity(&facts, Some(&verdict), clock::now());
        warm.set_identified(verdict.is_match());
        if !verdict.is_match() {
            return Err(verdict.to_string());
        }
    }
    let driver = warm.driver(tools.bmcs.opener(), node).await?;
    match driver.power_state(&pin.member).await {
        Ok(reading) => {
            entry.note_power(&reading, clock::now());
            Ok(reading)
        }
        Err(error) => {
            entry.note_failure(&error.full(), error.no_answer(), Span::ZERO, clock::now());
            Err(error.full())
        }
    }
}

// === helpers ===

fn subject(life: &Life) -> Subject {
    Subject { node: life.node.clone(), uid: life.incarnation.node.clone(), incident: life.incident.clone() }
}

/// Digest of the evidence, for the annotation.
fn digest(tools: &Tools, life: &Life) -> String {
    let state = tools.proposer.published().state;
    state.incidents.get(&life.incident).and_then(|i| i.evidence.clone()).unwrap_or_default()
}

/// A write that did not happen: said, and begun again after a moment. What a changed boot or a gone Node means the log
/// hears from the watch of Nodes.
async fn complain(tools: &Tools, life: &Life, error: &WriteError) {
    let reason = match error {
        WriteError::NodeGone { .. } => "node-gone",
        WriteError::BootChanged { .. } => "boot-changed",
        WriteError::Conflict { .. } => "conflict",
        WriteError::Api { .. } => "api",
    };
    tools.telemetry.refusals.get_or_create(&crate::telemetry::Reason { reason: reason.to_owned() }).inc();
    tracing::warn!(node = %life.node, error = %crate::transport::chain(error), "a write to Kubernetes did not happen; trying on");
    tokio::time::sleep(LOOK).await;
}
