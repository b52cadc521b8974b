//! A cluster in a test: nodes with machines, boots, keys, bindings and one policy, spoken to by commands. What is said
//! is kept as a log, so that a test can replay it.

use std::collections::BTreeMap;

use coroner_shared::bmc::{CommandAnswer, Continuity, Login, Power, PowerReading};
use coroner_shared::id::{BootId, Incarnation, IncidentId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::PublicKey;
use coroner_shared::machine_id::{MachineId, Transform};
use coroner_shared::time::Span;

use crate::apply::apply;
use crate::command::{Command, Entry, NodeFacts, Outcome};
use crate::hears::Hears;
use crate::phase::{Confirmation, OffReadings, Phase, Released};
use crate::policy::{AfterRelease, Binding, Brakes, LifeTimings, Mode, Pin, Policy, ReleaseStrategy, Rules};
use crate::state::{Incident, Node, State};

/// A cluster and what was said to its log.
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) log: Vec<(u64, Entry)>,
    index: u64,
    keys: u64,
    /// Boot of each node by number; rises with every reboot.
    boots: BTreeMap<u32, u8>,
}

pub(crate) fn name(n: u32) -> NodeName {
    format!("n{n}").parse().unwrap()
}

pub(crate) fn uid(n: u32) -> NodeUid {
    NodeUid::new(format!("uid-{n}")).unwrap()
}

pub(crate) fn machine(n: u32) -> MachineId {
    format!("4c4c4544-0042-4d10-8052-{n:012x}").parse().unwrap()
}

pub(crate) fn boot(n: u32, count: u8) -> BootId {
    format!("8d2c6f3a-1b4e-4c7d-{:04x}-{n:012x}", 0x9000 + u16::from(count)).parse().unwrap()
}

pub(crate) fn key(n: u32, count: u8) -> PublicKey {
    let mut bytes = [count; 32];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    PublicKey::from_bytes(bytes)
}

pub(crate) fn replica(id: u64) -> ReplicaId {
    ReplicaId::new(id).unwrap()
}

pub(crate) fn member_path() -> String {
    "/redfish/v1/Systems/1".to_owned()
}

pub(crate) fn pin(n: u32) -> Pin {
    Pin {
        machine: machine(n),
        transform: Transform::Rfc,
        system_transform: Transform::Rfc,
        member: member_path(),
        serial: None,
        manager: None,
        tls_key: None,
    }
}

pub(crate) fn policy(mode: Mode) -> Policy {
    Policy {
        name: "all".to_owned(),
        hash: format!("{mode:?}"),
        node_selector: BTreeMap::new(),
        mode,
        rules: Rules::BALANCED,
        brakes: Brakes::DEFAULT,
        timings: LifeTimings::DEFAULT,
        release: ReleaseStrategy::Expedite,
        after_release: AfterRelease::PowerOn,
        power_poll: Span::from_secs(30),
        paused: false,
        unusable: None,
    }
}

pub(crate) fn secs(s: u64) -> Span {
    Span::from_secs(s)
}

/// What the node was like: two pods and a volume.
pub(crate) fn before() -> Released {
    Released {
        was_cordoned: false,
        was_tainted: false,
        pods: vec![("pod-1".to_owned(), "default/web-0".to_owned())],
        attachments: vec![("va-1".to_owned(), "csi-1".to_owned())],
    }
}

impl World {
    /// `n` nodes, each a failure domain of its own, registered, bound and verified, under one policy in Enforce, well
    /// for an hour of log time; replicas on the first three.
    pub(crate) fn new(n: u32) -> Self {
        Self::in_racks(n, |_| None)
    }

