//! Performs release, watch and return. Mirrors `arbiter/src/executor/release.rs` and `arbiter/src/k8s/release.rs`.

use std::rc::Rc;

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::fence::{Fence, FenceEvent, Identified, Over, Step};
use coroner_arbiter_core::identity;
use coroner_arbiter_core::jobs::{
    self, ExpediteJob, Job, Life, PowerOnJob, ReleaseJob, ReturnJob, ReturnStep, WatchReleasedJob,
    WriteReleaseJob,
};
use coroner_arbiter_core::last_read::{self, AtHand, LastRead, LastReadVerdict, MadeAgain, judge};
use coroner_arbiter_core::phase::{OffReadings, Released};
use coroner_arbiter_core::policy::{Pin, ReleaseStrategy};
use coroner_shared::bmc::{CommandAnswer, Login, Power, PowerReading};
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::time::{Mono, Span};

use super::fence::{look, open_session};
use super::writes::{NodeWrite, Written};
use crate::sim::bmc::Op;
use crate::sim::driver::{Driver, Failed};
use crate::sim::pool::{Entry, fleet, node_side};
use crate::sim::world::Shared;

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
    let (verdict, again) = make_last_read(shared, index, job, release).await;
    let before = match &release.kept {
        Some(kept) => kept.clone(),
        None => match shared.read_node(index, life).await {
            Some((_, before)) => before,
            None => return shared.reactor.sleep(LOOK).await,
        },
    };
    let command = last_read::command(verdict, life, before, again);
    if !matches!(shared.commit(index, command).await, Ok(Outcome::Done)) {
        shared.reactor.sleep(LOOK).await;
    }
}

