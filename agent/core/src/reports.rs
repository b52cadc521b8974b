//! What the replicas have yet to be told: one statement per subject, sent to each replica until it has it.
//!
//! ```text
//!   silent, heard, doubts, terms, acks --> Outbox --> a batch per replica that lacks something
//! ```
//!
//! Not a queue of messages but the newest statement about each subject, with the number of its last change. A batch
//! is written anew each time it is sent, so its ages are true and a lost one costs nothing. A replica lacks what was
//! changed after the number that it acknowledged last.

use coroner_shared::mutant::{Mutant, planted};

use std::collections::BTreeMap;
use std::net::SocketAddr;

use coroner_shared::beacon::{Report, ReportBatch, SelfDoubt};
use coroner_shared::id::{BootId, NodeUid, ReplicaId};
use coroner_shared::names::PORT_REPORT;
use coroner_shared::slice::ReplicaPeer;
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::datagram::{Message, Sender, encoded_bytes};
use coroner_shared::wire::{DATAGRAM_BYTES_MAX, REPORTS_MAX};

use crate::paths::Detail;
use crate::peers::Subjects;

/// An unacknowledged batch is sent again after this.
const RESEND: Span = Span::from_ms(100);
/// To a replica that said nothing for [`DEAF_AFTER`]: it is down, and gets all the rest when it speaks.
const RESEND_DEAF: Span = Span::from_secs(1);
const DEAF_AFTER: Span = Span::from_secs(3);
/// A withdrawal that a replica has not acknowledged for this long is dropped: the snapshots since say the same.
const HEARD_KEPT: Span = Span::from_secs(60);

/// All that is to be told.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Of the newest change. Begins at the clock's milliseconds, so it rises over restarts of the agent.
    number: u64,
    statements: BTreeMap<NodeUid, Statement>,
    /// Number of the newest snapshot.
    snapshot: u64,
    /// `None` before the first slice.
    next_snapshot: Option<Mono>,
    term: u64,
    replicas: BTreeMap<ReplicaId, Line>,
}

/// That something is to be said about a subject; what, is looked up when it is sent.
#[derive(Clone, Copy, Debug)]
struct Statement {
    number: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Silent,
    /// Withdrawn at this time.
    Heard(Mono),
}

/// How far one replica is.
#[derive(Clone, Copy, Debug)]
struct Line {
    to: SocketAddr,
    acked: u64,
    resend: Mono,
    /// When it last spoke; when it was first known, where it never did.
    heard: Mono,
}

/// Who speaks, and what it knows at this moment.
pub(crate) struct Speaker<'a> {
    pub(crate) now: Mono,
    pub(crate) node: &'a NodeUid,
    pub(crate) boot: BootId,
    pub(crate) doubts: &'a [SelfDoubt],
    pub(crate) subjects: &'a Subjects,
}

// === impl Outbox ===

impl Outbox {
    pub(crate) const fn new(now: Mono) -> Self {
        Self {
            number: now.as_ms(),
            statements: BTreeMap::new(),
            snapshot: 0,
            next_snapshot: None,
            term: 0,
            replicas: BTreeMap::new(),
        }
    }

    /// Takes the replicas of a new slice. One that is new gets a snapshot.
    pub(crate) fn assign(&mut self, now: Mono, replicas: &[ReplicaPeer]) {
        let mut before = std::mem::take(&mut self.replicas);
        for replica in replicas {
            let to = SocketAddr::new(replica.address, PORT_REPORT);
            let line = match before.remove(&replica.id) {
                Some(known) => Line { to, ..known },
                None => Line { to, acked: 0, resend: now, heard: now },
            };
            self.replicas.insert(replica.id, line);
        }
        if self.replicas.values().any(|line| line.acked == 0) {
            self.take_snapshot(now);
        }
        self.next_snapshot.get_or_insert(now);
    }

    /// These subjects are no longer this agent's to speak of.
    pub(crate) fn forget(&mut self, subjects: &[NodeUid]) {
        self.statements.retain(|node, _| !subjects.contains(node));
    }

    /// A subject fell silent, or what is known of its silence changed.
    pub(crate) fn silent(&mut self, now: Mono, subject: NodeUid) {
        self.state(now, subject, Kind::Silent);
    }

    /// A subject that was reported silent is heard.
    pub(crate) fn heard(&mut self, now: Mono, subject: NodeUid) {
        self.state(now, subject, Kind::Heard(now));
    }

    /// This agent's own doubts changed: whoever holds an accusation of it must know.
    pub(crate) fn doubts_changed(&mut self, now: Mono) {
        if self.statements.values().any(|s| s.kind == Kind::Silent) {
            self.change(now);
        }
    }

    /// A replica spoke.
    pub(crate) fn contact(&mut self, now: Mono, replica: ReplicaId) {
        if let Some(line) = self.replicas.get_mut(&replica) {
            if now.since(line.heard) > DEAF_AFTER {
                line.resend = now;
            }
            line.heard = now;
        }
    }

    /// A replica names a term; a new one gets a snapshot.
    pub(crate) fn term(&mut self, now: Mono, term: u64) {
        if term > self.term {
            self.term = term;
            if !planted(Mutant::NoSnapshotOnTerm) {
                self.take_snapshot(now);
            }
        }
    }

