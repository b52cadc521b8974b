//! No command without a look: a power-off leaves at most 500 ms after the log was asked, linearizably, whether it is
//! still wanted.

use coroner_shared::time::Span;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// A look is worth so long (design 4).
const LOOK: Span = Span::from_ms(500);

pub(super) struct Looked;

impl Invariant for Looked {
    fn name(&self) -> &'static str {
        "no command without a look"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Command { machine, off: true, sent, .. } = fact else { return None };
        let name = &world.machines[*machine].name;
        match world.truth.looks.get(name).filter(|asked| **asked <= *sent) {
            Some(asked) if sent.since(*asked) <= LOOK => None,
            Some(asked) => {
                Some(format!("a power-off is sent to {name}, {} after the last look", sent.since(*asked)))
            }
            None => Some(format!("a power-off is sent to {name}, and nobody looked before")),
        }
    }
}
