//! One fencing as a state machine: given what happened, says the next call. The executor only performs the calls; it
//! decides nothing, and neither does the BMC driver.
//!
//! ```text
//!   FenceOrder --> Fence        FenceEvent (answer to the last Step)      Note (unasked: heard, Lease, pause, steady)
//!                    |                     |                                  |
//!                    v                     v                                  v
//!   Start -> last look -> Intent -> identify -> predecessor's session -> read -> last look -> Attempt -> ForceOff
//!                                      ^                                  |                                  |
//!                                      |                  paused: read only|                                  v
//!                 back off, re-identify+<---- error, refusal, On ----- poll until 3 x Off <----------- answer, logged
//!                                                                          |
//!                                       Proven <- last look <- (old session) <- Off <- identify over a new session
//! ```
//!
//! What holds whatever the events (the property tests feed it nonsense):
//!
//! * `ForceOff` is asked for only after Match in this session, a committed Attempt, and a last look at most 500 ms old;
//! * it is never repeated blindly: a repeat needs a new Attempt, a fresh reading and the back-off;
//! * nothing is sent while paused, nor to a machine that is heard (a re-fence and an order excepted);
//! * `Proven` is proposed only with readings that [`crate::proof::check_off_readings`] passes.
//!
//! Deliberately absent: any end by time. A fence that gets nowhere says so ([`Command::Stalled`]) and goes on.

mod approach;
mod confirm;
mod events;
mod step;
mod watch;

#[cfg(test)]
mod tests;

use coroner_shared::bmc::{CommandAnswer, Continuity, Login, Power, PowerReading};
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};

pub use self::step::{Ended, FenceEvent, FenceOrder, Identified, Look, Note, Over, Step};
use crate::command::Command;
use crate::steady::{Seam, seam};

/// A last look older than this does not permit a command.
pub const LOOK_AGE_MAX: Span = Span::from_ms(500);
/// The socket of a power command dies so long after its Attempt was committed.
pub const COMMAND_DEADLINE: Span = Span::from_secs(10);
/// A node fenced over Basic authentication (`LateCommandPossible`) returns no earlier than this after its last
/// attempt, since nobody can cut off a command that a log-in without a session still carries.
pub const LATE_COMMAND: Span = Span::from_mins(10);

/// One fencing under way.
#[derive(Clone, Debug)]
pub struct Fence {
    order: FenceOrder,
    asked: Asked,
    asked_at: Mono,
    /// How long identity took over the first session: as long as it will over the second.
    identify_took: Span,
    /// Which command the last [`Step::Commit`] proposed.
    proposing: Proposed,
    started: Mono,
    intent_open: bool,
    paused: bool,
    /// Latest date of a proof of life, and of a change of the Lease.
    heard: Option<Mono>,
    lease_moved: Option<Mono>,
    look: Option<Look>,
    /// The predecessor's session, until it is deleted.
    predecessor: Option<String>,
    /// Identity over the first session, while that lives.
    identified: Option<Known>,
    steady: bool,
    /// The track calls the BMC steady since the readings under way began.
    steady_next: bool,
    /// What the first session (or the track before it) showed last, and when.
    shown: Option<(Mono, Continuity)>,
    /// The newest power reading over the first session.
    newest: Option<Newest>,
    /// Since when nothing but Off was read.
    off_since: Option<Mono>,
    offs: Option<Offs>,
    ending: Ending,
    attempt: Option<Sending>,
    /// Attempts of this fence.
    tries: u32,
    /// `apply` does not close the intent of a machine found off that is On after an attempt.
    found_on_said: bool,
    trouble: Trouble,
}

/// What the last step asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Start,
    Look,
    Identify(Over),
    Delete,
    Read(Over),
    Open,
    Commit(Proposed),
    Send,
    Wait,
    Over,
}

/// Which command was proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proposed {
    Intent,
    Attempt,
    Answer,
    Stalled,
    FoundOn,
    StillOn,
    Proven,
}

