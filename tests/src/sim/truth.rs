//! What truly happens, told to the invariants as it happens; and the log as the group has committed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coroner_arbiter_core::apply;
use coroner_arbiter_core::command::{Entry, Outcome};
use coroner_arbiter_core::phase::Phase;
use coroner_arbiter_core::state::State;
use coroner_arbiter_replica::{Applied, Vote, vote_in};
use coroner_shared::id::{BootId, NodeName};
use coroner_shared::time::{Mono, Span};

use super::life::By;
use super::network::{End, Flow};
use super::site::Site;
use super::world::World;
use crate::invariants::{self, Invariant};

/// Something that truly happened.
pub(crate) enum Fact<'a> {
    /// An entry was committed, as the first replica that applied it shows.
    Committed { entry: &'a Entry, outcome: &'a Outcome, before: &'a State, after: &'a State },
    /// A power command of that replica reached a BMC.
    Command { machine: usize, replica: usize, off: bool, sent: Mono },
    /// A machine lost power.
    TurnedOff { machine: usize, by: By },
    /// A machine got power.
    TurnedOn { by: By },
    /// The out-of-service taint was written on a Node, for the life of that boot.
    Tainted { node: NodeName, boot: BootId },
    /// A workload began to run on a machine, as that pod.
    Started { machine: usize, workload: usize, pod: u64 },
    /// People were told of something about a node.
    Paged { node: &'a NodeName, reason: &'a str },
    /// A lone death that nothing stands in the way of should be decided by now, or even proven.
    Due { machine: usize, proven: bool },
    /// The run is over, faults healed long before.
    End,
}

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Which invariant.
    pub invariant: String,
    /// Milliseconds since the beginning.
    pub at: u64,
    /// What happened.
    pub what: String,
}

/// Who hears a machine: since when without a gap, and when last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hears {
    pub(crate) since: Mono,
    pub(crate) last: Mono,
}

/// What is known of the truth.
pub(crate) struct Truth {
    judges: Vec<Box<dyn Invariant>>,
    pub(crate) violations: Vec<Violation>,
    /// The first violation ends the run: it unwinds with it.
    pub(crate) stops: bool,
    /// The state as committed.
    pub(crate) state: State,
    /// The same, for whoever looks at it.
    shown: Arc<State>,
    index: u64,
    entries: BTreeMap<u64, (String, Outcome)>,
    /// By machine and receiver.
    hears: Vec<BTreeMap<usize, Hears>>,
    /// Pages given: node and reason, with how often.
    pub(crate) pages: BTreeMap<(NodeName, String), u32>,
    /// Everything healed, and people did what only they can.
    pub(crate) settled: bool,
    /// Nodes that carry a taint of somebody else, for the end's comparison.
    pub(crate) foreign_taints: Vec<NodeName>,
    /// When the log was last looked at for a power command to a node.
    pub(crate) looks: BTreeMap<NodeName, Mono>,
    /// Who led in which term, and since when.
    leaders: BTreeMap<u64, (usize, Mono)>,
    /// Nodes that people cordoned, for the end's comparison.
    pub(crate) cordoned_by_people: Vec<NodeName>,
    /// Pods that ran on a machine whose Node somebody deleted.
    pub(crate) vouched: BTreeSet<u64>,
}

/// A gap in hearing.
const GAP: Span = Span::from_ms(1250);

// === impl Truth ===

impl Truth {
    pub(crate) fn new(site: &Site) -> Self {
        Self {
            judges: invariants::all(),
            violations: Vec::new(),
            stops: false,
            state: State::default(),
            shown: Arc::default(),
            index: 0,
            entries: BTreeMap::new(),
            hears: vec![BTreeMap::new(); site.nodes],
            pages: BTreeMap::new(),
            settled: false,
            foreign_taints: Vec::new(),
            looks: BTreeMap::new(),
            leaders: BTreeMap::new(),
            cordoned_by_people: Vec::new(),
            vouched: BTreeSet::new(),
        }
    }

