//! Performs the calls that `core/fence.rs` asks for: reads, one power command at a time, proposals, looks. It decides
//! nothing; every answer goes back into the machine.

use std::time::Duration;

use coroner_arbiter_core::fence::{Ended, Fence, FenceEvent, Identified, Look, Note, Over, Step};
use coroner_arbiter_core::identity;
use coroner_arbiter_core::jobs::{self, FenceJob, Job, Life, ReleaseJob, Signs};
use coroner_arbiter_core::last_read::{self, LastReadVerdict};
use coroner_arbiter_core::permit;
use coroner_arbiter_core::phase::OffReadings;
use coroner_arbiter_core::policy::Pin;
use coroner_bmc::{Bmc, BmcError};
use coroner_shared::bmc::{CommandAnswer, Continuity, Login};
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};
use tokio::sync::{OwnedMutexGuard, watch};

use super::Tools;
use crate::bmc_pool::{Entry, Warm, fleet, node_side};
use crate::clock;

/// One fence under way.
struct Performing<'a> {
    tools: &'a Tools,
    job: &'a Job,
    life: &'a Life,
    pin: Pin,
    /// It reads again what was proven: nothing may be proposed or sent here.
    reads_only: bool,
    entry: std::sync::Arc<Entry>,
    /// The replica's warm session, so that steadiness can be shown; polling waits while it is ours.
    first: OwnedMutexGuard<Warm>,
    /// A second session, for the last reading.
    second: Option<Box<dyn Bmc>>,
    told: Told,
}

/// What the machine was told last, so that it is told changes only.
#[derive(Default, PartialEq, Clone)]
struct Told {
    heard: Option<Mono>,
    lease: Option<Mono>,
    paused: bool,
    steady: Option<Continuity>,
}

/// Fences until it is over or no longer wanted.
pub(super) async fn run(tools: &Tools, job: &Job, fence: &FenceJob, mut cancelled: watch::Receiver<bool>) {
    let node = &fence.life.node;
    let began = clock::now();
    let Some(entry) = tools.bmcs.entry(node) else {
        return tokio::time::sleep(Duration::from_millis(500)).await;
    };
    let first = entry.borrow().await;
    let known = entry.known(clock::now());
    let steady = known.steady;
    let state = tools.proposer.published().state;
    let Some(order) = jobs::fence_order(&state, fence, known) else { return };
    tracing::info!(%node, incident = %fence.life.incident, class = fence.class.word(), steady, "fencing begins");
    let told = Told { paused: order.paused, ..Told::default() };
    let (life, pin) = (&fence.life, fence.pin.clone());
    let mut performing =
        Performing { tools, job, life, pin, reads_only: false, entry, first, second: None, told };
    let mut machine = Fence::new(order);
    let mut step = machine.next(clock::now(), FenceEvent::Start);
    loop {
        performing.note(&mut machine);
        // A command that is being sent runs to its deadline, so that its answer is known and recorded.
        let sends = matches!(step, Step::SendForceOff { .. });
        let event = tokio::select! {
            event = performing.perform(&mut machine, step) => event,
            _ = cancelled.wait_for(|stop| *stop), if !sends => {
                tracing::info!(%node, "fencing is no longer wanted here");
                break;
            }
        };
        match event {
            Ok(event) => step = machine.next(clock::now(), event),
            Err(Ended::Proven) => {
                let took = clock::now().since(began);
                tools.telemetry.fence_seconds.observe(Duration::from(took).as_secs_f64());
                tracing::info!(%node, %took, "the machine is proven off");
                break;
            }
            Err(ended) => {
                tracing::info!(%node, ?ended, "fencing ended");
                break;
            }
        }
    }
    performing.close().await;
}

/// Makes a proof's readings again, for the last read. Over the warm session as a fence does: only so can the reading
/// after it show that nothing restarted in between. Identity is read anew in it first, which the machine asks for.
///
/// # Errors
/// The verdict where they are no proof.
pub(super) async fn read_again(
    tools: &Tools,
    job: &Job,
    release: &ReleaseJob,
) -> Result<OffReadings, LastReadVerdict> {
    let life = &release.life;
    let failed = |why: &str| LastReadVerdict::Failed(why.to_owned());
    let entry = tools.bmcs.entry(&life.node).ok_or_else(|| failed("the node has no binding"))?;
    let first = entry.borrow().await;
    let state = tools.proposer.published().state;
    let order = jobs::again_order(&state, release, entry.known(clock::now()))
        .ok_or_else(|| failed("the binding is not verified"))?;
    let (pin, told) = (order.pin.clone(), Told { paused: order.paused, ..Told::default() });
    let mut performing =
        Performing { tools, job, life, pin, reads_only: true, entry, first, second: None, told };
    let mut machine = Fence::new(order);
    let mut step = machine.next(clock::now(), FenceEvent::Start);
    let ended = loop {
        performing.note(&mut machine);
        match performing.perform(&mut machine, step).await {
            Ok(event) => step = machine.next(clock::now(), event),
            Err(ended) => break ended,
        }
    };
    performing.close().await;
    last_read::made_again(ended)
}