    /// The same, with a rack label by node number.
    pub(crate) fn in_racks(n: u32, rack: fn(u32) -> Option<u32>) -> Self {
        let mut world = Self {
            state: State::default(),
            log: Vec::new(),
            index: 0,
            keys: 0,
            boots: (1..=n).map(|n| (n, 1)).collect(),
        };
        world.done(Command::PolicySet(Box::new(policy(Mode::Enforce))));
        for i in 1..=n {
            let mut facts = world.facts(i);
            if let Some(rack) = rack(i) {
                facts.labels.insert("topology.kubernetes.io/rack".to_owned(), format!("r{rack}"));
            }
            world.done(Command::NodeFacts(facts));
            world.done(world.registration(i));
            world.done(Command::BindingSet { node: name(i), binding: binding(i) });
            world.done(Command::BindingVerified { node: name(i), hash: "b1".to_owned(), result: Ok(pin(i)) });
        }
        for id in 1..=3_u32.min(n) {
            world.replica_on(id);
        }
        world.wait(secs(3600));
        world
    }

    // === speaking ===

    /// A replica that runs on the node of its number.
    pub(crate) fn replica_on(&mut self, id: u32) {
        self.done(Command::ReplicaKnows {
            replica: replica(u64::from(id)),
            host: name(id),
            address: format!("10.0.0.{id}").parse().unwrap(),
            key: key(id, 200),
            level: 1,
        });
    }

    /// One entry with a span.
    pub(crate) fn say_after(&mut self, span: Span, command: Command) -> Outcome {
        self.keys += 1;
        let key = format!("key-{}", self.keys);
        let entry = Entry { span, leader: replica(1), term: 3, key, command };
        self.say_entry(entry)
    }

    /// One entry at once.
    pub(crate) fn say(&mut self, command: Command) -> Outcome {
        self.say_after(Span::ZERO, command)
    }

    /// One entry as it stands.
    pub(crate) fn say_entry(&mut self, entry: Entry) -> Outcome {
        self.index += 1;
        let outcome = apply(&mut self.state, self.index, &entry);
        self.log.push((self.index, entry));
        outcome
    }

    /// One entry that must change something.
    #[track_caller]
    pub(crate) fn done(&mut self, command: Command) {
        let shown: String = format!("{command:?}").chars().take(120).collect();
        let outcome = self.say(command);
        assert_eq!(outcome, Outcome::Done, "{shown}");
    }

    /// One entry that must be refused with this word.
    #[track_caller]
    pub(crate) fn refused(&mut self, reason: &str, command: Command) {
        let shown: String = format!("{command:?}").chars().take(120).collect();
        match self.say(command) {
            Outcome::Refused(refusal) => assert_eq!(refusal.reason, reason, "{}", refusal.message),
            other @ (Outcome::Done | Outcome::Unchanged | Outcome::Stale) => {
                panic!("{other:?} instead of {reason} for {shown}")
            }
        }
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, span: Span) {
        let mut left = span;
        while left > Span::ZERO {
            let step = left.min(secs(60));
            self.say_after(step, Command::Tick);
            left = left.saturating_sub(step);
        }
    }

    // === parts ===

    pub(crate) fn boot(&self, n: u32) -> BootId {
        boot(n, self.boots.get(&n).copied().unwrap_or(1))
    }

    pub(crate) fn life(&self, n: u32) -> Incarnation {
        Incarnation { node: uid(n), machine: machine(n), boot: self.boot(n) }
    }

    pub(crate) fn facts(&self, n: u32) -> NodeFacts {
        let known = self.state.nodes.get(&name(n)).and_then(|node| node.facts.clone());
        let fresh = NodeFacts {
            node: name(n),
            uid: uid(n),
            system_uuid: machine(n).to_string(),
            boot: Some(self.boot(n)),
            ready: true,
            labels: BTreeMap::new(),
            control_plane: false,
            etcd_voter: false,
            tainted_by_us: false,
        };
        known.unwrap_or(fresh)
    }

    /// Facts with something changed.
    pub(crate) fn change(&mut self, n: u32, change: impl FnOnce(&mut NodeFacts)) -> Outcome {
        let mut facts = self.facts(n);
        change(&mut facts);
        self.say(Command::NodeFacts(facts))
    }

    pub(crate) fn registration(&self, n: u32) -> Command {
        Command::Register {
            node: name(n),
            uid: uid(n),
            machine: Ok(machine(n)),
            boot: self.boot(n),
            key: key(n, 1),
            address: format!("10.1.{}.{}", n / 250, n % 250 + 1).parse().unwrap(),
            by_token: true,
        }
    }

