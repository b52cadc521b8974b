//! Proofs keep the table: a proof by readings rests on three Offs of the pinned machine, the last over a new session,
//! over a span that the row of the table asks for, counted anew from the page and not by the core.

use coroner_arbiter_core::phase::{FenceProof, OffReadings, Phase};
use coroner_shared::bmc::{CommandAnswer, Power, PowerReading};
use coroner_shared::time::Span;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct Table;

impl Invariant for Table {
    fn name(&self) -> &'static str {
        "proofs keep the table"
    }

    fn see(&mut self, _: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { before, after, .. } = fact else { return None };
        for (name, node) in &after.nodes {
            let Phase::ProvenOff { proof: FenceProof::BmcOff { readings, .. }, .. } = &node.phase else {
                continue;
            };
            if before.nodes.get(name).is_some_and(|n| n.phase.name() == "ProvenOff") {
                continue;
            }
            if let Some(why) = too_weak(readings) {
                return Some(format!("{name} is proven off, but {why}"));
            }
        }
        None
    }
}

fn too_weak(readings: &OffReadings) -> Option<String> {
    let off = |reading: &&(Span, PowerReading)| reading.1.power == Power::Off;
    let run: Vec<_> = readings.readings.iter().rev().take_while(off).collect();
    if run.len() < 3 {
        return Some(format!("only {} readings in a row are exactly Off", run.len()));
    }
    if !readings.last_over_new_session {
        return Some("the last reading came over the session of the others".to_owned());
    }
    let over = match (run.last(), run.first()) {
        (Some((first, _)), Some((last, _))) => last.saturating_sub(*first),
        (None, _) | (_, None) => Span::ZERO,
    };
    let needed = span_of(readings);
    (over < needed).then(|| format!("Off was read over {over}, the table asks for {needed}"))
}

/// The span of the row that these readings belong to.
pub(super) fn span_of(readings: &OffReadings) -> Span {
    Span::from_secs(match (readings.cached, readings.steady, &readings.command) {
        (true, _, _) => 60,
        (false, true, Some(CommandAnswer::Accepted)) => 4,
        (false, true, Some(CommandAnswer::Refused { .. } | CommandAnswer::Unknown { .. })) => 10,
        (false, true, None) | (false, false, _) => 30,
    })
}
