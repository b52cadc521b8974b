//! Few pages: nobody is told the same thing of the same node again and again.

use std::collections::BTreeMap;

use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// What came and went within this time is one matter.
const WINDOW: Span = Span::from_mins(10);
/// Of one reason and node within that: once, and once more for a leader that does not know what the one before it told.
const MOST: usize = 3;

#[derive(Default)]
pub(super) struct FewPages {
    told: BTreeMap<(NodeName, String), Vec<Mono>>,
}

impl Invariant for FewPages {
    fn name(&self) -> &'static str {
        "few pages"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Paged { node, reason } = fact else { return None };
        let told = self.told.entry(((*node).clone(), (*reason).to_owned())).or_default();
        told.retain(|at| world.now.since(*at) < WINDOW);
        told.push(world.now);
        (told.len() > MOST).then(|| format!("{} pages {reason} about {node} within {WINDOW}", told.len()))
    }
}