/// An identity that matched.
#[derive(Clone, Debug)]
struct Known {
    given: String,
    login: Login,
    at: Mono,
}

/// One reading.
#[derive(Clone, Debug)]
struct Newest {
    asked: Mono,
    answered: Mono,
    power: Power,
}

/// Consecutive Off readings over the first session.
#[derive(Clone, Debug)]
struct Offs {
    /// When the first was answered.
    first: Mono,
    /// When the last was answered.
    last: Mono,
    readings: Vec<(Span, PowerReading)>,
}

/// How far the end of the proof is: each step needs the one before.
#[derive(Clone, Debug, Default)]
enum Ending {
    /// Reading over the first session.
    #[default]
    NotYet,
    /// The second session is open; and identity matched in it, under this log-in.
    Open { matched: Option<Login> },
    /// The last reading came over it, and does not show by itself whose it is.
    Read(Box<LastOff>),
    /// The last reading, and whose it is.
    Identified { last: Box<LastOff>, given: String },
    /// And the first session showed once more that nothing restarted, where that was needed.
    Closed { last: Box<LastOff>, given: String, closing: Option<Box<PowerReading>>, at: Mono },
}

/// The Off over the second session.
#[derive(Clone, Debug)]
struct LastOff {
    asked: Mono,
    reading: PowerReading,
}

/// The attempt of this fence.
#[derive(Clone, Debug)]
struct Sending {
    number: u32,
    committed: Mono,
    /// Whether the command went out, or may have.
    sent: bool,
    /// Why a call to send it failed before anything was sent, if one did.
    failed: Option<String>,
    answer: Option<CommandAnswer>,
    /// Whether the answer is in the log, or need not be.
    logged: bool,
}

/// What goes wrong, and how long that makes it wait.
#[derive(Clone, Debug, Default)]
struct Trouble {
    /// Nothing is asked of the BMC before.
    not_before: Mono,
    /// Nothing is sent before.
    send_not_before: Mono,
    /// Attempts that the log refused in a row.
    refused: u32,
    /// Failed calls in a row.
    errors: u32,
    /// Refusals of identity and contradictions in a row.
    refusals: u32,
    /// What stands in the way, for people.
    why: Option<String>,
    /// A stall to be proposed, with whether it disables the binding.
    stall: Option<(String, bool)>,
    /// The lack of progress was said.
    slow_said: bool,
    /// When a BMC last answered anything.
    answered: Mono,
    still_on_said: Option<Mono>,
    ended: Option<Ended>,
}

// === impl Fence ===

impl Fence {
    /// A fence that has done nothing yet. Begin with [`FenceEvent::Start`].
    pub fn new(order: FenceOrder) -> Self {
        let predecessor = match &order.previous_login {
            Some(Login::Session(uri)) => Some(uri.clone()),
            Some(Login::Basic) | None => None,
        };
        Self {
            asked: Asked::Start,
            asked_at: Mono::default(),
            identify_took: Span::ZERO,
            proposing: Proposed::Intent,
            started: Mono::default(),
            intent_open: order.intent_open || order.again,
            paused: order.paused,
            heard: None,
            lease_moved: None,
            look: None,
            predecessor,
            identified: None,
            steady: order.steady && order.shown.is_some(),
            steady_next: false,
            shown: None,
            newest: None,
            off_since: None,
            offs: None,
            ending: Ending::NotYet,
            attempt: None,
            tries: 0,
            found_on_said: false,
            trouble: Trouble::default(),
            order,
        }
    }

