//! What the agent's machine is told. Everything here happened already; nothing here acts but [`Input::Tick`].
//!
//! Whoever feeds it has checked signatures: a message in [`Input::Heard`] was signed by the key that
//! [`crate::Agent::known`] gives for its sender, and so was every beacon in it.

use std::net::{IpAddr, SocketAddr};

use coroner_shared::beacon::Answer;
use coroner_shared::health::HealthSummary;
use coroner_shared::slice::Slice;
use coroner_shared::time::Mono;
use coroner_shared::wire::datagram::{Message, Sender};

use crate::output::ProbeNumber;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A datagram came, and it is its sender's.
    Heard {
        /// Who signed it.
        sender: Sender,
        /// Where it came from; answers go there.
        from: SocketAddr,
        /// What it says.
        message: Message,
    },
    /// A datagram of ours came whose sender's key is not known here, or whose signature is not that key's. It says
    /// that a host lives at that address, and nothing else.
    Unverified {
        /// From where.
        from: IpAddr,
    },
    /// Somebody whose key is not known here asks whether this host lives.
    Stranger {
        /// Where an answer would go.
        from: SocketAddr,
        /// From the probe.
        nonce: u64,
    },
    /// What an [`crate::Output::Probe`] saw.
    Probed {
        /// Which probe.
        number: ProbeNumber,
        /// What came back.
        answer: Answer,
    },
    /// The arbiter's word on whom to hear and whom to tell; replaces the one before.
    Slice(Slice),
    /// What the host's pressure figures said just now.
    Pressure(Pressure),
    /// What the agent knows to be ill.
    Health(HealthSummary),
    /// All that had come was handed in: now act on what is due.
    Tick(Tick),
}

/// The circumstances of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// CLOCK_MONOTONIC, which stands still while the host is suspended; `now` is CLOCK_BOOTTIME, which does not.
    pub awake: Mono,
    /// Whether the socket is empty. If it is not, a beacon that is needed may still be in it.
    pub drained: bool,
    /// How many datagrams the kernel has dropped at the socket since it was opened.
    pub drops: u64,
}

/// Pressure stall information (Linux `Documentation/accounting/psi.rst`): share of the last 10 s in which all tasks
/// waited, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// `full avg10` of cpu. The kernel gives 0 for a whole host; a starved agent shows by late ticks.
    pub cpu_full_percent: u8,
    /// `full avg10` of memory.
    pub memory_full_percent: u8,
}
