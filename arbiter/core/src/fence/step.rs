//! The words between a fence and its executor: what is ordered, asked, answered, noticed.
//!
//! ```text
//!   FenceOrder --> Fence --Step--> executor --FenceEvent--> Fence --Step--> ... --> Step::Ended
//!                    ^------------------ Note, at any time
//! ```

use std::collections::BTreeMap;

use coroner_shared::bmc::{CommandAnswer, Continuity, IdentityFacts, Login, PowerReading};
use coroner_shared::id::{Incarnation, IncidentId, NodeName};
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::{Mono, Span};

use crate::command::{Command, Outcome};
use crate::phase::{EvidenceClass, OffReadings};
use crate::policy::Pin;

/// What is to be fenced, as the state says at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceOrder {
    /// Whom.
    pub node: NodeName,
    /// Which death.
    pub incident: IncidentId,
    /// Which life; its machine must be the pinned one.
    pub incarnation: Incarnation,
    /// On what evidence.
    pub class: EvidenceClass,
    /// The binding's pin.
    pub pin: Pin,
    /// Quirk `cached` of the binding.
    pub cached: bool,
    /// `status.nodeInfo.systemUUID`, byte for byte.
    pub system_uuid: String,
    /// The machines of all registered nodes (this node's entry is passed over).
    pub fleet: BTreeMap<NodeName, MachineId>,
    /// Whether the Intent is committed already; otherwise the fence asks for it after a last look.
    pub intent_open: bool,
    /// Power commands are paused: read only.
    pub paused: bool,
    /// Our taint stands and the same boot was heard: being heard does not stop this one.
    pub re_fence: bool,
    /// Number of the last committed attempt of this intent, whoever made it; 0: none.
    pub last_attempt: u32,
    /// Log-in of that attempt: a session is deleted before the first command of this fence.
    pub previous_login: Option<Login>,
    /// Whether this replica's [`crate::steady::BmcTrack`] knows the BMC as steady now.
    pub steady: bool,
    /// What that track showed last: the first reading of the fence must hang together with it.
    pub shown: Option<Continuity>,
    /// How long this replica has read nothing but Off by now (a machine found off on a BMC that is not steady).
    pub off_for: Span,
    /// Only read again what was proven, for the last read: nothing is sent and nothing is proposed.
    pub again: bool,
    /// The policy's `timings.stalled`.
    pub stalled_after: Span,
}

/// The next call. Each is answered by exactly one [`FenceEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for a linearizable read of the state: [`FenceEvent::Looked`].
    LastLook,
    /// Read the identity over this session, connecting and logging in where that is needed: [`FenceEvent::Identity`].
    Identify(Over),
    /// Delete a predecessor's session, best effort, at most 5 s: [`FenceEvent::Deleted`].
    DeleteSession {
        /// Its URI.
        uri: String,
    },
    /// Read the power state of the pinned member: [`FenceEvent::Power`].
    ReadPower(Over),
    /// Open a second connection and session beside the first, replacing an earlier second one:
    /// [`FenceEvent::Opened`].
    NewSession,
    /// Propose this: [`FenceEvent::Committed`].
    Commit(Box<Command>),
    /// Send ForceOff to the pinned member over the first session: [`FenceEvent::Answered`]; where certainly nothing was
    /// sent [`FenceEvent::TooLate`], if only `send_before` stood in the way, else [`FenceEvent::NotSent`].
    SendForceOff {
        /// The committed attempt.
        number: u32,
        /// Look at the clock once more: nothing may leave after this instant.
        send_before: Mono,
        /// Abort the socket at this instant; the answer is then unknown.
        deadline: Mono,
    },
    /// Do nothing until then, or until a [`Note`] was taken: [`FenceEvent::Woke`].
    Wait {
        /// Until when.
        until: Mono,
    },
    /// It is over: close both sessions, feed no more events.
    Ended(Ended),
}

/// Which of the two sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Over {
    /// The replica's warm session, where it has one, so that steadiness can be shown.
    First,
    /// The one that [`Step::NewSession`] opened.
    New,
}

/// How a fence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// [`Command::Proven`] is committed.
    Proven,
    /// The readings were made again ([`FenceOrder::again`]).
    OffAgain {
        /// They pass [`crate::proof::check_off_readings`].
        readings: Box<OffReadings>,
    },
    /// On was read while reading again.
    OnAgain,
    /// Nothing more is to be done here; the state says what comes next.
    Closed {
        /// Why, for people.
        why: String,
    },
}

/// What came of the last step. Any other event than the one that answers it ends the fence without a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceEvent {
    /// Begin.
    Start,
    /// The last look, or why it could not be made.
    Looked(Result<Look, String>),
    /// Identity over the session asked for, or what happened instead.
    Identity(Result<Identified, String>),
    /// The predecessor's session is deleted, gone, or cannot be deleted.
    Deleted,
    /// A power reading and the log-in that carried it, or what happened instead.
    Power(Result<(PowerReading, Login), String>),
    /// The second session is open, or what happened instead.
    Opened(Result<(), String>),
    /// What became of the entry; `Err`: unknown, or this replica no longer leads.
    Committed(Result<Outcome, String>),
    /// How the BMC answered the power command.
    Answered(CommandAnswer),
    /// Certainly nothing was sent, since the call failed before: no connection, another machine, no reset target.
    NotSent {
        /// What happened, without secrets.
        why: String,
    },
    /// Certainly nothing was sent, and nothing is wrong with the BMC or its session: `send_before` was over by the time
    /// that the command could have left.
    TooLate,
    /// The wait is over, or a note was taken.
    Woke,
}

/// Identity facts and the log-in they were read over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// The facts.
    pub facts: IdentityFacts,
    /// The log-in.
    pub login: Login,
}

/// A linearizable look at the state (raft read index) together with what all reachable replicas hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// When the read was asked for, on this host's clock: it is at least as fresh as that.
    pub at: Mono,
    /// Whether the same fence, of the same incarnation, is still wanted.
    pub wanted: bool,
    /// Whether power commands are paused for this node.
    pub paused: bool,
    /// Date of the latest proof of life, if any.
    pub heard: Option<Mono>,
    /// Date of the last change of the kubelet's Lease, if any was seen.
    pub lease_moved: Option<Mono>,
}

/// What happens unasked. Taken with [`super::Fence::note`] at any time; a wait is then ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A proof of life, by its date.
    Heard(Mono),
    /// The kubelet's Lease changed, by when it was seen.
    LeaseMoved(Mono),
    /// Power commands are paused or resumed.
    Paused(bool),
    /// The replica's track: what it showed last where the BMC is steady; `None`: it is not, or it restarted.
    Steady(Option<Continuity>),
}
