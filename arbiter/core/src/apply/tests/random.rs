//! Random logs: whatever is said, in whatever order, the invariants hold after every entry, two replicas that apply the
//! same log have equal bytes, and a snapshot in the middle changes nothing.
//!
//! Commands are made against the state they meet, so that most of them fit and logs get deep; some are kept and said
//! again later, as delayed work of an older attempt, incident or life would be.

use std::collections::BTreeMap;

use coroner_shared::bmc::CommandAnswer;
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::time::Span;
use proptest::prelude::*;

use super::edges::ALL;
use super::world::{World, binding, machine, name, offs, pin, policy, secs, uid};
use crate::apply::apply;
use crate::brake;
use crate::command::{Command, Outcome};
use crate::fence::COMMAND_DEADLINE;
use crate::phase::{EvidenceClass, FenceProof, Phase};
use crate::policy::Mode;
use crate::snapshot;
use crate::state::State;

const NODES: u32 = 9;

/// One step: what to say, about whom, a number to vary it with, and how long after the last.
type Step = (u8, u8, u8, u16);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>(), any::<u16>()), 1..160)
}

/// Mostly short spans, sometimes ones that let deadlines pass.
fn span(raw: u16) -> Span {
    match raw % 8 {
        0..=2 => Span::ZERO,
        3..=4 => Span::from_ms(u64::from(raw) / 16),
        5..=6 => secs(u64::from(raw) % 15),
        _ => secs(u64::from(raw) % 70),
    }
}

/// What node 1..=3 lead to most often, so that the same nodes are told of repeatedly.
fn whom(raw: u8) -> u32 {
    match raw % 16 {
        0..=7 => 1 + u32::from(raw % 2) * 4,
        8..=11 => 2,
        _ => u32::from(raw) % NODES + 1,
    }
}

/// The next thing that would happen to a node if all went well, or its machine booted anew.
fn forward(w: &mut World, n: u32, vary: u8) -> Option<Command> {
    let node = name(n);
    let incident = w.state.nodes.get(&node)?.phase.incident().cloned();
    let booted = |w: &mut World| {
        w.new_boot(n);
        let boot = w.boot(n);
        let mut facts = w.facts(n);
        facts.boot = Some(boot);
        facts.ready = true;
        if vary.is_multiple_of(13) {
            facts.system_uuid = machine(n + 50).to_string();
        }
        Command::NodeFacts(facts)
    };
    Some(match (w.phase(n).clone(), vary % 4) {
        (Phase::Alive | Phase::Held { .. }, 0) => Command::Judge(Box::new(w.view(n).on())),
        (Phase::Alive | Phase::Held { .. }, _) => Command::Judge(Box::new(w.view(n).off())),
        (Phase::Condemned { .. }, _) => w.intent(n),
        (Phase::Fencing { attempt: None, .. }, 0) => w.proven(n, 0, offs(n, secs(30), None)),
        (Phase::Fencing { attempt: None, .. }, _) => {
            w.attempt(n, w.last_number(n) + 1, vary.is_multiple_of(3))
        }
        (
            Phase::Fencing { .. }
            | Phase::ProvenOff { .. }
            | Phase::Releasing { .. }
            | Phase::Released { .. },
            0,
        ) => booted(w),
        (Phase::Fencing { .. }, _) => w.proven(n, w.last_number(n), offs(n, secs(30), None)),
        (Phase::ProvenOff { .. }, _) => w.release_begun(n),
        (Phase::Releasing { .. }, _) => w.taint_seen(n),
        (Phase::Released { .. }, _) => w.leftovers_gone(n),
        (Phase::Returning { released: None, .. }, 0 | 1) => w.registration(n),
        (Phase::Returning { released: None, .. }, 2) if vary.is_multiple_of(8) => {
            Command::Judge(Box::new(w.view(n).bmc_silent()))
        }
        (Phase::Returning { released: None, .. }, 2) => Command::Judge(Box::new(w.view(n).off())),
        (Phase::Returning { .. }, 0) => {
            Command::Return { node, who: "alice".to_owned(), why: "w".to_owned() }
        }
        (Phase::Returning { .. }, 1) => Command::TaintRemoved { node, incident: incident? },
        (Phase::Returning { .. }, _) if w.facts(n).tainted_by_us => {
            let mut facts = w.facts(n);
            facts.tainted_by_us = false;
            Command::NodeFacts(facts)
        }
        (Phase::Returning { .. }, _) => Command::Returned { node, incident: incident? },
    })
}

