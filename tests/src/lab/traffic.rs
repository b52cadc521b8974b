//! What an agent sends and receives on a machine, counted by the kernel with IP headers: datagrams between agents and
//! to replicas, requests to replicas, probes. A machine with a replica cannot be counted so: the replica uses the same
//! ports. How others probe its kubelet is not counted either: that is the API server's port as well.

use anyhow::{Context, Result};
use coroner_shared::names::{PORT_KUBELET, PORT_PEER, PORT_REPLICA, PORT_REPORT};
use serde_json::Value;

use super::{
    Plan,
    shell::{run, run_with_input},
};

/// Name of the table.
const TABLE: &str = "lab_traffic";

/// Packets and bytes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets.
    pub packets: u64,
    /// Bytes, IP headers included.
    pub bytes: u64,
}

/// Both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By the agent.
    pub sent: Counted,
    /// By the agent.
    pub received: Counted,
}

/// Begins to count on a machine; until its next boot.
///
/// # Errors
/// It is off, or nft refuses.
pub fn count(plan: &Plan, machine: &str) -> Result<()> {
    // `accept` ends the chain, so that nothing counts twice; the machine's other tables are still asked.
    let rules = format!(
        "table inet {TABLE} {{
  counter sent {{ }}
  counter received {{ }}
  chain sent {{
    type filter hook output priority filter; policy accept;
    udp dport {{ {PORT_PEER}, {PORT_REPORT} }} counter name sent accept
    udp sport {PORT_PEER} counter name sent accept
    tcp dport {{ {PORT_REPLICA}, {PORT_KUBELET} }} counter name sent accept
    ip protocol icmp counter name sent accept
  }}
  chain received {{
    type filter hook input priority filter; policy accept;
    udp dport {PORT_PEER} counter name received accept
    udp sport {{ {PORT_PEER}, {PORT_REPORT} }} counter name received accept
    tcp sport {{ {PORT_REPLICA}, {PORT_KUBELET} }} counter name received accept
    ip protocol icmp counter name received accept
  }}
}}
"
    );
    run_with_input("nsenter", [&network(plan, machine), "nft", "-f", "-"], &rules).map(drop)
}

/// What was counted so far.
///
/// # Errors
/// The machine was off in between, or nft says something else.
pub fn read(plan: &Plan, machine: &str) -> Result<Traffic> {
    let words = [&network(plan, machine), "nft", "-j", "list", "counters", "table", "inet", TABLE];
    parse(&run("nsenter", words)?)
}

// === helpers ===

fn network(plan: &Plan, machine: &str) -> String {
    format!("--net=/run/netns/{}", plan.names.netns(machine))
}

/// libnftables-json(5).
fn parse(text: &str) -> Result<Traffic> {
    let listed: Value = serde_json::from_str(text).context("understand what nft counted")?;
    let counted = |name: &str| {
        let counters = listed["nftables"].as_array()?.iter().map(|item| &item["counter"]);
        let counter = counters.into_iter().find(|counter| counter["name"] == name)?;
        Some(Counted { packets: counter["packets"].as_u64()?, bytes: counter["bytes"].as_u64()? })
    };
    Ok(Traffic {
        sent: counted("sent").context("nft has counted nothing sent")?,
        received: counted("received").context("nft has counted nothing received")?,
    })
}

// === impl Counted ===

impl Counted {
    /// What was added since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_counters_are_read_and_a_missing_one_is_an_error() {
        let sent = r#"{"counter": {"family": "inet", "name": "sent", "packets": 3, "bytes": 300}}"#;
        let received = r#"{"counter": {"family": "inet", "name": "received", "packets": 5, "bytes": 4}}"#;
        let text = |items: &[&str]| format!(r#"{{"nftables": [{{"metainfo": {{}}}}, {}]}}"#, items.join(","));
        let found = parse(&text(&[sent, received])).unwrap();
        assert_eq!(found.sent, Counted { packets: 3, bytes: 300 });
        assert_eq!(found.received, Counted { packets: 5, bytes: 4 });
        assert!(parse(&text(&[sent])).unwrap_err().to_string().contains("received"));
        let earlier = Counted { packets: 1, bytes: 100 };
        assert_eq!(found.sent.since(&earlier), Counted { packets: 2, bytes: 200 });
    }
}