    /// A fresh group begins with an empty log.
    pub(crate) fn forget_log(&mut self) {
        self.state = State::default();
        self.shown = Arc::default();
        self.index = 0;
        self.entries.clear();
        self.leaders.clear();
        self.looks.clear();
    }

    /// When the leader of that term was elected.
    pub(crate) fn elected(&self, term: u64) -> Option<Mono> {
        self.leaders.get(&term).map(|(_, since)| *since)
    }

    /// Whether that term was over when its entry was committed: such an entry was true when it was proposed, and whoever
    /// acts on it looks again.
    pub(crate) fn is_over(&self, term: u64) -> bool {
        self.leaders.last_key_value().is_some_and(|(newest, _)| *newest > term)
    }

    /// Entries committed so far.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Who hears that machine.
    pub(crate) fn hears(&self, machine: usize) -> impl Iterator<Item = (usize, Hears)> {
        self.hears[machine].iter().map(|(receiver, hears)| (*receiver, *hears))
    }
}

// === impl World ===

impl World {
    /// Tells the invariants.
    pub(crate) fn tell(&mut self, fact: &Fact<'_>) {
        self.coverage.fact(fact);
        let mut judges = std::mem::take(&mut self.truth.judges);
        for judge in &mut judges {
            if let Some(what) = judge.see(self, fact) {
                self.violation(judge.name(), what);
            }
        }
        self.truth.judges = judges;
    }

    pub(crate) fn violation(&mut self, invariant: &str, what: String) {
        self.say(&format!("VIOLATION of {invariant}: {what}"));
        let at = self.elapsed().as_ms();
        let violation = Violation { invariant: invariant.to_owned(), at, what };
        if self.truth.stops {
            std::panic::resume_unwind(Box::new(violation));
        }
        self.truth.violations.push(violation);
    }

    /// What is committed by now: a read that is asked for now must show at least this.
    pub(crate) fn committed_index(&self) -> u64 {
        self.truth.index
    }

    /// A replica says that it leads.
    pub(crate) fn leads_in(&mut self, index: usize, term: u64) {
        let (first, _) = *self.truth.leaders.entry(term).or_insert((index, self.now));
        if first != index {
            self.violation(
                "one leader per term",
                format!("replicas {first} and {index} lead in term {term}"),
            );
        }
    }

    /// A message of a replica leaves: the vote in it, if there is one, must be on the disk, or the replica votes again
    /// once it has restarted. A disk that lies about it is beyond what a replica can do.
    pub(crate) fn message_leaves(&mut self, index: usize, message: &[u8]) {
        let Some(Vote { term, candidate }) = vote_in(message) else { return };
        let Some(store) = self.replicas[index].process.as_ref().map(|p| p.replica.store()) else { return };
        let on_disk = store.platter().map(|disk| (disk.hard_state.term, disk.hard_state.vote));
        let kept = on_disk.is_some_and(|on_disk| on_disk == (term, candidate) || on_disk.0 > term);
        if store.unsynced() == 0 && !kept {
            let id = self.replicas[index].id;
            let what =
                format!("replica {id} votes for {candidate} in term {term}, its disk says {on_disk:?}");
            self.violation("votes are kept", what);
        }
    }

    /// A replica answers a read that was asked for when that much was committed.
    pub(crate) fn read_answered(&mut self, index: usize, applied: u64, committed: u64) {
        if applied < committed {
            let id = self.replicas[index].id;
            let what = format!(
                "replica {id} answers a read at {applied}, {committed} was committed before it was asked"
            );
            self.violation("reads are linearizable", what);
        }
    }

    /// A page was given.
    pub(crate) fn paged(&mut self, node: &NodeName, reason: &str, text: &str) {
        self.say(&format!("page about {node}: {reason}: {text}"));
        self.coverage.reach(format!("page: {reason}"));
        *self.truth.pages.entry((node.clone(), reason.to_owned())).or_default() += 1;
        self.tell(&Fact::Paged { node, reason });
    }