pub(super) async fn write(shared: &Shared, index: usize, job: &Job, write: &WriteReleaseJob) {
    let life = &write.life;
    let Some(published) = shared.published(index) else { return };
    let release = jobs::read_before_patch(&published.state, write);
    if !shared.settles(index, SETTLES).await {
        return;
    }
    for _ in 0..CONFLICTS_MAX {
        let Some((node, _)) = shared.read_node(index, life).await else {
            return shared.reactor.sleep(LOOK).await;
        };
        let (verdict, _) = make_last_read(shared, index, job, &release).await;
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

async fn make_last_read(
    shared: &Shared,
    index: usize,
    job: &Job,
    release: &ReleaseJob,
) -> (LastReadVerdict, Option<Box<OffReadings>>) {
    let incident = &release.life.incident;
    let made = shared.made_again(index, |made| made.of(incident).cloned()).flatten();
    let first = one_last_read(shared, index, release, made.as_ref()).await;
    shared.made_again(index, |made| made.judged(incident, &first));
    let LastReadVerdict::Redo(_) = &first else { return (first, made.map(|(again, _)| Box::new(again))) };
    shared.world.borrow_mut().coverage.reach("last read: the readings are made again");
    let again = match read_again(shared, index, job, release).await {
        Ok(readings) => (readings, shared.host_now(index)),
        Err(verdict) => return (verdict, None),
    };
    let verdict = one_last_read(shared, index, release, Some(&again)).await;
    shared.made_again(index, |made| {
        made.keep(incident, again.0.clone(), again.1);
        made.judged(incident, &verdict);
    });
    (verdict, Some(Box::new(again.0)))
}

async fn one_last_read(
    shared: &Shared,
    index: usize,
    release: &ReleaseJob,
    again: Option<&(OffReadings, Mono)>,
) -> LastReadVerdict {
    let life = &release.life;
    let asked = shared.host_now(index);
    let reading = match &release.pin {
        Some(pin) => {
            let limit = last_read::answer_within(&release.proof);
            let read = shared.reactor.within(limit, read_power(shared, index, life, Some(pin))).await;
            read.unwrap_or_else(|| Err("the BMC gave no answer in time".to_owned()))
        }
        None => Err("the node has no verified binding".to_owned()),
    };
    let now = shared.host_now(index);
    let Some(published) = shared.published(index) else {
        return LastReadVerdict::Failed("this replica ends".to_owned());
    };
    let signs = shared.world.borrow().signs(index, &life.node);
    judge(&LastRead::of(&AtHand {
        release,
        now,
        proven_ago: published.state.now.since(release.proof.at()) + now.since(published.at),
        again,
        asked,
        reading: reading.as_ref().map_err(String::as_str),
        steady: shared.entry(index, &life.node).is_some_and(|e| e.known(now).steady),
        signs,
    }))
}

/// One reading over the warm session, whose identity matched in it.
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
        if !entry.warm.borrow().identified {
            let facts = driver.identify(shared).await?;
            let verdict = identity::check(pin, &node_side(&state, node), &facts, &fleet(&state));
            entry.identified(&verdict, shared.host_now(index));
            entry.warm.borrow_mut().identified = verdict.is_match();
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

/// The warm driver, taken for a while and given back whatever ends that.
struct Borrowed {
    entry: Rc<Entry>,
    driver: Option<Driver>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            self.entry.put_driver(driver);
        }
    }
}

/// Makes a proof's readings again, over the warm session as a fence does.
async fn read_again(
    shared: &Shared,
    index: usize,
    job: &Job,
    release: &ReleaseJob,
) -> Result<OffReadings, LastReadVerdict> {
    let node = release.life.node.clone();
    let failed = |why: &str| LastReadVerdict::Failed(why.to_owned());
    let entry = shared.entry(index, &node).ok_or_else(|| failed("the node has no binding"))?;
    let _held = entry.lock.hold().await;
    let state = shared.published(index).ok_or_else(|| failed("this replica ends"))?.state;
    let order = jobs::again_order(&state, release, entry.known(shared.host_now(index)))
        .ok_or_else(|| failed("the binding is not verified"))?;
    let pin = order.pin.clone();
    let mut fence = Fence::new(order);
    let mut first = Borrowed { entry: Rc::clone(&entry), driver: Some(entry.take_driver(index)) };
    let mut second = None;
    let mut step = fence.next(shared.host_now(index), FenceEvent::Start);
    let ended = loop {
        let event = match step {
            Step::LastLook => FenceEvent::Looked(look(shared, index, job, &node).await),
            Step::Identify(over) | Step::ReadPower(over) => {
                let reads = matches!(step, Step::ReadPower(_));
                let driver = if over == Over::First { first.driver.as_mut() } else { second.as_mut() };
                ask(shared, index, (&node, &pin), (&entry, over), driver, reads).await
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
            Step::Ended(ended) => break ended,
        };
        step = fence.next(shared.host_now(index), event);
    };
    if let Some(mut second) = second {
        second.close(shared).await;
    }
    last_read::made_again(ended)
}

/// One question over one of the two sessions; what the warm one answers is noted.
async fn ask(
    shared: &Shared,
    index: usize,
    (node, pin): (&NodeName, &Pin),
    (entry, over): (&Entry, Over),
    driver: Option<&mut Driver>,
    reads: bool,
) -> FenceEvent {
    let asked = shared.host_now(index);
    let failed = |failed: Failed| {
        let now = shared.host_now(index);
        entry.note_failure(&failed, now.since(asked), now);
        failed.why
    };
    let closed = || "the second session is not open".to_owned();
    let Some(driver) = driver else {
        return if reads { FenceEvent::Power(Err(closed())) } else { FenceEvent::Identity(Err(closed())) };
    };
    if reads {
        driver.at(&pin.member);
        let reading = driver.power_state(shared).await;
        if let (Ok(reading), Over::First) = (&reading, over) {
            entry.note_power(reading, shared.host_now(index));
        }
        let login = driver.login().unwrap_or(Login::Basic);
        return FenceEvent::Power(reading.map(|reading| (reading, login)).map_err(failed));
    }
    let facts = driver.identify(shared).await;
    let state = shared.published(index).map(|published| published.state);
    if let (Ok(facts), Some(state)) = (&facts, &state) {
        let verdict = identity::check(pin, &node_side(state, node), facts, &fleet(state));
        entry.identified(&verdict, shared.host_now(index));
        if over == Over::First {
            entry.warm.borrow_mut().identified = verdict.is_match();
        }
    }
    let login = driver.login().unwrap_or(Login::Basic);
    FenceEvent::Identity(facts.map(|facts| Identified { facts, login }).map_err(failed))
}

impl Shared {
    /// What is kept of readings that were made again; `None`: this replica ends.
    fn made_again<T>(&self, index: usize, work: impl FnOnce(&mut MadeAgain) -> T) -> Option<T> {
        let mut world = self.world.borrow_mut();
        Some(work(&mut world.replicas[index].process.as_deref_mut()?.running.made_again))
    }
}
