//! Metrics (OpenMetrics text) and the log's form. Names are stable; no label grows without bound: nodes, phases,
//! reasons and classes are finite.

use std::sync::Mutex;
use std::sync::PoisonError;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::shown::Shown;

/// One label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reason {
    /// A stable word.
    pub reason: String,
}

/// A node's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfNode {
    /// The node.
    pub node: String,
}

/// A phase.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfPhase {
    /// The phase's name.
    pub phase: String,
}

/// All metrics of a replica.
pub struct Telemetry {
    registry: Mutex<Registry>,
    phases: Family<OfPhase, Gauge>,
    bmc_verified: Family<OfNode, Gauge>,
    term: Gauge,
    applied: Gauge,
    leader: Gauge,
    /// Warnings that page somebody, by reason.
    pub pages: Family<Reason, Counter>,
    /// Commands refused, by reason.
    pub refusals: Family<Reason, Counter>,
    /// Datagrams dropped, by reason.
    pub dropped: Family<Reason, Counter>,
    /// Seconds from a condemnation's first fence step to its proof.
    pub fence_seconds: Histogram,
    /// Log-ins at BMCs.
    pub bmc_log_ins: Counter,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

impl Telemetry {
    /// Registers everything.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("coroner");
        let telemetry = Self {
            phases: Family::default(),
            bmc_verified: Family::default(),
            term: Gauge::default(),
            applied: Gauge::default(),
            leader: Gauge::default(),
            pages: Family::default(),
            refusals: Family::default(),
            dropped: Family::default(),
            fence_seconds: Histogram::new(exponential_buckets(0.5, 2.0, 10)),
            bmc_log_ins: Counter::default(),
            registry: Mutex::new(Registry::default()),
        };
        registry.register("nodes", "Nodes by phase", telemetry.phases.clone());
        registry.register(
            "bmc_verified_age_seconds",
            "Age of the last good verification of a node's BMC",
            telemetry.bmc_verified.clone(),
        );
        registry.register("raft_term", "Raft term", telemetry.term.clone());
        registry.register("raft_applied", "Entries of the log applied", telemetry.applied.clone());
        registry.register("raft_leader", "Whether this replica leads", telemetry.leader.clone());
        registry.register("page", "Warnings that page somebody", telemetry.pages.clone());
        registry.register("refusals", "Commands refused", telemetry.refusals.clone());
        registry.register("datagrams_dropped", "Datagrams dropped", telemetry.dropped.clone());
        registry.register(
            "fence_seconds",
            "From the first step of a fence to its proof",
            telemetry.fence_seconds.clone(),
        );
        registry.register("bmc_log_ins", "Log-ins at BMCs", telemetry.bmc_log_ins.clone());
        *telemetry.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
        telemetry
    }

    /// The text, with the gauges set from what is shown now.
    pub fn text(&self, shown: &Shown) -> String {
        let published = shown.published();
        self.term.set(i64::try_from(published.term).unwrap_or(i64::MAX));
        self.applied.set(i64::try_from(published.applied).unwrap_or(i64::MAX));
        self.leader.set(i64::from(published.role == coroner_arbiter_replica::Role::Leader));
        self.phases.clear();
        for (phase, count) in shown.phases() {
            self.phases.get_or_create(&OfPhase { phase }).set(i64::from(count));
        }
        self.bmc_verified.clear();
        for node in shown.nodes() {
            if let Some(age) = node.bmc.and_then(|b| b.verified_ago) {
                let seconds = i64::try_from(age.as_ms() / 1000).unwrap_or(i64::MAX);
                self.bmc_verified.get_or_create(&OfNode { node: node.node.to_string() }).set(seconds);
            }
        }
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner));
        text
    }
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

/// Starts the log.
///
/// # Errors
/// The filter cannot be parsed.
pub fn log(format: LogFormat, filter: &str) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = filter.parse::<tracing_subscriber::EnvFilter>()?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Human => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