    /// A replica has the batch of this number.
    pub(crate) fn acked(&mut self, now: Mono, replica: ReplicaId, number: u64) {
        let Some(line) = self.replicas.get_mut(&replica) else { return };
        // Nobody can have what was not yet said.
        if number > line.acked && number <= self.number {
            line.acked = number;
            line.resend = now;
        }
        self.drop_told(now);
    }

    /// The batches that are due, each with its replica's address.
    pub(crate) fn tick(
        &mut self,
        speaker: &Speaker<'_>,
        snapshot_every: Span,
    ) -> Vec<(SocketAddr, ReportBatch)> {
        let now = speaker.now;
        if self.next_snapshot.is_some_and(|at| now >= at) {
            self.next_snapshot = Some(now + snapshot_every);
            self.take_snapshot(now);
            self.drop_told(now);
        }
        let lacking = |line: &Line| line.acked < self.number && now >= line.resend;
        let due: Vec<ReplicaId> =
            self.replicas.iter().filter(|(_, l)| lacking(l)).map(|(id, _)| *id).collect();
        let mut batches = Vec::new();
        for id in due {
            let Some(line) = self.replicas.get(&id).copied() else { continue };
            let batch = self.batch(speaker, line.acked);
            let deaf = now.since(line.heard) > DEAF_AFTER;
            let resend = now + if deaf { RESEND_DEAF } else { RESEND };
            self.replicas.insert(id, Line { resend, ..line });
            batches.push((line.to, batch));
        }
        batches
    }

    /// When [`Outbox::tick`] has something to do.
    pub(crate) fn due(&self) -> Option<Mono> {
        let lacking = self.replicas.values().filter(|line| line.acked < self.number);
        lacking.map(|line| line.resend).chain(self.next_snapshot).min()
    }

    /// Where statuses go.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.values().map(|line| line.to).collect()
    }

    /// A new number; every replica lacks it and gets it at the next tick.
    fn change(&mut self, now: Mono) -> u64 {
        self.number += 1;
        for line in self.replicas.values_mut() {
            line.resend = now;
        }
        self.number
    }

    fn state(&mut self, now: Mono, subject: NodeUid, kind: Kind) {
        let number = self.change(now);
        self.statements.insert(subject, Statement { number, kind });
    }

    /// All that are silent are to be told again. Each gets a number of its own, so that a snapshot that does not fit
    /// one datagram can be sent in parts.
    fn take_snapshot(&mut self, now: Mono) {
        let mut number = self.number;
        for statement in self.statements.values_mut().filter(|s| s.kind == Kind::Silent) {
            number += 1;
            statement.number = number;
        }
        self.number = number;
        self.snapshot = self.change(now);
    }

    /// Withdrawals that every replica has, or that are too old to matter, are done.
    fn drop_told(&mut self, now: Mono) {
        let everyone = self.replicas.values().map(|line| line.acked).min().unwrap_or(0);
        self.statements.retain(|_, statement| match statement.kind {
            Kind::Silent => true,
            Kind::Heard(at) => statement.number > everyone && now.since(at) <= HEARD_KEPT,
        });
    }

    /// All that a replica at `acked` lacks, or as much as fits one datagram.
    fn batch(&self, speaker: &Speaker<'_>, acked: u64) -> ReportBatch {
        let mut lacking: Vec<(u64, &NodeUid)> = self
            .statements
            .iter()
            .filter(|(_, s)| s.number > acked)
            .map(|(node, s)| (s.number, node))
            .collect();
        lacking.sort_unstable();
        // A replica that has a part of it already would take the rest for all there is.
        let whole = self.statements.values().all(|s| s.kind != Kind::Silent || s.number > acked);
        let snapshot = whole && acked < self.snapshot;
        for detail in [Detail::All, Detail::Newest] {
            let reports = lacking.iter().filter_map(|(_, node)| speaker.report(node, detail)).collect();
            let batch = speaker.batch(self.number, snapshot, reports);
            if speaker.fits(&batch) {
                return batch;
            }
        }
        // In parts, the oldest change first. A part is no snapshot: it would say that the others are heard.
        let mut part = speaker.batch(acked, false, Vec::new());
        for (number, node) in lacking {
            let Some(report) = speaker.report(node, Detail::Newest) else { continue };
            let mut longer = part.clone();
            longer.reports.push(report);
            longer.number = number;
            if !speaker.fits(&longer) {
                break;
            }
            part = longer;
        }
        part
    }
}

// === impl Speaker ===

impl Speaker<'_> {
    fn report(&self, node: &NodeUid, detail: Detail) -> Option<Report> {
        let hearing = self.subjects.get(node)?.hearing(self.now, detail)?;
        Some(Report { subject: node.clone(), hearing })
    }

    fn batch(&self, number: u64, snapshot: bool, reports: Vec<Report>) -> ReportBatch {
        ReportBatch { boot: self.boot, number, snapshot, doubts: self.doubts.to_vec(), reports }
    }

    fn fits(&self, batch: &ReportBatch) -> bool {
        let sender = Sender::Node(self.node.clone());
        batch.reports.len() <= REPORTS_MAX
            && encoded_bytes(&sender, &Message::Reports(batch.clone())) <= DATAGRAM_BYTES_MAX
    }
}
