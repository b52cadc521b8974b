//! What the agent knows at one moment, for metrics, logs and tests. Nothing decides on it.

use coroner_shared::beacon::SelfDoubt;
use coroner_shared::id::NodeName;
use coroner_shared::time::Span;

/// A copy of what matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The slice in use; `None` before the first.
    pub slice: Option<u64>,
    /// Whether this host sends beacons: it has a slice and a machine id.
    pub beaconing: bool,
    /// Each subject.
    pub subjects: Vec<SubjectView>,
    /// How many hosts this one sends its beacons to.
    pub observers: usize,
    /// How many of them said lately that they hear it.
    pub observers_hearing: usize,
    /// The longest newest round trip to an observer.
    pub rtt_max: Option<Span>,
    /// Since a replica last answered or asked.
    pub arbiter_contact: Option<Span>,
    /// Reasons not to be believed.
    pub doubts: Vec<SelfDoubt>,
    /// Since the start.
    pub counts: Counts,
}

/// One subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectView {
    /// Who.
    pub name: NodeName,
    /// Whether it is reported silent.
    pub silent: bool,
    /// Since its last beacon.
    pub last: Option<Span>,
}

/// How often things happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Beacon rounds sent.
    pub beacons_sent: u64,
    /// Beacons that were newer than those before.
    pub beacons_heard: u64,
    /// Beacons that were not, or of nobody we listen to.
    pub beacons_ignored: u64,
    /// Batches of reports sent, repeats included.
    pub reports_sent: u64,
    /// Times a subject fell silent.
    pub silences: u64,
    /// Probes sent, on any path.
    pub probes_sent: u64,
    /// Questions of replicas answered.
    pub asks_answered: u64,
    /// Ticks that voided their round.
    pub void_rounds: u64,
}