    pub(crate) fn node(&self, n: u32) -> &Node {
        &self.state.nodes[&name(n)]
    }

    pub(crate) fn phase(&self, n: u32) -> &Phase {
        &self.node(n).phase
    }

    /// Name of the phase, with the word of a hold: `Held:Paused`.
    pub(crate) fn stands(&self, n: u32) -> String {
        let phase = self.phase(n);
        let detail = match phase {
            Phase::Held { why, .. } => Some(why.word()),
            Phase::Fencing { released, .. } => released.as_ref().map(|_| "re-fence"),
            Phase::Returning { released, .. } => released.as_ref().map(|_| "released"),
            Phase::Alive
            | Phase::Condemned { .. }
            | Phase::ProvenOff { .. }
            | Phase::Releasing { .. }
            | Phase::Released { .. } => None,
        };
        detail.map_or_else(|| phase.name().to_owned(), |detail| format!("{}:{detail}", phase.name()))
    }

    #[track_caller]
    pub(crate) fn incident_id(&self, n: u32) -> IncidentId {
        self.phase(n).incident().cloned().unwrap_or_else(|| panic!("n{n} is {}", self.stands(n)))
    }

    #[track_caller]
    pub(crate) fn incident(&self, n: u32) -> &Incident {
        &self.state.incidents[&self.incident_id(n)]
    }

    /// The newest incident of a node, open or closed.
    #[track_caller]
    pub(crate) fn last_incident(&self, n: u32) -> &Incident {
        let of = self.state.incidents.values().filter(|i| i.node == name(n));
        of.max_by_key(|i| (i.opened, i.version)).unwrap()
    }

    /// How the newest incident of a node was closed.
    #[track_caller]
    pub(crate) fn closed(&self, n: u32) -> &str {
        self.last_incident(n).closed.as_ref().map_or("open", |(_, how)| how.as_str())
    }

    // === commands about an open incident ===

    pub(crate) fn heard(&self, n: u32) -> Command {
        Command::Heard { node: name(n), boot: self.boot(n), seq: 1 }
    }

    pub(crate) fn order(&self, n: u32, who: &str) -> Command {
        Command::Order { node: name(n), uid: uid(n), who: who.to_owned(), why: "because".to_owned() }
    }

    pub(crate) fn intent(&self, n: u32) -> Command {
        Command::Intent { node: name(n), incident: self.incident_id(n), read_only: false }
    }

    pub(crate) fn attempt(&self, n: u32, number: u32, was_on: bool) -> Command {
        Command::Attempt {
            node: name(n),
            incident: self.incident_id(n),
            number,
            login: Login::Session(format!("/session/{number}")),
            was_on,
        }
    }

    pub(crate) fn answered(&self, n: u32, number: u32, answer: CommandAnswer) -> Command {
        Command::AttemptAnswered { node: name(n), incident: self.incident_id(n), number, answer }
    }

    pub(crate) fn proven(&self, n: u32, attempt: u32, readings: OffReadings) -> Command {
        Command::Proven {
            node: name(n),
            incident: self.incident_id(n),
            incarnation: self.incident(n).incarnation.clone(),
            attempt,
            readings: Box::new(readings),
        }
    }

    pub(crate) fn release_begun(&self, n: u32) -> Command {
        Command::ReleaseBegun { node: name(n), incident: self.incident_id(n), before: before(), again: None }
    }

    pub(crate) fn confirm(&self, n: u32) -> Command {
        let incident = self.incident(n);
        Command::ConfirmOff {
            node: name(n),
            confirmation: Confirmation {
                incident: self.incident_id(n),
                node: incident.incarnation.node.clone(),
                boot: incident.incarnation.boot,
                who: "alice".to_owned(),
                why: "I pulled the cord".to_owned(),
            },
            heard: Hears::Silence,
        }
    }

    pub(crate) fn still_on(&self, n: u32) -> Command {
        Command::StillOn { node: name(n), incident: self.incident_id(n), read: true }
    }