/// The command of a step. Wants the state only to fit it most of the time.
fn command(w: &mut World, kind: u8, n: u32, vary: u8) -> Option<Command> {
    if kind >= 160 {
        return forward(w, n, vary);
    }
    let kind = kind % 40;
    let node = name(n);
    if !w.state.nodes.contains_key(&node) && kind > 3 {
        return Some(Command::Tick);
    }
    match kind {
        0..=3 => Some(fact(w, kind, n, vary)),
        4..=14 => Some(judged(w, kind, n, vary)),
        15..=31 => fenced(w, kind, n, vary),
        32..=36 => released(w, kind, n, vary),
        _ => Some(act(kind, n, vary)),
    }
}

fn who() -> (String, String) {
    ("alice".to_owned(), "because".to_owned())
}

fn fact(w: &mut World, kind: u8, n: u32, vary: u8) -> Command {
    match kind {
        0 => Command::NodeFacts(w.facts(n)),
        1 => w.registration(n),
        2 => {
            if vary.is_multiple_of(3) {
                w.new_boot(n);
            }
            w.registration(n)
        }
        _ => {
            let mut facts = w.facts(n);
            match vary % 6 {
                0 => facts.boot = Some(w.boot(n)),
                1 => facts.ready = !facts.ready,
                2 => facts.tainted_by_us = !facts.tainted_by_us,
                3 => facts.etcd_voter = !facts.etcd_voter,
                4 => facts.system_uuid = machine(n + u32::from(vary % 2) * 50).to_string(),
                _ => {
                    let labels = &mut facts.labels;
                    if labels.remove("topology.kubernetes.io/rack").is_none() {
                        labels.insert("topology.kubernetes.io/rack".to_owned(), format!("r{}", vary % 3));
                    }
                }
            }
            Command::NodeFacts(facts)
        }
    }
}

fn judged(w: &World, kind: u8, n: u32, vary: u8) -> Command {
    let view = w.view(n);
    let view = match kind {
        4..=7 => view.off(),
        8..=10 => view.on(),
        11 => view.bmc_silent(),
        12 => view.alive(),
        13 => view.on().in_a_storm(u32::from(vary % 8)),
        _ => return w.order(n, if vary.is_multiple_of(2) { "alice" } else { "policy/x" }),
    };
    Command::Judge(Box::new(view))
}

fn fenced(w: &World, kind: u8, n: u32, vary: u8) -> Option<Command> {
    let node = name(n);
    let incident = w.state.nodes.get(&node)?.phase.incident()?.clone();
    let number = w.last_number(n);
    Some(match kind {
        15..=18 => Command::Intent { node, incident, read_only: vary.is_multiple_of(5) },
        19..=22 => w.attempt(n, number + u32::from(vary.is_multiple_of(8)) + 1, !vary.is_multiple_of(3)),
        23 => {
            let answer = match vary % 3 {
                0 => CommandAnswer::Refused { why: "409".to_owned() },
                1 => CommandAnswer::Unknown { why: "reset".to_owned() },
                _ => CommandAnswer::Accepted,
            };
            Command::AttemptAnswered { node, incident, number, answer }
        }
        24..=26 => {
            let command = vary.is_multiple_of(2).then_some(CommandAnswer::Accepted);
            let enough = if command.is_some() { 4 } else { 30 };
            let over = secs(if vary.is_multiple_of(7) { 3 } else { enough });
            w.proven(n, if vary.is_multiple_of(4) { 0 } else { number }, offs(n, over, command))
        }
        27 => w.heard(n),
        28 => Command::SilentAgain { node },
        29 => Command::LeaseMoved { node },
        30 if vary.is_multiple_of(2) => w.still_on(n),
        30 => Command::FoundOnAgain { node, incident },
        _ => match vary % 4 {
            0 => w.confirm(n),
            1 => Command::LastReadOn { node, incident },
            2 => Command::LastReadFailed { node, incident, why: "x".to_owned() },
            _ => {
                let disable_binding = vary.is_multiple_of(3);
                Command::Stalled { node, incident, why: "x".to_owned(), disable_binding }
            }
        },
    })
}

