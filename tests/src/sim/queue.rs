//! What happens next: happenings in order of their time, and of their coming where the time is the same.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use coroner_shared::time::Mono;

use super::world::World;

/// Something that will happen.
pub(crate) type Happening = Box<dyn FnOnce(&mut World)>;

/// A machine's life: what was planned in it does not happen in a later one.
pub(crate) type Life = (usize, u64);

struct Due {
    at: Mono,
    number: u64,
    life: Option<Life>,
    what: Happening,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Due>,
    count: u64,
}

// === impl Queue ===

impl Queue {
    pub(crate) fn push(&mut self, at: Mono, life: Option<Life>, what: Happening) {
        self.count += 1;
        self.heap.push(Due { at, number: self.count, life, what });
    }

    pub(crate) fn next_at(&self) -> Option<Mono> {
        self.heap.peek().map(|due| due.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Option<Life>, Happening)> {
        self.heap.pop().map(|due| (due.life, due.what))
    }

    /// Happenings so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

// === impl Due ===

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The heap gives the greatest first, so the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
