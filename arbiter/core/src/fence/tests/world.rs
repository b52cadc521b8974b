//! Drives one fence to its end under virtual time, against the scripted BMC.
//!
//! ```text
//!   Fence --Step--> judge (what must hold) --> executor (what it does) --FenceEvent--> Fence
//!                                                 |        ^
//!                                                time    fates: what happens by itself
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coroner_shared::bmc::{CommandAnswer, Continuity, Login};
use coroner_shared::id::{BootId, Incarnation, IncidentId, NodeName, NodeUid};
use coroner_shared::machine_id::Transform;
use coroner_shared::time::{Mono, Span};

use super::bmc::{Bmc, MEMBER, OTHER, P, Says};
use crate::command::{Command, Outcome, Refusal};
use crate::fence::{Ended, Fence, FenceEvent, FenceOrder, Look, Note};
use crate::phase::EvidenceClass;
use crate::policy::Pin;

/// When every run begins.
pub(super) const BEGIN: u64 = 1_000_000;

/// Something that happens by itself.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// The BMC restarts, and its sessions with it (unless `sessions_survive`): down, then Off whatever is so, each for
    /// so many milliseconds.
    BmcRestarts(u64, u64),
    /// Another machine's BMC has the address from now on.
    Swap,
    SessionsDie,
    PowersOn,
    PowersOff,
    Heard,
    LeaseMoves,
    Paused(bool),
    Unwanted,
    SteadyAgain,
    /// The track calls steady what it read over another session than the fence's.
    SteadyElsewhere,
    /// The replica's track saw what the fence did not.
    Unsteady,
    ReadsFail(bool),
    /// Each of its answers takes so many milliseconds from now on.
    Answers(u64),
    /// It takes no second log-in, or does again.
    NoSecondSession(bool),
    Acts(bool),
    /// The bodies speak of another machine, over the same sessions.
    SaysOther,
    /// How it answers commands from now on.
    Says(Says),
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub bmc: Bmc,
    pub order: FenceOrder,
    /// What happens, by milliseconds since the beginning.
    pub fates: Vec<(u64, Fate)>,
    /// What happens right after so many requests to the BMC.
    pub after_requests: Option<(u32, Fate)>,
    /// Whether the fence is told of what happens, or finds it by its looks alone.
    pub notes: bool,
    pub look_ms: u64,
    pub commit_ms: u64,
    /// How long each sending takes before its first byte could leave, in turn: a connection made anew, a busy process.
    pub late_ms: VecDeque<u64>,
    /// Outcomes of commands by name; all others are Done.
    pub outcomes: BTreeMap<&'static str, Outcome>,
    pub until_ms: u64,

    pub now: u64,
    pub first_boot: u32,
    pub last_truly_off: bool,
    pub wanted: bool,
    pub paused: bool,
    pub heard: Option<u64>,
    pub lease: Option<u64>,
    pub looks: Vec<Look>,
    pub identified: Option<u64>,
    pub committed: BTreeSet<u32>,
    pub answers: BTreeMap<u32, CommandAnswer>,
    pub sent: Vec<(u32, u64)>,
    pub log: Vec<(u64, Command)>,
    pub steps: Vec<&'static str>,
    pub ended: Option<Ended>,
}

pub(super) fn order(class: EvidenceClass) -> FenceOrder {
    let node = NodeName::new("n1").unwrap();
    FenceOrder {
        incident: IncidentId::of(&node, 7),
        incarnation: Incarnation {
            node: NodeUid::new("uid-1").unwrap(),
            machine: P.parse().unwrap(),
            boot: BootId::from_bytes([7; 16]),
        },
        node,
        class,
        pin: Pin {
            machine: P.parse().unwrap(),
            transform: Transform::Rfc,
            system_transform: Transform::Rfc,
            member: MEMBER.to_owned(),
            serial: None,
            manager: None,
            tls_key: None,
        },
        cached: false,
        system_uuid: P.to_owned(),
        fleet: BTreeMap::new(),
        intent_open: false,
        paused: false,
        re_fence: false,
        last_attempt: 0,
        previous_login: None,
        steady: true,
        shown: None,
        off_for: Span::ZERO,
        again: false,
        stalled_after: Span::from_mins(3),
    }
}

pub(super) fn ordered() -> EvidenceClass {
    EvidenceClass::Ordered { who: "jo".to_owned(), why: "disk".to_owned() }
}

pub(super) fn refused() -> Outcome {
    Outcome::Refused(Refusal { reason: "Brake".to_owned(), message: "a brake refuses".to_owned() })
}

pub(super) fn name_of(command: &Command) -> &'static str {
    let names = [
        (matches!(command, Command::Intent { .. }), "Intent"),
        (matches!(command, Command::Attempt { .. }), "Attempt"),
        (matches!(command, Command::AttemptAnswered { .. }), "Answer"),
        (matches!(command, Command::Stalled { .. }), "Stalled"),
        (matches!(command, Command::FoundOnAgain { .. }), "FoundOnAgain"),
        (matches!(command, Command::StillOn { .. }), "StillOn"),
        (matches!(command, Command::Proven { .. }), "Proven"),
    ];
    let name = names.iter().find_map(|(is, name)| is.then_some(*name));
    name.unwrap_or_else(|| panic!("a fence never proposes {command:?}"))
}

