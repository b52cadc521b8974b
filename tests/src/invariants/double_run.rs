//! No double run: no instant at which one workload could write from two machines. A machine that is frozen or hung may
//! still write, so it counts. Only what a person vouched for does not: who deletes the Node of a machine that runs has
//! Kubernetes start its pods elsewhere, whatever anybody proves.

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct DoubleRun;

impl Invariant for DoubleRun {
    fn name(&self) -> &'static str {
        "no double run"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Started { machine, workload, .. } = fact else { return None };
        let other = world.machines.iter().enumerate().find(|(index, m)| {
            index != machine
                && m.runs.iter().any(|(pod, w)| w == workload && !world.truth.vouched.contains(pod))
        })?;
        let here = &world.machines[*machine].name;
        Some(format!("workload {workload} starts on {here} while it runs on {}", other.1.name))
    }
}