fn released(w: &World, kind: u8, n: u32, vary: u8) -> Option<Command> {
    let node = name(n);
    let incident = w.state.nodes.get(&node)?.phase.incident()?.clone();
    Some(match (kind, vary % 4) {
        (32..=33, _) => w.release_begun(n),
        (34, _) => Command::TaintSeen { node, incident },
        (35, 0) => Command::LeftoversGone { node, incident },
        (35, 1) => Command::PowerAfterRelease { node, incident, on: vary > 127 },
        (35, 2) => Command::PowerOn { node, incident },
        (35, _) => Command::Paged { node, reason: "HeldBmcSilent".to_owned() },
        (_, 0) => Command::TaintRemoved { node, incident },
        (_, 1) => Command::Returned { node, incident },
        (_, _) => Command::Return { node, who: who().0, why: who().1 },
    })
}

fn act(kind: u8, n: u32, vary: u8) -> Command {
    let node = name(n);
    let (who, why) = who();
    let all_or_one = (!vary.is_multiple_of(4)).then(|| node.clone());
    let hash = || "b1".to_owned();
    match (kind, vary % 6) {
        (37, 0 | 2 | 4) => Command::Pause { node: all_or_one, who, why },
        (37, _) => Command::Resume { node: all_or_one, who, why },
        (38, 0) => Command::PolicySet(Box::new(policy(Mode::Observe))),
        (38, 1) => Command::PolicyGone { name: "all".to_owned() },
        (38, 2) => Command::BindingVerified { node, hash: hash(), result: Err("Mismatch".to_owned()) },
        (38, 3) => Command::ClearHeld { node, who, why },
        (38, 4) => Command::NodeGone { node, uid: uid(n) },
        (38, _) => Command::Repin { node, who, why },
        (_, 0..=3) => Command::PolicySet(Box::new(policy(Mode::Enforce))),
        (_, 4) => Command::BindingVerified { node, hash: hash(), result: Ok(pin(n)) },
        (_, _) => Command::BindingSet { node, binding: binding(n) },
    }
}

impl World {
    fn last_number(&self, n: u32) -> u32 {
        let incident = self.state.open_incident(&name(n)).map(|(_, i)| i);
        incident.and_then(|i| i.last_attempt.as_ref()).map_or(0, |attempt| attempt.number)
    }
}

/// What the invariants remember from entry to entry.
#[derive(Default)]
struct Seen {
    /// How many attempts each incident had.
    attempts: BTreeMap<IncidentId, u32>,
}

/// Everything that holds after every entry.
fn invariants(before: &State, w: &World, command: &Command, outcome: &Outcome, seen: &mut Seen) {
    let state = &w.state;
    assert!(state.now >= before.now);
    for (node, known) in &state.nodes {
        let was = before.nodes.get(node);
        one_open_incident(state, node);
        edge_exists(was.map(|k| &k.phase), &known.phase);
        if let Some(was) = was {
            never_alive_too_early(before, state, node, &was.phase, &known.phase);
        }
        proofs_are_of_the_life(state, node, &known.phase);
        assert!(known.deaths.len() <= 32 && known.alarms.len() <= 16 && known.paged.len() <= 16);
    }
    graph_is_current(state);
    brakes_hold(before, state, command, outcome);
    attempts_are_permitted(before, state, command, outcome, seen);
    assert!(state.acts.len() <= 256);
    for incident in state.incidents.values() {
        assert!(incident.timeline.len() <= 64);
        assert!(incident.closed.is_none() || incident.terms.is_none());
    }
    if matches!(outcome, Outcome::Stale) {
        // Only time may have passed.
        assert_eq!(kinds(before).len(), kinds(state).len(), "{command:?}");
    }
}

fn kinds(state: &State) -> Vec<&'static str> {
    state.nodes.values().map(|n| n.phase.name()).collect()
}

/// A phase with an incident has an open one of that node, and a node has at most one open.
fn one_open_incident(state: &State, node: &NodeName) {
    let open: Vec<_> =
        state.incidents.iter().filter(|(_, i)| i.node == *node && i.closed.is_none()).collect();
    match state.nodes[node].phase.incident() {
        Some(id) => {
            assert_eq!(open.len(), 1, "{node}: {:?}", open.iter().map(|(id, _)| id).collect::<Vec<_>>());
            assert_eq!(open[0].0, id);
        }
        None => assert_eq!(open.len(), 0, "{node} is Alive with an open incident"),
    }
}