impl World {
    /// A host that fell silent while its BMC says On, or that was found off.
    pub(super) fn new(class: EvidenceClass) -> Self {
        let on = !matches!(class, EvidenceClass::FoundOff);
        let mut order = order(class);
        let bmc = Bmc::new(on);
        order.shown = Some(bmc.warm());
        Self {
            bmc,
            order,
            fates: Vec::new(),
            after_requests: None,
            notes: true,
            look_ms: 2,
            commit_ms: 5,
            late_ms: VecDeque::new(),
            outcomes: BTreeMap::new(),
            until_ms: 10 * 60_000,
            now: BEGIN,
            first_boot: 0,
            last_truly_off: false,
            wanted: true,
            paused: false,
            heard: None,
            lease: None,
            looks: Vec::new(),
            identified: None,
            committed: BTreeSet::new(),
            answers: BTreeMap::new(),
            sent: Vec::new(),
            log: Vec::new(),
            steps: Vec::new(),
            ended: None,
        }
    }

    /// Sets something up.
    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Runs until the fence ends or the time is over.
    pub(super) fn run(mut self) -> Self {
        self.paused = self.order.paused;
        self.first_boot = self.bmc.machines[0].boot;
        if self.order.shown.is_some() {
            self.order.shown = Some(self.bmc.warm());
        }
        let mut fence = Fence::new(self.order.clone());
        let mut event = FenceEvent::Start;
        for _ in 0..20_000 {
            let step = fence.next(Mono::from_ms(self.now), event);
            if self.now >= BEGIN + self.until_ms {
                return self;
            }
            self.judge(&step);
            event = match self.perform(&mut fence, step) {
                Some(event) => event,
                None => return self,
            };
        }
        panic!("the fence turns on the spot: {:?}", &self.steps[self.steps.len() - 20..]);
    }

    pub(super) fn proposed(&self, name: &str) -> Vec<&Command> {
        self.log.iter().map(|(_, command)| command).filter(|command| name_of(command) == name).collect()
    }

    pub(super) fn at(&self, name: &str) -> Vec<u64> {
        self.log.iter().filter(|(_, command)| name_of(command) == name).map(|(t, _)| t - BEGIN).collect()
    }

    pub(super) fn proven_at(&self) -> Option<u64> {
        self.at("Proven").last().copied().filter(|_| self.ended == Some(Ended::Proven))
    }

    // === time and fate ===

    /// Lets time pass, with everything that happens in it.
    pub(super) fn pass(&mut self, fence: &mut Fence, ms: u64) {
        let until = self.now + ms;
        while self.next_fate(until, fence) {}
        self.now = until;
        self.bmc.tick(until);
    }

    /// Waits, until something happens.
    pub(super) fn wait(&mut self, fence: &mut Fence, until: u64) {
        if !self.next_fate(until, fence) {
            self.now = until;
            self.bmc.tick(until);
        }
    }

    fn next_fate(&mut self, until: u64, fence: &mut Fence) -> bool {
        let next =
            self.fates.iter().enumerate().min_by_key(|(_, (t, _))| *t).map(|(at, (t, _))| (at, BEGIN + t));
        let Some((at, t)) = next.filter(|(_, t)| *t <= until) else { return false };
        let (_, fate) = self.fates.remove(at);
        self.now = self.now.max(t);
        self.bmc.tick(self.now);
        if let Some(note) = self.happen(&fate) {
            fence.note(Mono::from_ms(self.now), note);
        }
        true
    }

    pub(super) fn requested(&mut self, fence: &mut Fence) {
        if let Some((after, fate)) = self.after_requests.clone()
            && self.bmc.requests >= after
        {
            self.after_requests = None;
            if let Some(note) = self.happen(&fate) {
                fence.note(Mono::from_ms(self.now), note);
            }
        }
    }

    fn happen(&mut self, fate: &Fate) -> Option<Note> {
        self.befall(fate).filter(|_| self.notes)
    }

    fn befall(&mut self, fate: &Fate) -> Option<Note> {
        let now = self.now;
        match fate {
            Fate::BmcRestarts(down, lies) => self.bmc.restart(now, *down, *lies),
            Fate::Swap => self.bmc.swap(),
            Fate::SessionsDie => self.bmc.drop_sessions(),
            Fate::PowersOn => self.bmc.machines[0].set(now, true),
            Fate::PowersOff => self.bmc.machines[0].set(now, false),
            Fate::Unwanted => self.wanted = false,
            Fate::ReadsFail(fail) => self.bmc.fail_reads = *fail,
            Fate::Answers(after) => self.bmc.latency_ms = *after,
            Fate::NoSecondSession(refuses) => self.bmc.no_second_session = *refuses,
            Fate::Acts(acts) => self.bmc.acts = *acts,
            Fate::Says(says) => self.bmc.says = *says,
            Fate::SaysOther => self.bmc.uuid_says = Some(Some(OTHER.to_owned())),
            Fate::Heard => {
                self.heard = Some(now);
                return Some(Note::Heard(Mono::from_ms(now)));
            }
            Fate::LeaseMoves => {
                self.lease = Some(now);
                return Some(Note::LeaseMoved(Mono::from_ms(now)));
            }
            Fate::Paused(paused) => {
                self.paused = *paused;
                return Some(Note::Paused(*paused));
            }
            Fate::Unsteady => return Some(Note::Steady(None)),
            // A track calls it steady after two minutes of answers, by when no BMC still speaks from its defaults.
            Fate::SteadyAgain => {
                let steady = self.bmc.first_is_alive() && now >= self.bmc.lies_off_until;
                let shown = steady.then(|| self.bmc.warm());
                return Some(Note::Steady(shown));
            }
            Fate::SteadyElsewhere => {
                let shown = Continuity { session: Some(999), ..Continuity::default() };
                return Some(Note::Steady(Some(shown)));
            }
        }
        None
    }

    /// A session that a predecessor sent its last command over.
    pub(super) fn succeeds(&mut self, last_attempt: u32) {
        self.order.intent_open = true;
        self.order.last_attempt = last_attempt;
        self.order.previous_login = Some(Login::Session("/redfish/v1/Sessions/predecessor".to_owned()));
    }
}
