//! Whether a machine is at home: it runs, it serves the cluster, and Coroner hears the boot that truly runs.
//!
//! What is harmed sooner dies a death that nobody can judge: in the first seconds of a boot the kubelet is Ready while
//! the agent's container has not started, and Coroner cannot miss what it never heard.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};
use coroner_shared::{api::NodeSummary, time::Span};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{Api, api::ListParams};

use super::Site;
use crate::{
    lab::{
        Power,
        protocol::{Listing, MachineState},
        writer::boottime_ns,
    },
    oracles::watched::{Kind, NodeSeen},
};

/// Beacons come to the replicas once a second.
const HEARD_WITHIN: Span = Span::from_secs(2);
/// A kubelet renews its Lease every 10 s; one that missed that is not back yet.
const RENEWED_WITHIN_MS: i64 = 12_000;
/// For so long it must have been at home without a break: its observers, which hear it four times a second, and every
/// replica have heard it by then.
const STEADY_NS: u64 = 3_000_000_000;

/// The boots that are at home, and since when without a break.
#[derive(Debug, Default)]
pub struct Homes {
    since: Mutex<BTreeMap<String, (String, u64)>>,
}

// === impl Homes ===

impl Homes {
    /// Takes a look at a machine into account, and says what is missing yet.
    fn look(&self, now: u64, name: &str, boot: &str, missing: Option<String>) -> Option<String> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(missing) = missing {
            since.remove(name);
            return Some(missing);
        }
        let (known, begin) = since.entry(name.to_owned()).or_insert_with(|| (boot.to_owned(), now));
        if known != boot {
            *known = boot.to_owned();
            *begin = now;
        }
        let gone = now.saturating_sub(*begin);
        (gone < STEADY_NS).then(|| format!("it has been heard for {} ms only", gone / 1_000_000))
    }
}

// === impl Site ===

impl Site {
    /// What each machine lacks yet to be at home; those that lack nothing are not in it.
    ///
    /// # Errors
    /// When nobody can be asked: the lab, the leader.
    pub async fn not_at_home(&self) -> Result<BTreeMap<String, String>> {
        let leader = self.people.leader().await?.context("no replica leads now")?;
        // The truth first: a machine that boots in between is not at home.
        let Listing { machines, .. } = self.power.list().await?;
        let summaries = self.people.nodes_of(leader).await?;
        let nodes = self.watch.present(Kind::Node);
        let renewed = self.renewed_ago().await?;
        let now = boottime_ns();
        let lacks = machines.iter().filter_map(|machine| {
            let name = machine.machine.as_str();
            let summary = summaries.iter().find(|summary| summary.node.as_str() == name);
            let node = nodes.iter().find(|seen| seen.name == name).and_then(|seen| seen.node());
            let boot = machine.boot_id.clone().unwrap_or_default();
            let missing = missing(machine, summary, node.as_ref(), renewed.get(name).copied());
            Some((name.to_owned(), self.homes.look(now, name, &boot, missing)?))
        });
        Ok(lacks.collect())
    }

    /// How long ago each kubelet renewed its Lease, in ms.
    async fn renewed_ago(&self) -> Result<BTreeMap<String, i64>> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), "kube-node-lease");
        let listed = leases.list(&ListParams::default()).await.context("list the kubelets' Leases")?;
        let now = Timestamp::now();
        let ago = listed.items.into_iter().filter_map(|lease| {
            let renewed = lease.spec?.renew_time?.0;
            Some((lease.metadata.name?, now.as_millisecond() - renewed.as_millisecond()))
        });
        Ok(ago.collect())
    }
}