/// No step that is not in the table. One entry may take two of them, where the second follows by itself.
fn edge_exists(was: Option<&Phase>, is: &Phase) {
    let from = was.map_or("Alive", Phase::name);
    let to = is.name();
    let edge = |from: &str, to: &str| ALL.iter().any(|(f, t, _)| *f == from && *t == to);
    let by_two = || ALL.iter().any(|(f, middle, _)| *f == from && edge(middle, to));
    assert!(from == to || edge(from, to) || by_two(), "{from} -> {to}");
}

/// A node is not Alive before the deadline of its last attempt and ten seconds.
fn never_alive_too_early(before: &State, state: &State, node: &NodeName, was: &Phase, is: &Phase) {
    let (Some(id), Phase::Alive) = (was.incident(), is) else { return };
    let same_node =
        before.nodes[node].facts.as_ref().map(|f| &f.uid) == state.nodes[node].facts.as_ref().map(|f| &f.uid);
    let Some(incident) = state.incidents.get(id).filter(|_| same_node) else { return };
    // A hold may follow an attempt (another machine); it was judged well again.
    if let (Some(attempt), false) = (&incident.last_attempt, matches!(was, Phase::Held { .. })) {
        assert!(
            state.now >= attempt.at + COMMAND_DEADLINE + secs(10),
            "{node}: {}",
            incident.closed.as_ref().unwrap().1
        );
    }
}

/// A proof speaks of the life of its incident, and is readings that prove or a person's word.
fn proofs_are_of_the_life(state: &State, node: &NodeName, phase: &Phase) {
    let (Phase::ProvenOff { proof, .. } | Phase::Releasing { proof, .. } | Phase::Released { proof, .. }) =
        phase
    else {
        return;
    };
    let (_, incident) = state.open_incident(node).unwrap();
    assert_eq!(*proof.incarnation(), incident.incarnation);
    assert_eq!(incident.proven, Some(proof.at()));
    match proof {
        FenceProof::BmcOff { readings, .. } => assert!(readings.readings.len() >= 3),
        FenceProof::PersonConfirmed { who, .. } => assert_eq!(who, "alice"),
    }
}

/// Looking at every member finds nothing that the entry forgot to tell the graph.
fn graph_is_current(state: &State) {
    assert!(state.moved.is_empty());
    let mut looked_at = state.clone();
    assert!(!crate::observers::reseat(&mut looked_at), "the graph of observers lags behind the members");
}

/// Whoever is newly condemned by silence or order leaves the counts within the limits; so does each intent.
fn brakes_hold(before: &State, state: &State, command: &Command, outcome: &Outcome) {
    if *outcome != Outcome::Done {
        return;
    }
    let new_harm = |node: &NodeName| {
        let class = state.open_incident(node).and_then(|(_, i)| i.class.clone());
        let now = &state.nodes[node].phase;
        let condemned = matches!(now, Phase::Condemned { .. })
            && !matches!(before.nodes.get(node).map(|k| &k.phase), Some(Phase::Condemned { .. }));
        condemned && matches!(class, Some(EvidenceClass::HostSilentBmcOn | EvidenceClass::Ordered { .. }))
    };
    let (Command::Judge(_) | Command::Order { .. }) = command else { return };
    for node in state.nodes.keys().filter(|n| new_harm(n)) {
        let limits = brake::limits(state);
        let counts = brake::counts(state);
        assert!(counts.in_flight <= limits.in_flight, "{node}: {counts:?}");
        assert!(counts.down < limits.floor.max(1), "{node}: {counts:?}");
        assert!(!brake::storm_on(state));
        assert!(state.pause.is_none() && state.nodes[node].pause.is_none());
    }
    // Found off or not: one decision a second.
    if state.brakes.last_decision != before.brakes.last_decision
        && let (Some(last), Some(now)) = (before.brakes.last_decision, state.brakes.last_decision)
    {
        let is_confirmation = matches!(command, Command::ConfirmOff { .. });
        assert!(is_confirmation || now.since(last) >= secs(1), "{last:?} {now:?}");
    }
}

