//! What a replica does with what it hears of 5,000 nodes, signatures apart (`datagrams` has those): each of them sends
//! it a status a second, observers report their silent subjects, and ten times a second everything that the leader must
//! know is put together.

use std::collections::BTreeMap;
use std::hint::black_box;

use anyhow::{Context, Result, ensure};
use coroner_arbiter_core::state::{Member, State};
use coroner_arbiter_core::witness::{CheckedBatch, Proven, Witness};
use coroner_shared::beacon::{Beacon, Hearing, Report, ReportBatch, SignedBeacon, Status};
use coroner_shared::health::HealthSummary;
use coroner_shared::id::{ClusterId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::SecretKey;
use coroner_shared::time::{Mono, Span};

use super::fleet::{NODES, state};
use super::row::Row;
use super::samples::{Samples, time};
use crate::lab::writer::boottime_ns;

const US: f64 = 1_000.0;
const MS: f64 = 1_000_000.0;
/// Seconds of statuses.
const SECONDS: u64 = 30;
/// Between two looks of a replica.
const TICK: Span = Span::from_ms(50);
const SILENT: usize = 1_000;

/// A node, and what it says when nothing is wrong.
struct Speaker {
    name: NodeName,
    uid: NodeUid,
    beacon: Beacon,
    status: Status,
}

/// Measures.
///
/// # Errors
/// The sample is none, or the witness does not hear what it is told.
pub fn rows() -> Result<Vec<Row>> {
    let state = state()?;
    let speakers = speakers(&state)?;
    let me = ReplicaId::new(1)?;
    let mut now = Mono::from_ms(1_000_000);
    let mut witness = Witness::new(me, 1, now);
    let synced = time(20, 1, || witness.sync(black_box(now), &state));
    let mut statuses = Vec::new();
    for second in 1..=SECONDS {
        now = wait(&mut witness, now, Span::from_secs(1));
        let begin = boottime_ns();
        speakers.iter().for_each(|speaker| speaker.speaks(&mut witness, now, second));
        statuses.push((boottime_ns() - begin) / u64::from(NODES));
    }
    ensure!(!witness.summary(now, &state).is_urgent(&state), "a node that speaks is suspected");
    let calm = time(50, 1, || {
        black_box(witness.summary(now, &state));
    });

    // A thousand nodes fall silent: their observers say so, all others go on.
    let (silent, rest) = speakers.split_at(SILENT);
    for second in SECONDS + 1..SECONDS + 6 {
        now = wait(&mut witness, now, Span::from_secs(1));
        rest.iter().for_each(|speaker| speaker.speaks(&mut witness, now, second));
    }
    let batches = batches(&state, silent)?;
    ensure!(batches.len() > SILENT, "{} observers have a silent subject", batches.len());
    let begin = boottime_ns();
    batches.iter().for_each(|(from, batch)| witness.reports(now, from, batch));
    let reports = vec![(boottime_ns() - begin) / u64::try_from(batches.len())?];
    let storm = witness.summary(now, &state);
    ensure!(storm.nodes.len() >= SILENT, "{} nodes are told of, {SILENT} are silent", storm.nodes.len());
    let stormy = time(20, 1, || {
        black_box(witness.summary(now, &state));
    });
    let fleet = |what: &str| format!("witness, {what}, {NODES} nodes");
    Ok(vec![
        Row::new(fleet("a status"), "us", &Samples::of_ns(statuses, US)),
        Row::new(fleet("summary when all is calm"), "ms", &Samples::of_ns(calm, MS)),
        Row::new(fleet("a batch of reports"), "us", &Samples::of_ns(reports, US)),
        Row::new(fleet("summary when 1,000 are silent"), "ms", &Samples::of_ns(stormy, MS)),
        Row::new(fleet("members taken from the log"), "ms", &Samples::of_ns(synced, MS)),
    ])
}

/// Lets time pass as a replica does: it looks every 50 ms, or its hearing would count as interrupted.
fn wait(witness: &mut Witness, mut now: Mono, span: Span) -> Mono {
    let end = now + span;
    while now < end {
        now = now + TICK;
        witness.tick(now);
    }
    now
}

/// Everybody, each of whom hears all its subjects.
fn speakers(state: &State) -> Result<Vec<Speaker>> {
    let uid = |name: &NodeName| member(state, name).map(|member| member.uid.clone());
    let mut all = Vec::new();
    for name in state.nodes.keys() {
        let member = member(state, name)?;
        let beacon = Beacon {
            node: member.uid.clone(),
            machine: member.machine.clone().map_err(anyhow::Error::msg)?,
            boot: member.boot,
            seq: 0,
            health: HealthSummary::default(),
        };
        let signed =
            SignedBeacon::sign(&beacon, &SecretKey::from_seed(&[5; 32]), ClusterId::from_bytes([7; 16]))?;
        let hears = state.observers.subjects_of(name).iter().map(uid).collect::<Result<_>>()?;
        let status = Status { beacon: signed, slice: 1, hears, doubts: Vec::new(), worked: Vec::new() };
        all.push(Speaker { name: name.clone(), uid: member.uid.clone(), beacon, status });
    }
    Ok(all)
}

/// What every observer of one of those says about its own.
fn batches(state: &State, silent: &[Speaker]) -> Result<Vec<(NodeUid, CheckedBatch)>> {
    let silent: BTreeMap<&NodeName, &Speaker> =
        silent.iter().map(|speaker| (&speaker.name, speaker)).collect();
    let mut all = Vec::new();
    for name in state.nodes.keys() {
        let mine =
            state.observers.subjects_of(name).iter().filter_map(|subject| silent.get(subject).copied());
        let report = |speaker: &Speaker| Report {
            subject: speaker.uid.clone(),
            hearing: Hearing::Silent { silent: Span::from_secs(5), last: None, probes: Vec::new() },
        };
        let reports: Vec<Report> = mine.map(report).collect();
        if !reports.is_empty() {
            let member = member(state, name)?;
            let (boot, number) = (member.boot, 1);
            let batch = ReportBatch { boot, number, snapshot: false, doubts: Vec::new(), reports };
            all.push((member.uid.clone(), CheckedBatch::trusted(&batch)));
        }
    }
    Ok(all)
}

fn member<'a>(state: &'a State, name: &NodeName) -> Result<&'a Member> {
    let node = state.nodes.get(name).with_context(|| format!("there is no {name}"))?;
    node.member.as_ref().with_context(|| format!("{name} is no member"))
}

// === impl Speaker ===

impl Speaker {
    fn speaks(&self, witness: &mut Witness, now: Mono, seq: u64) {
        let proven = Proven::trusted(Beacon { seq, ..self.beacon.clone() });
        witness.beacon(now, &proven, None);
        witness.status(now, &self.uid, &self.status, &proven);
    }
}