/// What a machine lacks at this moment; `renewed`: how many ms ago its kubelet renewed its Lease.
fn missing(
    truth: &MachineState,
    summary: Option<&NodeSummary>,
    node: Option<&NodeSeen>,
    renewed: Option<i64>,
) -> Option<String> {
    let Some(boot) = truth.boot_id.as_deref().filter(|_| truth.power == Power::On && !truth.frozen) else {
        return Some("it does not run".to_owned());
    };
    let Some(node) = node else { return Some("there is no Node".to_owned()) };
    let Some(summary) = summary else { return Some("Coroner does not know it".to_owned()) };
    let known = summary.boot.map(|boot| boot.to_string());
    if summary.phase != "Alive" {
        Some(format!("{}: {}", summary.phase, summary.next))
    } else if node.boot_id != boot {
        Some("its kubelet still names another boot".to_owned())
    } else if node.ready != "True" {
        Some("its Node is not Ready".to_owned())
    } else if node.out_of_service {
        Some("the taint stands".to_owned())
    } else if node.given_up {
        Some("Kubernetes has not taken its own taints away yet".to_owned())
    } else if node.unschedulable {
        Some("it is cordoned".to_owned())
    } else if known.as_deref() != Some(boot) {
        Some(format!("it runs in boot {boot}, and Coroner knows {}", known.as_deref().unwrap_or("none")))
    } else if summary.heard_ago.is_none_or(|ago| ago > HEARD_WITHIN) {
        Some(summary.heard_ago.map_or("it is not heard".to_owned(), |ago| format!("heard {ago} ago")))
    } else if renewed.is_none_or(|ago| ago > RENEWED_WITHIN_MS) {
        // Ready stays True for a while after a kubelet's last word.
        Some(renewed.map_or("it has no Lease".to_owned(), |ago| format!("its Lease is {ago} ms old")))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "19ba795f-c528-40d0-bf32-b785a05eefcc";
    const OLD: &str = "38e54250-e25e-4c86-bdc2-0a7b0cf5747d";

    fn well() -> (MachineState, NodeSummary, NodeSeen) {
        let truth = MachineState {
            machine: "n2".to_owned(),
            power: Power::On,
            frozen: false,
            boot_id: Some(BOOT.to_owned()),
            init: Some(1),
            uuid: "eff8ad39-59a9-45c3-99e2-0f0279450b6d".to_owned(),
            rack: "r1".to_owned(),
            address: [10, 100, 1, 2].into(),
            bmc_address: [172, 30, 1, 2].into(),
            changed: false,
        };
        let summary = NodeSummary {
            node: "n2".parse().unwrap(),
            phase: "Alive".to_owned(),
            reason: None,
            age: Span::ZERO,
            next: "It is watched.".to_owned(),
            advice: None,
            incident: None,
            uid: None,
            boot: Some(BOOT.parse().unwrap()),
            machine: None,
            domain: "r1".to_owned(),
            mode: "Enforce".to_owned(),
            policy: None,
            heard_ago: Some(Span::from_ms(900)),
            bmc: None,
            findings: Vec::new(),
        };
        let node = NodeSeen { boot_id: BOOT.to_owned(), ready: "True".to_owned(), ..NodeSeen::default() };
        (truth, summary, node)
    }

    #[test]
    fn everything_that_can_be_missing_is_named() {
        type Change = fn(&mut (MachineState, NodeSummary, NodeSeen));
        let table: [(&str, Change); 12] = [
            ("does not run", |w| w.0.power = Power::Off),
            ("does not run", |w| w.0.frozen = true),
            ("Held: It is watched.", |w| w.1.phase = "Held".to_owned()),
            ("names another boot", |w| w.2.boot_id = OLD.to_owned()),
            ("not Ready", |w| w.2.ready = "Unknown".to_owned()),
            ("the taint stands", |w| w.2.out_of_service = true),
            ("its own taints", |w| w.2.given_up = true),
            ("cordoned", |w| w.2.unschedulable = true),
            ("Coroner knows none", |w| w.1.boot = None),
            ("and Coroner knows 38e5", |w| w.1.boot = Some(OLD.parse().unwrap())),
            ("not heard", |w| w.1.heard_ago = None),
            ("heard 2.01s ago", |w| w.1.heard_ago = Some(Span::from_ms(2010))),
        ];
        let (truth, summary, node) = well();
        assert_eq!(missing(&truth, Some(&summary), Some(&node), Some(12_000)), None);
        assert!(missing(&truth, None, Some(&node), Some(0)).unwrap().contains("does not know"));
        assert!(missing(&truth, Some(&summary), None, Some(0)).unwrap().contains("no Node"));
        let renewed = |ago| missing(&truth, Some(&summary), Some(&node), ago).unwrap();
        assert_eq!(renewed(Some(12_001)), "its Lease is 12001 ms old");
        assert_eq!(renewed(None), "it has no Lease");
        for (part, change) in table {
            let mut world = well();
            change(&mut world);
            let said = missing(&world.0, Some(&world.1), Some(&world.2), Some(0));
            assert!(said.as_ref().is_some_and(|said| said.contains(part)), "{part}: {said:?}");
        }
    }

    #[test]
    fn only_three_seconds_without_a_break_of_one_boot_count() {
        let homes = Homes::default();
        let second = |s: u64| s * 1_000_000_000;
        let look = |s, boot, missing: Option<&str>| {
            homes.look(second(s), "n2", boot, missing.map(str::to_owned)).is_none()
        };
        assert!(!look(10, OLD, None));
        assert!(!look(12, OLD, None));
        assert!(look(13, OLD, None));
        assert!(!look(14, BOOT, None), "another boot begins anew");
        assert!(!look(16, BOOT, None));
        assert!(!look(17, BOOT, Some("not heard")), "a break");
        assert!(!look(18, BOOT, None));
        assert!(look(21, BOOT, None));
        assert!(homes.look(second(21), "n4", BOOT, None).is_some(), "each machine by itself");
    }
}
