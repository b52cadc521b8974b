//! What must never be, one file each: judged while it happens, from the true machines and the committed log.
//!
//! | invariant | statement | file | source |
//! |---|---|---|---|
//! | no double run | no workload runs on two machines that can both still execute | `double_run.rs` | design 8, oracle 1 |
//! | right machine | no power command on a machine other than the one of a committed attempt | `right_machine.rs` | design 1, right-machine |
//! | release implies over | when the taint is written, the life of the proof can execute nothing | `release_over.rs` | design 1, proof-before-release |
//! | proven implies off | a BMC's proof is committed only for a life that is over | `proven_off.rs` | design 4, proof |
//! | released implies proven | the taint is written for a boot that the log has proven off, by a proof of its incident's life | `released_proven.rs` | design 8 |
//! | a person's word is bound | what a person confirms is that very incident, Node and boot, and nobody hears it | `persons_word.rs` | design 4, manual confirmation |
//! | no live kill | no power-off is sent to a running machine that somebody who reaches the leader hears | `live_kill.rs` | design 1, no-live-kill |
//! | heard is not condemned | no condemnation by silence of a machine heard within S by somebody who reaches the leader | `heard.rs` | design 8 |
//! | bounded blast | never more in flight, per domain or down by our hand than the brakes allow, and a majority of replicas' hosts and of etcd voters left | `blast.rs` | design 3, brakes |
//! | the pace holds | decisions no faster than the pace, the rolling budget, two of a domain in ten minutes and the deaths of one node in a day, counted anew | `pace.rs` | design 3, brakes |
//! | evidence holds | a condemnation's record gives the same verdict again, with H silent observers and no answer | `evidence.rs` | design 3, rules 1 and 3 |
//! | rules hold | a condemnation meets every rule of the page, counted anew: domains, a blind arbiter, torn, rack, storm, renewal, steadiness, Off in a goodbye, a new leader's grace | `rules.rs` | design 3 |
//! | the chain is whole | what is decided or proven is on the evidence chain, each record hashed anew, and nothing else is | `chain.rs` | design 2, evidence |
//! | one executor | a replica sends no more power-offs in an incident than it has attempts committed | `one_executor.rs` | design 8 |
//! | a released pod is over | no pod that was bound to a node at its taint begins to run again | `pods_end.rs` | design 8, oracle 3 |
//! | accusers are true | counted observers live, are not deaf, have heard the subject before, and the deadline ran from the last time anybody heard it, the leader's pauses left out | `accusers.rs` | design 3, rule 1 and failure date |
//! | proofs keep the table | three Offs of one machine over the span of their row, the last over a new session | `table.rs` | design 4, table |
//! | edges have causes | re-fence only by the same boot heard, answers only of their attempt, no way out of a storm unheard, the taint until Ready long enough and nothing is left | `edges.rs` | design 2b |
//! | no command without a look | a linearizable look at most 500 ms before a power-off leaves | `looked.rs` | design 2, the last look |
//! | the taint falls on a machine that is off | no power when it is written, but for the second of a last read, and for what a cached BMC cannot show | `off_at_taint.rs` | design 4, last read |
//! | the floor holds | machines down by our hand, by the page's formula | `floor.rs` | design 3, brakes |
//! | one leader per term | no two replicas lead in one term | `sim/truth.rs` | Raft |
//! | votes are kept | a vote is on the disk before it leaves | `sim/truth.rs` | Raft |
//! | reads are linearizable | a read shows everything that was committed before it was asked for | `sim/truth.rs` | design 2, the last look |
//! | replicas agree | every replica applies the same entries to the same state | `sim/truth.rs` | Raft |
//! | nothing lost | every incident is closed, or says what it waits for | `nothing_lost.rs` | design 1, nothing-lost |
//! | barred is barred | nothing is condemned in Observe, by silence in a storm or a planned reboot; nothing is sent while paused, opted out, observed or with a disabled binding | `barred.rs` | design 3, brakes; design 2b |
//! | in time | a lone death with a good BMC is decided, proven and released in time, or held by a brake | `in_time.rs` | design 8, liveness |
//! | settles | half an hour after everything healed every node is Alive, and no storm and no finding is left | `settles.rs` | design 8, liveness |
//! | recovers | once everything healed, a fenced node that runs again, Ready and with nothing of its old life left, is Alive within 60 s, or as long as its policy's timings say | `recovers.rs` | design 8, liveness |
//! | few pages | nobody is told the same of a node more than three times in ten minutes | `few_pages.rs` | design 1, explains-itself |
//! | small log | entries are bounded by what happens, not by the speed of commits | `small_log.rs` | design 8, liveness |
//! | clean end | a node that is Alive again carries nothing of ours, and what others set is there byte for byte | `clean_end.rs` | design 1, leaves-no-trace |

mod accusers;
mod barred;
mod blast;
mod chain;
mod clean_end;
mod double_run;
mod edges;
mod evidence;
mod few_pages;
mod floor;
mod heard;
mod in_time;
mod live_kill;
mod looked;
mod nothing_lost;
mod off_at_taint;
mod one_executor;
mod pace;
mod persons_word;
mod pods_end;
mod proven_off;
mod recovers;
mod release_over;
mod released_proven;
mod right_machine;
mod rules;
mod settles;
mod small_log;
mod table;
#[cfg(test)]
mod tests;

use coroner_shared::time::Span;

pub(crate) use settles::what_lasts;

use crate::sim::truth::Fact;
use crate::sim::world::World;

/// From a beacon after a silence to a leader that knows of it, and no decision of it on its way any more.
const REACHES: Span = Span::from_ms(300);

/// A power command that left before its incident was closed has arrived by then, or its socket is dead.
const ARRIVES: Span = Span::from_secs(15);

/// One of them.
pub(crate) trait Invariant {
    /// As in the table.
    fn name(&self) -> &'static str;
    /// Looks at what happened; what is wrong with it, in words.
    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String>;
}

/// All of them.
pub(crate) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(double_run::DoubleRun),
        Box::new(right_machine::RightMachine),
        Box::new(release_over::ReleaseOver),
        Box::new(proven_off::ProvenOff),
        Box::new(live_kill::LiveKill),
        Box::new(heard::Heard),
        Box::new(blast::Blast),
        Box::new(evidence::Evidence),
        Box::new(rules::Rules),
        Box::new(accusers::Accusers),
        Box::new(table::Table),
        Box::<edges::Edges>::default(),
        Box::new(looked::Looked),
        Box::<off_at_taint::OffAtTaint>::default(),
        Box::new(floor::Floor),
        Box::<pace::Pace>::default(),
        Box::new(released_proven::ReleasedProven),
        Box::new(persons_word::PersonsWord),
        Box::new(nothing_lost::NothingLost),
        Box::new(clean_end::CleanEnd),
        Box::<barred::Barred>::default(),
        Box::new(chain::Chain),
        Box::<one_executor::OneExecutor>::default(),
        Box::<pods_end::PodsEnd>::default(),
        Box::<recovers::Recovers>::default(),
        Box::new(settles::Settles),
        Box::<in_time::InTime>::default(),
        Box::<few_pages::FewPages>::default(),
        Box::new(small_log::SmallLog),
    ]
}
