//! The log: state changes only, in words for an operator. No secret reaches it.
//!
//! What changes on the beacon's thread is written from here and not from there: a log is a pipe into somebody's disk,
//! and a full pipe must not hold up a beacon.

use std::error::Error;

use coroner_agent_core::Change;
use coroner_shared::beacon::SelfDoubt;
use tokio::sync::mpsc;
use tracing::level_filters::LevelFilter;
use tracing::{info, warn};

use crate::args::LogFormat;

/// Starts the log of this process, on standard error.
pub(crate) fn start(format: LogFormat, level: LevelFilter) {
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    match format {
        LogFormat::Human => log.with_ansi(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// An error with all its causes, on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let more = source.to_string();
        // Some errors repeat their cause in their own text.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = source.source();
    }
    text
}

/// Writes down what changes, until the beacon's thread is gone.
pub(crate) async fn write(mut changes: mpsc::Receiver<Change>) {
    while let Some(change) = changes.recv().await {
        tell(&change);
    }
}

fn tell(change: &Change) {
    match change {
        Change::SliceTaken { version, subjects, observers, replicas } => {
            info!(version, subjects, observers, replicas, "works with a new slice");
        }
        Change::Silent { subject, silent } => {
            warn!(%subject, %silent, "a peer is silent; the replicas are told");
        }
        Change::HeardAgain { subject, silent } => {
            info!(%subject, %silent, "a silent peer is heard again; the replicas are told");
        }
        Change::Rebooted { subject, boot } => info!(%subject, %boot, "a peer is in another boot"),
        Change::BootProven { subject, boot } => warn!(
            %subject, %boot,
            "an old beacon had displaced this peer's living boot, which answered a fresh question: \
             somebody replays beacons, or two machines share one identity"
        ),
        Change::Doubts(doubt) => warn!(?doubt, "asks not to be believed when it accuses: {}", reason(*doubt)),
        Change::Trusts(doubt) => info!(?doubt, "a reason not to be believed is over"),
        Change::Alone => warn!(
            "none of this host's observers says that it hears it; if the arbiter cannot hear it either, \
             it may be fenced: check the network and UDP 7460"
        ),
        Change::NotAlone => info!("observers hear this host again"),
    }
}

const fn reason(doubt: SelfDoubt) -> &'static str {
    match doubt {
        SelfDoubt::LateTick => "this process was paused or starved",
        SelfDoubt::ReceiveDrops => "its socket dropped datagrams",
        SelfDoubt::Pressure => "memory or CPU pressure is high",
        SelfDoubt::Suspended => "the host was suspended",
        SelfDoubt::NoArbiter => "no replica answered for 3 s",
    }
}