    /// A replica applied an entry: the first tells what it made, the others must agree.
    pub(crate) fn committed(&mut self, index: usize, applied: &Applied) {
        let id = self.replicas[index].id;
        let Applied { index: at, entry, outcome } = applied;
        if *at <= self.truth.index {
            let same = self.truth.entries.get(at);
            if same.is_some_and(|(key, out)| *key != entry.key || out != outcome) {
                self.violation("replicas agree", format!("replica {id} has another entry {at}"));
            }
            return;
        }
        let own = apply::apply(&mut self.truth.state, *at, entry);
        if own != *outcome {
            self.violation("replicas agree", format!("entry {at} came out otherwise on replica {id}"));
        }
        self.truth.index = *at;
        self.truth.entries.insert(*at, (entry.key.clone(), outcome.clone()));
        let after = Arc::new(self.truth.state.clone());
        let before = std::mem::replace(&mut self.truth.shown, Arc::clone(&after));
        self.trace_entry(*at, entry, outcome, &before, &after);
        self.tell(&Fact::Committed { entry, outcome, before: &before, after: &after });
    }

    fn trace_entry(&mut self, at: u64, entry: &Entry, outcome: &Outcome, before: &State, after: &State) {
        for (name, node) in &after.nodes {
            let was = before.nodes.get(name).map(|n| &n.phase);
            if was != Some(&node.phase)
                && was.is_some_and(|p| p.name() != node.phase.name() || p.incident() != node.phase.incident())
            {
                let from = was.map_or("", Phase::name);
                let detail = detail_of(&node.phase);
                self.say(&format!("[{at}] {name}: {from} -> {}{detail}", node.phase.name()));
            }
        }
        if let Outcome::Refused(refusal) = outcome {
            self.say(&format!("[{at}] refused: {}", refusal.reason));
        }
        self.trace_key(at, entry);
    }

    /// Every entry is part of the hash, though people need not read each.
    fn trace_key(&mut self, at: u64, entry: &Entry) {
        let span = entry.span.as_ms();
        self.trace.note(at, span, &entry.key);
    }

    /// At the end: replicas that have applied everything hold the same state.
    pub(crate) fn compare_replicas(&mut self) {
        for index in 0..self.replicas.len() {
            let Some(process) = &self.replicas[index].process else { continue };
            if process.replica.applied() >= self.truth.index && *process.replica.state() != self.truth.state {
                let id = self.replicas[index].id;
                self.violation("replicas agree", format!("replica {id} holds another state at the end"));
            }
        }
    }

    /// A beacon of that machine's present boot reached another one.
    pub(crate) fn beacon_arrives(&mut self, receiver: usize, source: usize) {
        let now = self.now;
        let hears = self.truth.hears[source].entry(receiver).or_insert(Hears { since: now, last: now });
        if now.since(hears.last) > GAP {
            hears.since = now;
        }
        hears.last = now;
    }

    /// Whether what that machine hears reaches the leader at once: nothing is in the way, and has not been for a while.
    pub(crate) fn is_well_connected(&self, receiver: usize) -> bool {
        const FOR: Span = Span::from_secs(10);
        let Some(leader) = self.leader() else { return false };
        let host = self.site.replicas[leader];
        let (from, to) = (End::Host(receiver), End::Host(host));
        let on = &self.machines[receiver];
        let good = |from, to, flow| {
            self.network.is_whole(from, to, flow) && self.network.is_calm(self.now, (from, to), flow, FOR)
        };
        let whole = [Flow::Report, Flow::Replica]
            .into_iter()
            .all(|flow| good(from, to, flow) && good(to, from, flow));
        on.is_up()
            && on.agent.is_some()
            && on.odd.is_none()
            && whole
            && self.network.weather.loss == 0
            && self.network.weather.corrupt == 0
            && self.network.bursts.is_none()
            && self.now.since(on.disturbed) > FOR
            && self.now.since(self.machines[host].disturbed) > FOR
    }
}

/// Why it is held, or what it is condemned for.
fn detail_of(phase: &Phase) -> String {
    match phase {
        Phase::Held { why, .. } => format!(" ({})", why.word()),
        Phase::Condemned { class, .. } => format!(" ({})", class.word()),
        Phase::Alive
        | Phase::Fencing { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => String::new(),
    }
}