/// An attempt is one more than the last, and goes to nobody who is heard, paused or rebooted.
fn attempts_are_permitted(
    before: &State,
    state: &State,
    command: &Command,
    outcome: &Outcome,
    seen: &mut Seen,
) {
    let (Command::Attempt { node, incident, number, .. }, Outcome::Done) = (command, outcome) else { return };
    let last = seen.attempts.insert(incident.clone(), *number).unwrap_or(0);
    assert_eq!(*number, last + 1);
    let known = &before.nodes[node];
    let record = &state.incidents[incident];
    let re_fence = matches!(known.phase, Phase::Fencing { released: Some(_), .. });
    let ordered = matches!(record.class, Some(EvidenceClass::Ordered { .. }));
    assert!(known.heard_since.is_none() || re_fence || ordered, "heard");
    assert!(before.pause.is_none() && known.pause.is_none(), "paused");
    // The boot that registered, or the one that the kubelet reports since and whose agent never came up.
    let (member, boot) = (known.member.as_ref().unwrap(), record.incarnation.boot);
    let unregistered = member.boot_is_over() && !member.left_boots.contains(&boot);
    assert!(member.boot == boot || unregistered, "rebooted: {boot}, {member:?}");
    assert!(crate::permit::fenceable(before, node).is_ok());
    assert!(crate::permit::stopped(before, node).is_none());
}

/// Runs a log of these steps, checking after every entry.
fn run(steps: &[Step]) -> World {
    let mut w = World::in_racks(NODES, |n| (n % 3 != 0).then_some(n % 3));
    let mut seen = Seen::default();
    let mut kept: Vec<Command> = Vec::new();
    for (kind, raw, vary, wait) in steps {
        let late = (*vary > 230 && !kept.is_empty()).then(|| kept[usize::from(*kind) % kept.len()].clone());
        let Some(command) = late.or_else(|| command(&mut w, *kind, whom(*raw), *vary)) else { continue };
        if vary.is_multiple_of(9) {
            kept.push(command.clone());
        }
        let before = w.state.clone();
        let outcome = w.say_after(span(*wait), command.clone());
        invariants(&before, &w, &command, &outcome, &mut seen);
    }
    w
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_said_the_invariants_hold_and_replicas_agree(steps in steps(), cut in any::<prop::sample::Index>()) {
        let w = run(&steps);
        let want = snapshot::hash(&w.state).unwrap();
        // Another replica applies the same log.
        let mut other = State::default();
        for (index, entry) in &w.log {
            apply(&mut other, *index, entry);
        }
        prop_assert_eq!(&snapshot::hash(&other).unwrap(), &want);
        // A third begins with a snapshot in the middle, and is told of some entries again.
        let cut = cut.index(w.log.len());
        let mut third = State::default();
        for (index, entry) in &w.log[..cut] {
            apply(&mut third, *index, entry);
        }
        let mut third = snapshot::from_bytes(&snapshot::to_bytes(&third).unwrap()).unwrap();
        for (index, entry) in &w.log[cut.saturating_sub(5)..] {
            apply(&mut third, *index, entry);
        }
        prop_assert_eq!(snapshot::hash(&third).unwrap(), want);
        // Every projection is total.
        let _ = crate::jobs::jobs(&third);
        let _ = crate::jobs::deadline(&third);
        let _ = crate::status::attention(&third);
        let _ = crate::status::problems(&third);
        for id in third.incidents.keys() {
            let _ = crate::status::incident(&third, id);
        }
    }
}

/// The generator is worth something only if it gets everywhere.
#[test]
fn random_logs_reach_every_phase_and_most_edges() {
    let mut rng = 0x1234_5678_9abc_def0_u64;
    let mut next = || {
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        rng
    };
    let mut walked: BTreeMap<(String, String), u32> = BTreeMap::new();
    for _ in 0..200 {
        let steps: Vec<Step> = (0..160)
            .map(|_| {
                let raw = next();
                let byte = |at: u32| u8::try_from((raw >> at) & 0xff).unwrap();
                (byte(0), byte(8), byte(16), u16::try_from((raw >> 24) & 0xffff).unwrap())
            })
            .collect();
        let w = run(&steps);
        let mut replay = State::default();
        for (index, entry) in &w.log {
            let before: BTreeMap<NodeName, String> =
                replay.nodes.iter().map(|(n, k)| (n.clone(), k.phase.name().to_owned())).collect();
            apply(&mut replay, *index, entry);
            for (node, known) in &replay.nodes {
                let from = before.get(node).cloned().unwrap_or_else(|| "Alive".to_owned());
                let to = known.phase.name().to_owned();
                if from != to {
                    *walked.entry((from, to)).or_default() += 1;
                }
            }
        }
    }
    let missing: Vec<_> = ALL
        .iter()
        .filter(|(from, to, _)| from != to && *from != "any")
        .filter(|(from, to, _)| !walked.contains_key(&((*from).to_owned(), (*to).to_owned())))
        .collect();
    assert!(missing.is_empty(), "never walked: {missing:?}\nwalked: {walked:?}");
}