    /// Takes what came of the last step and says the next one. `now` is this host's CLOCK_BOOTTIME, never earlier than
    /// in the call before. An event that does not answer the last step ends the fence.
    pub fn next(&mut self, now: Mono, event: FenceEvent) -> Step {
        let fits = self.take(now, event);
        if !fits {
            let why = "the executor's event did not answer the last step".to_owned();
            self.trouble.ended.get_or_insert(Ended::Closed { why });
        }
        let step = self.proceed(now);
        self.asked_at = now;
        self.asked = match &step {
            Step::LastLook => Asked::Look,
            Step::Identify(over) => Asked::Identify(*over),
            Step::DeleteSession { .. } => Asked::Delete,
            Step::ReadPower(over) => Asked::Read(*over),
            Step::NewSession => Asked::Open,
            Step::Commit(_) => Asked::Commit(self.proposing),
            Step::SendForceOff { .. } => Asked::Send,
            Step::Wait { .. } => Asked::Wait,
            Step::Ended(_) => Asked::Over,
        };
        step
    }

    /// Takes something that nobody asked for. Whoever waits for [`Step::Wait`] then goes on with [`FenceEvent::Woke`].
    pub fn note(&mut self, now: Mono, note: Note) {
        match note {
            Note::Heard(at) => self.heard = self.heard.max(Some(at)),
            Note::LeaseMoved(_) if planted(Mutant::LeaseIgnored) => {}
            Note::LeaseMoved(at) => self.lease_moved = self.lease_moved.max(Some(at)),
            Note::Paused(paused) => {
                self.paused = paused;
                self.look = None;
            }
            Note::Steady(None) => self.lose_steady(),
            // Readings under way were begun without it and end by their own row; those after them go by it.
            Note::Steady(Some(shown)) if self.offs.is_some() => {
                self.steady_next =
                    self.shown.as_ref().is_some_and(|(_, own)| seam(&shown, own) == Seam::Unbroken);
            }
            Note::Steady(Some(shown)) => {
                self.steady = true;
                self.shown = Some((now, shown));
            }
        }
    }

    /// What this fence waits for, for status.
    pub fn waiting_for(&self) -> String {
        if let Some(why) = &self.trouble.why {
            return why.clone();
        }
        if let Some(Sending { sent: false, failed: Some(why), .. }) = &self.attempt {
            return format!("the power command could not be sent: {why}");
        }
        if self.paused {
            return "power commands are paused; the power state is only read".to_owned();
        }
        match (&self.offs, &self.newest) {
            (Some(_), _) => "Off is read, until the readings are a proof".to_owned(),
            (None, Some(newest)) => format!("the BMC says {:?}", newest.power),
            (None, None) => "the BMC to answer".to_owned(),
        }
    }

    /// What is asked next: derived from what is known, so that it does not matter which event came last.
    fn proceed(&mut self, now: Mono) -> Step {
        if let Some(ended) = &self.trouble.ended {
            return Step::Ended(ended.clone());
        }
        if let Some(sending) = &self.attempt
            && !sending.logged
            && let Some(answer) = &sending.answer
        {
            let (number, answer) = (sending.number, answer.clone());
            let (node, incident) = self.names();
            return self
                .commit(Proposed::Answer, Command::AttemptAnswered { node, incident, number, answer });
        }
        self.look_for_contradiction(now);
        if let Some(step) = self.say(now) {
            return step;
        }
        if now < self.trouble.not_before {
            return self.wait(now, self.trouble.not_before);
        }
        if !self.intent_open {
            return self.ask_intent(now);
        }
        if self.identified.is_none() {
            return Step::Identify(Over::First);
        }
        if let Some(uri) = &self.predecessor {
            return Step::DeleteSession { uri: uri.clone() };
        }
        if self.wants_to_send(now) { self.approach(now) } else { self.confirm(now) }
    }

    fn commit(&mut self, what: Proposed, command: Command) -> Step {
        self.proposing = what;
        Step::Commit(Box::new(command))
    }

    fn names(&self) -> (NodeName, IncidentId) {
        (self.order.node.clone(), self.order.incident.clone())
    }

    /// A wait that ends in the future, and in time to say what must be said.
    fn wait(&self, now: Mono, until: Mono) -> Step {
        let until = self.stall_due().map_or(until, |due| until.min(due));
        Step::Wait { until: until.max(now + Span::from_ms(1)) }
    }
}
