//! Few pages: nobody is told the same thing of the same node again and again.

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// Of one reason and node in a run of some ten minutes: a condition that truly comes and goes may say so.
const MOST: u32 = 8;

pub(super) struct FewPages;

impl Invariant for FewPages {
    fn name(&self) -> &'static str {
        "few pages"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::End = fact else { return None };
        let ((node, reason), count) = world.truth.pages.iter().max_by_key(|(_, count)| **count)?;
        (*count > MOST).then(|| format!("{count} pages {reason} about {node}"))
    }
}
