//! What Coroner costs the machines of a quiet site: six agents and three replicas as they ship, with real kubelets
//! beside them. A sample is one minute of one of them.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Asked;
use super::row::{Bench, Row};
use super::samples::{Samples, as_f64};
use crate::lab::site::Site;
use crate::lab::traffic::{self, Counted, Traffic};
use crate::lab::usage::Usage;
use crate::lab::writer::boottime_ns;

const AGENT: &str = "coroner-agent";
const ARBITER: &str = "coroner-arbiter";
const MINUTE: Duration = Duration::from_secs(60);

/// Samples of one program: memory in MiB, percent of a core.
#[derive(Default)]
struct Cost {
    memory: Vec<f64>,
    cpu: Vec<f64>,
}

/// Samples of one direction: packets and bytes a second.
#[derive(Default)]
struct Rate {
    packets: Vec<f64>,
    bytes: Vec<f64>,
}

/// Everything that is measured.
#[derive(Default)]
struct Found {
    agents: Cost,
    leader: Cost,
    followers: Cost,
    sent: Rate,
    received: Rate,
}

/// One look at everything that is counted.
struct Look {
    at: u64,
    agents: Vec<Usage>,
    replicas: Vec<(String, Usage)>,
    traffic: Vec<Traffic>,
}

/// Measures.
///
/// # Errors
/// There is no site; a program was restarted meanwhile.
pub async fn measure(asked: &Asked, bench: &mut Bench) -> Result<()> {
    let site = asked.site().await?;
    // Two minutes in which everything that comes with a start ends.
    site.wait_steady(&[]).await?;
    site.wait_writing().await?;
    for machine in alone(site) {
        traffic::count(site.plan(), &machine)?;
    }
    let mut found = Found::default();
    let mut before = look(site)?;
    for minute in 1..=asked.minutes {
        site.tell.note(&format!("a quiet site: minute {minute} of {}", asked.minutes));
        tokio::time::sleep(MINUTE).await;
        let leader = site.people.leader().await?.context("no replica leads")?.host.to_string();
        let now = look(site)?;
        found.add(&before, &now, &leader)?;
        found.rows().into_iter().for_each(|row| bench.put(row));
        before = now;
    }
    Ok(())
}

/// Machines without a replica.
fn alone(site: &Site) -> Vec<String> {
    let names = site.plan().machines.iter().map(|machine| machine.name.clone());
    names.filter(|name| !site.hosts_replica(name)).collect()
}

fn look(site: &Site) -> Result<Look> {
    let plan = site.plan();
    let agents = plan.machines.iter().map(|machine| Usage::of(plan, &machine.name, AGENT));
    let hosts = plan.machines.iter().filter(|machine| site.hosts_replica(&machine.name));
    let replicas = hosts.map(|host| Ok((host.name.clone(), Usage::of(plan, &host.name, ARBITER)?)));
    Ok(Look {
        at: boottime_ns(),
        agents: agents.collect::<Result<_>>()?,
        replicas: replicas.collect::<Result<_>>()?,
        traffic: alone(site).iter().map(|name| traffic::read(plan, name)).collect::<Result<_>>()?,
    })
}

// === impl Found ===

impl Found {
    fn add(&mut self, before: &Look, now: &Look, leader: &str) -> Result<()> {
        let span = now.at.saturating_sub(before.at);
        for (earlier, later) in before.agents.iter().zip(&now.agents) {
            self.agents.add(earlier, later, span)?;
        }
        for ((_, earlier), (host, later)) in before.replicas.iter().zip(&now.replicas) {
            let cost = if host == leader { &mut self.leader } else { &mut self.followers };
            cost.add(earlier, later, span)?;
        }
        for (earlier, later) in before.traffic.iter().zip(&now.traffic) {
            self.sent.add(later.sent.since(&earlier.sent), span);
            self.received.add(later.received.since(&earlier.received), span);
        }
        Ok(())
    }

    fn rows(&self) -> Vec<Row> {
        let Self { agents, leader, followers, sent, received } = self;
        let mut rows = Vec::new();
        for (name, Cost { memory, cpu }) in
            [("agent", agents), ("arbiter that leads", leader), ("arbiter that follows", followers)]
        {
            rows.push(Row::new(format!("{name}, resident memory"), "MiB", &Samples::of(memory.clone())));
            rows.push(Row::new(format!("{name}, processor"), "% core", &Samples::of(cpu.clone())));
        }
        for (name, Rate { packets, bytes }) in [("sent", sent), ("received", received)] {
            rows.push(Row::new(format!("agent, packets {name}"), "1/s", &Samples::of(packets.clone())));
            rows.push(Row::new(format!("agent, bytes {name}"), "B/s", &Samples::of(bytes.clone())));
        }
        // A follower's rows have no sample where a lone replica leads.
        rows.retain(|row| row.n > 0);
        rows
    }
}

// === impl Cost ===

impl Cost {
    fn add(&mut self, earlier: &Usage, later: &Usage, span_ns: u64) -> Result<()> {
        self.memory.push(as_f64(later.rss_kib) / 1024.0);
        self.cpu.push(as_f64(later.cpu_since(earlier)?) * 100.0 / as_f64(span_ns.max(1)));
        Ok(())
    }
}

// === impl Rate ===

impl Rate {
    fn add(&mut self, counted: Counted, span_ns: u64) {
        let seconds = as_f64(span_ns.max(1)) / 1e9;
        self.packets.push(as_f64(counted.packets) / seconds);
        self.bytes.push(as_f64(counted.bytes) / seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_becomes_shares_and_rates_and_a_restart_becomes_an_error() {
        let usage = |cpu_ns| Usage { pid: 1, cpu_ns, rss_kib: 2048 };
        let counted = |packets| Counted { packets, bytes: packets * 100 };
        let look = |at: u64, cpu: u64, packets: u64| Look {
            at: at * 1_000_000_000,
            agents: vec![usage(cpu)],
            replicas: vec![("n1".to_owned(), usage(2 * cpu)), ("n3".to_owned(), usage(cpu))],
            traffic: vec![Traffic { sent: counted(packets), received: counted(2 * packets) }],
        };
        let (before, now) = (look(10, 0, 0), look(20, 100_000_000, 50));
        let mut found = Found::default();
        found.add(&before, &now, "n1").unwrap();
        let rows = found.rows();
        let of = |name: &str| rows.iter().find(|row| row.name == name).map(|row| (row.p50, row.unit));
        assert_eq!(of("agent, resident memory"), Some((2.0, "MiB")));
        assert_eq!(of("agent, processor"), Some((1.0, "% core")));
        assert_eq!(of("arbiter that leads, processor"), Some((2.0, "% core")));
        assert_eq!(of("arbiter that follows, processor"), Some((1.0, "% core")));
        assert_eq!(of("agent, packets sent"), Some((5.0, "1/s")));
        assert_eq!(of("agent, bytes received"), Some((1000.0, "B/s")));

        let mut restarted = look(30, 0, 60);
        restarted.agents[0].pid = 2;
        assert!(Found::default().add(&now, &restarted, "n1").is_err());
    }
}