    pub(crate) fn taint_seen(&self, n: u32) -> Command {
        Command::TaintSeen { node: name(n), incident: self.incident_id(n) }
    }

    pub(crate) fn leftovers_gone(&self, n: u32) -> Command {
        Command::LeftoversGone { node: name(n), incident: self.incident_id(n) }
    }

    // === longer ways ===

    /// Condemned as found off.
    #[track_caller]
    pub(crate) fn found_off(&mut self, n: u32) {
        let view = self.view(n).off();
        self.done(Command::Judge(Box::new(view)));
        assert_eq!(self.stands(n), "Condemned");
    }

    /// Condemned as silent with its BMC On.
    #[track_caller]
    pub(crate) fn silent_on(&mut self, n: u32) {
        let view = self.view(n).on();
        self.done(Command::Judge(Box::new(view)));
        assert_eq!(self.stands(n), "Condemned");
    }

    /// Fencing, one attempt sent to a machine that was on, and accepted.
    #[track_caller]
    pub(crate) fn attempted(&mut self, n: u32) {
        self.silent_on(n);
        self.done(self.intent(n));
        self.done(self.attempt(n, 1, true));
        self.done(self.answered(n, 1, CommandAnswer::Accepted));
    }

    /// Proven off after an accepted attempt.
    #[track_caller]
    pub(crate) fn proven_off(&mut self, n: u32) {
        self.attempted(n);
        self.wait(secs(5));
        self.done(self.proven(n, 1, offs(n, secs(4), Some(CommandAnswer::Accepted))));
        assert_eq!(self.stands(n), "ProvenOff");
    }

    /// Released: the taint stands.
    #[track_caller]
    pub(crate) fn released(&mut self, n: u32) {
        self.proven_off(n);
        self.done(self.release_begun(n));
        self.done(self.taint_seen(n));
        self.change(n, |f| f.tainted_by_us = true);
        assert_eq!(self.stands(n), "Released");
    }

    /// The machine boots anew; the kubelet says so and is Ready, the agent registers with its key.
    pub(crate) fn reboot(&mut self, n: u32) {
        self.new_boot(n);
        let boot = self.boot(n);
        let registration = self.registration(n);
        self.say(registration);
        self.change(n, |f| {
            f.boot = Some(boot);
            f.ready = true;
        });
    }

    /// The machine, silent and held, boots anew, and its kubelet alone says so: its agent does not come up.
    pub(crate) fn boot_without_agent(&mut self, n: u32) {
        let held = self.view(n).bmc_silent();
        self.done(Command::Judge(Box::new(held)));
        self.new_boot(n);
        let boot = self.boot(n);
        self.change(n, |f| f.boot = Some(boot));
        assert_eq!(self.stands(n), "Alive");
    }

    /// The machine has another boot id from here on; nobody has said so yet.
    pub(crate) fn new_boot(&mut self, n: u32) {
        *self.boots.entry(n).or_insert(1) += 1;
    }
}

pub(crate) fn binding(_n: u32) -> Binding {
    Binding { hash: "b1".to_owned(), network: "bmc".to_owned(), quirks: vec![], pin: None, disabled: None }
}

/// Three Off readings of the right machine over a span, the last over a new session, from a steady BMC.
pub(crate) fn offs(n: u32, over: Span, command: Option<CommandAnswer>) -> OffReadings {
    let reading = |session: u64, connection: u64| PowerReading {
        power: Power::Off,
        uuid: Some(machine(n).to_string()),
        took: Span::from_ms(50),
        continuity: Continuity {
            session: Some(session),
            connection: Some(connection),
            reset_time: Some("2026-01-01T00:00:00Z".to_owned()),
        },
    };
    let half = Span::from_ms(over.as_ms() / 2);
    OffReadings {
        readings: vec![(Span::ZERO, reading(1, 1)), (half, reading(1, 1)), (over, reading(2, 2))],
        closing: None,
        steady: true,
        command,
        member: member_path(),
        transform: Transform::Rfc,
        identity_before: machine(n).to_string(),
        identity_after: machine(n).to_string(),
        last_over_new_session: true,
        cached: false,
    }
}
