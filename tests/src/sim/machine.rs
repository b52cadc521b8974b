//! Machines as they truly are: power, boots, what runs on them. Nothing here asks Coroner.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use coroner_agent_core::Agent;
use coroner_shared::id::{BootId, NodeName};
use coroner_shared::keys::PublicKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::slice::Slice;
use coroner_shared::time::{Mono, Span};

use super::drift::Drift;
use super::odd::Oddities;
use super::queue::Happening;
use super::task::{Signal, TaskId};
use super::world::Group;

/// What a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No power: nothing of it can run.
    Off,
    /// Power, and the firmware at work: no system yet.
    Firmware,
    /// The system runs.
    Runs,
    /// Nothing of it moves and nothing answers, yet it may go on as if nothing had been.
    Frozen,
    /// The kernel answers (ping, a reset), no program does; what ran may go on writing.
    Hung,
    /// A crash kernel: it answers ping; the life before is over.
    CrashKernel,
}

/// A machine.
pub(crate) struct Machine {
    pub(crate) name: NodeName,
    pub(crate) address: IpAddr,
    pub(crate) id: MachineId,
    pub(crate) key: PublicKey,
    pub(crate) rack: Option<usize>,
    pub(crate) condition: Condition,
    /// Of the system that runs, or is frozen or hung.
    pub(crate) boot: Option<BootId>,
    /// Rises with each boot and each loss of power: what was planned for an earlier life does not happen.
    pub(crate) life: u64,
    /// When this host's CLOCK_BOOTTIME was zero.
    pub(crate) booted: Mono,
    pub(crate) agent: Option<AgentProcess>,
    /// What the agent's disk holds.
    pub(crate) kept_slice: Option<Slice>,
    pub(crate) kubelet: bool,
    /// Its kubelet renews its Lease, and reports that it is not ready.
    pub(crate) unready: bool,
    /// Pods that run, with their workload.
    pub(crate) runs: BTreeMap<u64, usize>,
    /// From power to a system.
    pub(crate) firmware_takes: Span,
    /// What came while it was frozen.
    pub(crate) missed: VecDeque<(u64, Happening)>,
    pub(crate) sleeping: Vec<TaskId>,
    /// When our hand last turned it off, and in which boot.
    pub(crate) off_by_us: Option<(Mono, BootId)>,
    /// How far its wall clock has been set forward since, or back, in milliseconds. Nothing but a planted bug looks at it.
    pub(crate) wall: i64,
    /// How its clock runs otherwise than the world's.
    pub(crate) drift: Drift,
    /// What is not true of it.
    pub(crate) odd: Oddities,
    /// When it last booted, went off, froze or went on.
    pub(crate) disturbed: Mono,
    /// When it froze and when it went on, each time.
    pub(crate) pauses: Vec<(Mono, Mono)>,
    /// The kubelet's rounds so far.
    pub(crate) rounds: u64,
}

/// An agent's process.
pub(crate) struct AgentProcess {
    pub(crate) agent: Agent,
    /// Rises with each start.
    pub(crate) start: u64,
    /// When it ticks next, as planned.
    pub(crate) due: Option<Mono>,
    pub(crate) slice_wanted: (Signal, u64),
    /// Of its tasks.
    pub(crate) group: Group,
}

// === impl Machine ===

impl Machine {
    /// The host's own clock.
    pub(crate) fn host_time(&self, now: Mono) -> Mono {
        let wall = if planted(Mutant::WallClock) { self.wall } else { 0 };
        let (shown, set) = (self.drift.read(now.since(self.booted), now), Span::from_ms(wall.unsigned_abs()));
        if wall < 0 { shown.back(set) } else { shown + set }
    }

    /// How long it was frozen after `since`, by pauses of at least so long.
    pub(crate) fn paused_since(&self, since: Mono, at_least: Span) -> Span {
        let long = self.pauses.iter().filter(|(froze, went_on)| went_on.since(*froze) >= at_least);
        long.fold(Span::ZERO, |all, (froze, went_on)| all + went_on.since(since.max(*froze)))
    }

    /// Whether the life of that boot can still do anything, now or later.
    pub(crate) fn can_execute(&self, boot: BootId) -> bool {
        self.boot == Some(boot)
            && matches!(self.condition, Condition::Runs | Condition::Frozen | Condition::Hung)
    }

    /// Whether programs run now.
    pub(crate) fn is_up(&self) -> bool {
        self.condition == Condition::Runs
    }

    pub(crate) fn has_power(&self) -> bool {
        self.condition != Condition::Off
    }
}

/// Address of the machine of that index.
pub(crate) fn address_of(index: usize) -> IpAddr {
    let number = 0x0a00_0001_u32 + u32::try_from(index).unwrap_or(0);
    IpAddr::V4(Ipv4Addr::from_bits(number))
}

/// The machine at that address.
pub(crate) fn machine_at(address: IpAddr) -> Option<usize> {
    let IpAddr::V4(address) = address else { return None };
    usize::try_from(address.to_bits().checked_sub(0x0a00_0001)?).ok()
}
