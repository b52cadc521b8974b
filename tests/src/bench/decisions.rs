//! How long the decision rule takes on one node: it is asked for every suspect at every look, and again by each replica
//! for each entry that carries a view.

use std::hint::black_box;

use anyhow::Result;
use coroner_arbiter_core::policy::Rules;
use coroner_arbiter_core::verdict::verdict;
use coroner_arbiter_core::view::{
    BmcRead, BmcView, FleetView, LeaseView, ObserverView, ProbeView, Said, Sign, Standing, Verdict, View,
};
use coroner_shared::beacon::{Answer, Path, ProbeOutcome};
use coroner_shared::id::{BootId, Incarnation, NodeUid, ReplicaId};
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::Span;

use super::row::Row;
use super::samples::{Samples, time};

const US: f64 = 1_000.0;

/// Measures.
///
/// # Errors
/// A name of the sample is none.
pub fn rows() -> Result<Vec<Row>> {
    let dead = dead_host()?;
    let heard = View { last_sign: Some(Sign { age: Span::from_ms(400), ..sign() }), ..dead.clone() };
    let cases = [("verdict, dead with 8 observers", &dead, true), ("verdict, heard", &heard, false)];
    let mut rows = Vec::new();
    for (name, view, dead) in cases {
        let found = verdict(view, &Rules::BALANCED);
        anyhow::ensure!(matches!(found, Verdict::Dead(_)) == dead, "{name}: {found:?}");
        let ns = time(500, 200, || {
            black_box(verdict(black_box(view), &Rules::BALANCED));
        });
        rows.push(Row::new(name, "us", &Samples::of_ns(ns, US)));
    }
    Ok(rows)
}

fn sign() -> Sign {
    let boot = BootId::from_bytes([1; 16]);
    Sign { age: Span::from_secs(10), held_by: "replica 2".to_owned(), beacon: Some((boot, 5)) }
}

/// A host that fell silent 10 s ago, with everything that speaks of it.
fn dead_host() -> Result<View> {
    let silent = Span::from_secs(10);
    let probe = |path| ProbeOutcome {
        path,
        answer: Answer::Nothing,
        asked_ago: Span::from_secs(5),
        worked_ago: Some(Span::from_secs(12)),
    };
    let probes = vec![probe(Path::Kubelet), probe(Path::Ping)];
    let mut observers = Vec::new();
    for n in 0..8 {
        observers.push(ObserverView {
            node: format!("observer-{n}").parse()?,
            domain: format!("r{}", n / 2),
            standing: Standing::Eligible,
            said: Said::Silent { silent },
            probes: probes.clone(),
        });
    }
    let mut probers = Vec::new();
    for n in 0..3 {
        probers.push(ProbeView {
            prober: format!("prober-{n}").parse()?,
            asked_ago: Span::from_secs(5),
            outcomes: probes.clone(),
            answered: true,
        });
    }
    let mut bmc = Vec::new();
    for n in 1..=3 {
        let replica = ReplicaId::new(n)?;
        bmc.push(BmcView { replica, read: BmcRead::On, steady: true, age: Span::from_secs(1) });
    }
    let machine = MachineId::from_bytes([7; 16])?;
    Ok(View {
        node: "victim".parse()?,
        incarnation: Incarnation { node: NodeUid::new("uid")?, machine, boot: BootId::from_bytes([1; 16]) },
        leader: ReplicaId::new(1)?,
        term: 3,
        own_host: false,
        members: 20,
        last_sign: Some(sign()),
        group_age: Span::from_mins(60),
        observers,
        domain: "r0".to_owned(),
        probes: probers,
        bmc,
        sibling_answers: Some(true),
        lease: LeaseView {
            readable: true,
            changed_ago: Some(Span::from_secs(20)),
            watched_for: Span::from_mins(60),
            interval: Span::from_secs(10),
        },
        fleet: FleetView {
            others_alive: 19,
            unexplained: 0,
            partial: 0,
            quorum: true,
            domain_members: 5,
            domain_silent: 1,
            correlated_for: None,
            storm_members: 1,
            storm_domains: 1,
        },
        goodbye: None,
        untold: None,
        duplicate: false,
    })
}
