//! Hands of a deposed leader that come late: what they saw and proved reaches the leaders of later terms, again and again.
//! The arbiter's shell cancels them; that nothing goes wrong where it does not is the log's to see to.

use coroner_arbiter_core::command::Command;
use coroner_shared::time::Span;

use super::world::World;

/// Between two times.
const EVERY: Span = Span::from_secs(1);

// === impl World ===

impl World {
    /// A leader proposes this; if it is a result, it will come again.
    pub(crate) fn comes_late(&mut self, index: usize, command: &Command) {
        let result =
            matches!(command, Command::Judge(_) | Command::AttemptAnswered { .. } | Command::Proven { .. });
        let Some(process) = self.replicas[index].process.as_ref().filter(|_| result) else { return };
        self.comes_again(process.published.term, command.clone());
    }

    fn comes_again(&mut self, term: u64, command: Command) {
        self.after(EVERY, move |world| {
            if world.now >= world.late_until {
                return;
            }
            let later = |process: &super::process::Process| process.published.term > term;
            let leader = world.leader().filter(|l| world.replicas[*l].process.as_deref().is_some_and(later));
            if let Some(leader) = leader {
                world.coverage.reach("leader: a result of an earlier one comes late");
                let key = format!("late-{}", world.draws.odd.number());
                drop(world.propose_as(leader, key, command.clone()));
            }
            world.comes_again(term, command);
        });
    }
}