impl Performing<'_> {
    /// Performs one step; `Err` once it is over.
    async fn perform(&mut self, machine: &mut Fence, step: Step) -> Result<FenceEvent, Ended> {
        let node = self.life.node.clone();
        let member = self.pin.member.clone();
        Ok(match step {
            Step::LastLook => FenceEvent::Looked(look(self.tools, self.job, &node).await),
            Step::Identify(over) => FenceEvent::Identity(self.identify(over).await),
            Step::DeleteSession { uri } => {
                if let Ok(driver) = self.driver(Over::First).await {
                    // Gone, or not deletable: the attempt's own deadline has cut its socket anyway.
                    let _ = tokio::time::timeout(Duration::from_secs(5), driver.delete_session(&uri)).await;
                }
                FenceEvent::Deleted
            }
            Step::ReadPower(over) => FenceEvent::Power(self.read(over, &member).await),
            Step::NewSession => {
                if let Some(mut old) = self.second.take() {
                    let _ = old.close().await;
                }
                let opened = open_session(self.tools, &node).await;
                FenceEvent::Opened(opened.map(|driver| self.second = Some(driver)))
            }
            Step::Commit(_) if self.reads_only => FenceEvent::Committed(Err("only reading".to_owned())),
            Step::SendForceOff { .. } if self.reads_only => {
                FenceEvent::Answered(CommandAnswer::Refused { why: "only reading".to_owned() })
            }
            Step::Commit(command) => {
                tracing::debug!(%node, ?command, "proposing");
                FenceEvent::Committed(self.tools.commit(*command).await.map_err(|e| e.to_string()))
            }
            Step::SendForceOff { number, send_before, deadline } => {
                self.force_off(number, send_before, deadline).await
            }
            Step::Wait { until } => {
                self.wait(machine, until).await;
                FenceEvent::Woke
            }
            Step::Ended(ended) => return Err(ended),
        })
    }

    async fn driver(&mut self, over: Over) -> Result<&mut Box<dyn Bmc>, String> {
        match over {
            Over::First => self.first.driver(self.tools.bmcs.opener(), &self.life.node).await,
            Over::New => self.second.as_mut().ok_or_else(|| "the second session is not open".to_owned()),
        }
    }

    async fn identify(&mut self, over: Over) -> Result<Identified, String> {
        let asked = clock::now();
        let driver = self.driver(over).await?;
        let result = driver.identify().await;
        let login = driver.login().unwrap_or(Login::Basic);
        let now = clock::now();
        match result {
            Ok(facts) => {
                let state = self.tools.proposer.published().state;
                let node = &self.life.node;
                let verdict = identity::check(&self.pin, &node_side(&state, node), &facts, &fleet(&state));
                self.entry.note_identity(&facts, Some(&verdict), now);
                if over == Over::First {
                    self.first.set_identified(verdict.is_match());
                }
                Ok(Identified { facts, login })
            }
            Err(error) => {
                self.entry.note_failure(&error.full(), error.no_answer(), now.since(asked), now);
                if over == Over::First && matches!(error, BmcError::AuthRejected { .. }) {
                    // This driver sends its log-in no more; the next one reads the Secret anew, as often as the guard
                    // lets it. Without that a fence would outlive a corrected password unheard.
                    self.first.close().await;
                }
                Err(error.full())
            }
        }
    }

    async fn read(
        &mut self,
        over: Over,
        member: &str,
    ) -> Result<(coroner_shared::bmc::PowerReading, Login), String> {
        let asked = clock::now();
        let driver = self.driver(over).await?;
        let result = driver.power_state(member).await;
        let login = driver.login().unwrap_or(Login::Basic);
        let now = clock::now();
        match result {
            Ok(reading) => {
                // The track follows the warm session; another session's readings would look like a restart to it.
                if over == Over::First {
                    self.entry.note_power(&reading, now);
                }
                Ok((reading, login))
            }
            Err(error) => {
                self.entry.note_failure(&error.full(), error.no_answer(), now.since(asked), now);
                Err(error.full())
            }
        }
    }

    async fn force_off(&mut self, number: u32, send_before: Mono, deadline: Mono) -> FenceEvent {
        let node = self.life.node.clone();
        let member = self.pin.member.clone();
        let driver = match self.driver(Over::First).await {
            Ok(driver) => driver,
            Err(why) => return FenceEvent::NotSent { why },
        };
        tracing::info!(%node, attempt = number, "sending ForceOff");
        let limit = deadline.since(clock::now());
        // Asked by the driver right before it writes: connecting may take longer than a look may be old.
        let may_leave = move || clock::now() <= send_before;
        match tokio::time::timeout(limit.into(), driver.force_off(&member, &may_leave, limit)).await {
            Ok(Ok(answer)) => {
                tracing::info!(%node, attempt = number, ?answer, "the BMC answered");
                FenceEvent::Answered(answer)
            }
            Ok(Err(BmcError::TooLate)) => {
                tracing::info!(%node, attempt = number, "ForceOff was not sent: the last look is too old; looking again");
                FenceEvent::TooLate
            }
            Ok(Err(error)) => {
                let why = error.full();
                tracing::warn!(%node, attempt = number, error = why, "ForceOff was not sent");
                FenceEvent::NotSent { why }
            }
            // The driver keeps its own deadline; this one is for a driver that does not.
            Err(_) => {
                FenceEvent::Answered(CommandAnswer::Unknown { why: format!("no answer within {limit}") })
            }
        }
    }

    /// Waits, and ends early when there is something to tell the machine.
    async fn wait(&mut self, machine: &mut Fence, until: Mono) {
        while clock::now() < until {
            if self.note(machine) {
                return;
            }
            let left = until.since(clock::now()).min(Span::from_ms(100));
            tokio::time::sleep(left.into()).await;
        }
    }

    /// Tells the machine what has changed; whether anything has.
    fn note(&mut self, machine: &mut Fence) -> bool {
        let now = clock::now();
        let node = &self.life.node;
        let state = self.tools.proposer.published().state;
        let steady =
            self.entry.with_track(|t| if t.steady(now) { t.shown().cloned() } else { None }).flatten();
        let told = Told {
            heard: self.tools.hearing.last_sign(node).map(|(at, _)| at),
            lease: self.tools.hearing.lease_moved(node),
            paused: permit::commands_barred(&state, node).is_some(),
            steady,
        };
        if told == self.told {
            return false;
        }
        if let (Some(at), true) = (told.heard, told.heard != self.told.heard) {
            machine.note(now, Note::Heard(at));
        }
        if let (Some(at), true) = (told.lease, told.lease != self.told.lease) {
            machine.note(now, Note::LeaseMoved(at));
        }
        if told.paused != self.told.paused {
            machine.note(now, Note::Paused(told.paused));
        }
        if told.steady != self.told.steady {
            machine.note(now, Note::Steady(told.steady.clone()));
        }
        self.told = told;
        true
    }

    async fn close(mut self) {
        if let Some(mut driver) = self.second.take() {
            // Best effort: a session left behind dies by its own time-out.
            let _ = driver.close().await;
        }
    }
}

/// A driver of its own, connected and logged in, so that its first question is answered at once.
pub(super) async fn open_session(tools: &Tools, node: &NodeName) -> Result<Box<dyn Bmc>, String> {
    let mut driver = tools.bmcs.open(node).await?;
    match driver.fresh_session().await {
        Ok(_) => Ok(driver),
        Err(error) => Err(error.full()),
    }
}

/// The last look: a linearizable read, and what all reachable replicas hear.
pub(super) async fn look(tools: &Tools, job: &Job, node: &NodeName) -> Result<Look, String> {
    let at = clock::now();
    let state = tools.read_state().await.map_err(|e| e.to_string())?;
    if !tools.hearing.settled() {
        return Err("this leader has only just been elected and does not know yet who is heard".to_owned());
    }
    Ok(jobs::last_look(&state, job, at, signs(tools, node)))
}

/// What this leader hears of a node.
pub(super) fn signs(tools: &Tools, node: &NodeName) -> Signs {
    Signs {
        heard: tools.hearing.last_sign(node).map(|(at, _)| at),
        lease_moved: tools.hearing.lease_moved(node),
    }
}
