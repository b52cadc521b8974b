//! What does not pass, as nft rules.
//!
//! ```text
//! Plan + silent machines + cuts  ->  text for `nft -f` in the hub, and in the BMC network
//! ```
//!
//! Pure. A cut is silent: the carrier stays, nobody is told, packets vanish where they enter or leave a bridge's port.
//! The whole text replaces the old one in a single transaction, so there is no moment between two sets of cuts.
//! Not here: delay and reordering, which need NFQUEUE.

use std::{collections::BTreeSet, fmt::Write};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::plan::{Plan, SERVICE_ADDRESS};

/// Where something does not pass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Target {
    /// A machine's data link.
    Link {
        /// Whose.
        machine: String,
    },
    /// Between a machine and the API server only; its peers hear it.
    Api {
        /// Whose; none: every machine's.
        #[serde(default)]
        machine: Option<String>,
    },
    /// Between two machines.
    Pair {
        /// The one from whose side `out` and `in` are meant.
        machine: String,
        /// The other.
        peer: String,
    },
    /// The uplink of a rack: inside it, everything goes on.
    Rack {
        /// `r1`...
        rack: String,
    },
    /// A replica's second link.
    BmcLink {
        /// Whose.
        machine: String,
    },
    /// One BMC, for everybody.
    Bmc {
        /// Whose.
        machine: String,
    },
    /// The BMC network.
    BmcNetwork,
}

/// Which way, seen from the machine, the rack or the BMCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Nothing passes.
    #[default]
    Both,
    /// What it sends is lost.
    Out,
    /// What is sent to it is lost.
    In,
}

/// One cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// Where.
    pub target: Target,
    /// Which way.
    #[serde(default)]
    pub direction: Direction,
    /// Packets of a hundred that are lost, by chance; none: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<u8>,
}

/// Everything that does not pass at one moment.
#[derive(Clone, Debug, Default)]
pub struct CutSet {
    /// Machines that are off or hang: nothing passes on any of their links.
    pub silent: BTreeSet<String>,
    /// What was cut by request.
    pub cuts: Vec<Cut>,
}

/// Rules of one network namespace: what is dropped where it enters a bridge, and where it leaves one.
#[derive(Default)]
struct Rules {
    arriving: Vec<String>,
    leaving: Vec<String>,
}

// === impl Target ===

impl Target {
    /// The single machine that it concerns.
    #[must_use]
    pub fn machine(&self) -> Option<&str> {
        match self {
            Self::Link { machine }
            | Self::Pair { machine, .. }
            | Self::BmcLink { machine }
            | Self::Bmc { machine } => Some(machine),
            Self::Api { machine } => machine.as_deref(),
            Self::Rack { .. } | Self::BmcNetwork => None,
        }
    }

    fn check(&self, plan: &Plan) -> Result<()> {
        if let Some(machine) = self.machine() {
            plan.machine(machine)?;
        }
        match self {
            Self::Pair { machine, peer } => {
                plan.machine(peer)?;
                ensure!(machine != peer, "{machine} is one machine, not a pair");
            }
            Self::Rack { rack } => {
                ensure!(plan.racks.contains(rack), "no rack {rack:?}, only {}", plan.racks.join(" "));
            }
            Self::BmcLink { machine } => {
                ensure!(plan.machine(machine)?.bmc_link_address.is_some(), "{machine} has no second link");
            }
            Self::Link { .. } | Self::Api { .. } | Self::Bmc { .. } | Self::BmcNetwork => {}
        }
        Ok(())
    }
}

// === impl Cut ===

impl Cut {
    /// Nothing passes there, in both directions.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self { target, direction: Direction::Both, loss: None }
    }

    /// Only that direction.
    #[must_use]
    pub fn direction(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    /// Only `percent` of a hundred packets are lost.
    #[must_use]
    pub fn loss(mut self, percent: u8) -> Self {
        self.loss = Some(percent);
        self
    }

    /// Refuses what names nothing of this lab.
    ///
    /// # Errors
    /// Says what there is instead.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        ensure!(self.loss.is_none_or(|percent| percent <= 100), "loss is in percent, 0 to 100");
        self.target.check(plan)
    }
}

// === impl CutSet ===

impl CutSet {
    /// Rules of the hub.
    ///
    /// # Errors
    /// When a cut names a machine that is not there.
    pub fn hub_rules(&self, plan: &Plan) -> Result<String> {
        let mut rules = Rules::default();
        for machine in &self.silent {
            rules.port(machine, Direction::Both, "");
        }
        for cut in &self.cuts {
            let chance = chance(cut.loss);
            match &cut.target {
                Target::Link { machine } => rules.port(machine, cut.direction, &chance),
                Target::Rack { rack } => rules.port(&uplink(rack), cut.direction, &chance),
                Target::Api { machine: Some(machine) } => rules.api(plan, machine, cut.direction, &chance),
                Target::Api { machine: None } => {
                    for machine in &plan.machines {
                        rules.api(plan, &machine.name, cut.direction, &chance);
                    }
                }
                Target::Pair { machine, peer } => {
                    let (from, to) = (plan.machine(machine)?, plan.machine(peer)?);
                    if cut.direction != Direction::In {
                        rules
                            .arriving
                            .push(format!("iifname \"{machine}\" ether daddr {} {chance}drop", to.mac));
                    }
                    if cut.direction != Direction::Out {
                        rules
                            .arriving
                            .push(format!("iifname \"{peer}\" ether daddr {} {chance}drop", from.mac));
                    }
                }
                Target::BmcLink { .. } | Target::Bmc { .. } | Target::BmcNetwork => {}
            }
        }
        Ok(rules.text())
    }

    /// Rules of the BMC network.
    ///
    /// # Errors
    /// When a cut names a machine that is not there.
    pub fn bmc_rules(&self, plan: &Plan) -> Result<String> {
        let mut rules = Rules::default();
        for machine in plan.machines.iter().filter(|machine| machine.bmc_link_address.is_some()) {
            if self.silent.contains(&machine.name) {
                rules.port(&machine.name, Direction::Both, "");
            }
        }
        for cut in &self.cuts {
            let chance = chance(cut.loss);
            match &cut.target {
                Target::BmcLink { machine } => rules.port(machine, cut.direction, &chance),
                // BMCs are addresses of the bridge itself: they send what leaves a port, they get what arrives.
                Target::Bmc { machine } => {
                    let address = plan.machine(machine)?.bmc_address;
                    rules.owner(
                        &format!("ip saddr {address} "),
                        &format!("ip daddr {address} "),
                        cut.direction,
                        &chance,
                    );
                }
                Target::BmcNetwork => rules.owner("", "", cut.direction, &chance),
                Target::Link { .. } | Target::Api { .. } | Target::Pair { .. } | Target::Rack { .. } => {}
            }
        }
        Ok(rules.text())
    }
}

// === impl Rules ===

impl Rules {
    /// Cuts a port of a bridge: what it sends arrives there, what is sent to it leaves there.
    fn port(&mut self, port: &str, direction: Direction, chance: &str) {
        if direction != Direction::In {
            self.arriving.push(format!("iifname \"{port}\" {chance}drop"));
        }
        if direction != Direction::Out {
            self.leaving.push(format!("oifname \"{port}\" {chance}drop"));
        }
    }

    fn api(&mut self, plan: &Plan, machine: &str, direction: Direction, chance: &str) {
        let addresses = format!("{{ {}, {SERVICE_ADDRESS} }}", plan.api_address);
        if direction != Direction::In {
            self.arriving.push(format!("iifname \"{machine}\" ip daddr {addresses} {chance}drop"));
        }
        if direction != Direction::Out {
            self.leaving.push(format!("oifname \"{machine}\" ip saddr {addresses} {chance}drop"));
        }
    }

    fn owner(&mut self, sent: &str, received: &str, direction: Direction, chance: &str) {
        if direction != Direction::In {
            self.leaving.push(format!("{sent}{chance}drop"));
        }
        if direction != Direction::Out {
            self.arriving.push(format!("{received}{chance}drop"));
        }
    }

    /// The table is made before it is deleted, because deleting what is not there is an error.
    fn text(&self) -> String {
        let mut text = String::from("add table bridge lab\ndelete table bridge lab\ntable bridge lab {\n");
        for (chain, hook, priority, rules) in
            [("arriving", "prerouting", -200, &self.arriving), ("leaving", "postrouting", 200, &self.leaving)]
        {
            let _ = writeln!(
                text,
                "  chain {chain} {{\n    type filter hook {hook} priority {priority}; policy accept;"
            );
            for rule in rules {
                let _ = writeln!(text, "    {rule}");
            }
            text.push_str("  }\n");
        }
        text.push_str("}\n");
        text
    }
}

/// Name of the port by which a rack hangs on the spine.
#[must_use]
pub fn uplink(rack: &str) -> String {
    format!("up-{rack}")
}

fn chance(loss: Option<u8>) -> String {
    loss.map(|percent| format!("numgen random mod 100 < {percent} ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{super::plan::LabConfig, *};

    fn plan() -> Plan {
        Plan::new(&LabConfig::new("a", "3x2").unwrap(), 0).unwrap()
    }

    fn rules_of(text: &str) -> Vec<&str> {
        text.lines().map(str::trim).filter(|line| line.ends_with("drop")).collect()
    }

    #[test]
    fn each_kind_of_cut_becomes_its_rules() {
        let machine = || "n1".to_owned();
        let cases: [(Cut, &[&str], &[&str]); 8] = [
            (
                Cut::new(Target::Link { machine: machine() }),
                &["iifname \"n1\" drop", "oifname \"n1\" drop"],
                &[],
            ),
            (
                Cut::new(Target::Link { machine: machine() }).direction(Direction::Out).loss(30),
                &["iifname \"n1\" numgen random mod 100 < 30 drop"],
                &[],
            ),
            (
                Cut::new(Target::Api { machine: Some(machine()) }).direction(Direction::In),
                &["oifname \"n1\" ip saddr { 10.100.0.1, 10.96.0.1 } drop"],
                &[],
            ),
            (
                Cut::new(Target::Pair { machine: machine(), peer: "n4".into() }),
                &[
                    "iifname \"n1\" ether daddr 02:c0:00:01:00:04 drop",
                    "iifname \"n4\" ether daddr 02:c0:00:01:00:01 drop",
                ],
                &[],
            ),
            (
                Cut::new(Target::Rack { rack: "r2".into() }),
                &["iifname \"up-r2\" drop", "oifname \"up-r2\" drop"],
                &[],
            ),
            (
                Cut::new(Target::BmcLink { machine: machine() }),
                &[],
                &["iifname \"n1\" drop", "oifname \"n1\" drop"],
            ),
            (
                Cut::new(Target::Bmc { machine: machine() }),
                &[],
                &["ip daddr 172.30.1.1 drop", "ip saddr 172.30.1.1 drop"],
            ),
            (Cut::new(Target::BmcNetwork), &[], &["drop", "drop"]),
        ];
        for (cut, hub, bmc) in cases {
            cut.check(&plan()).unwrap();
            let set = CutSet { silent: BTreeSet::new(), cuts: vec![cut.clone()] };
            assert_eq!(rules_of(&set.hub_rules(&plan()).unwrap()), hub, "{cut:?}");
            assert_eq!(rules_of(&set.bmc_rules(&plan()).unwrap()), bmc, "{cut:?}");
        }
    }

    #[test]
    fn a_silent_machine_is_cut_from_each_network_that_it_has() {
        let silent = |name: &str| CutSet { silent: BTreeSet::from([name.to_owned()]), cuts: Vec::new() };
        let expected = ["iifname \"n3\" drop", "oifname \"n3\" drop"];
        assert_eq!(rules_of(&silent("n3").hub_rules(&plan()).unwrap()), expected);
        assert_eq!(rules_of(&silent("n3").bmc_rules(&plan()).unwrap()), expected);
        assert_eq!(rules_of(&silent("n4").hub_rules(&plan()).unwrap()).len(), 2);
        assert!(rules_of(&silent("n4").bmc_rules(&plan()).unwrap()).is_empty());
    }

    #[test]
    fn a_cut_that_names_nothing_is_refused() {
        let refused = [
            Target::Link { machine: "n9".into() },
            Target::Pair { machine: "n1".into(), peer: "n1".into() },
            Target::Rack { rack: "r9".into() },
            Target::BmcLink { machine: "n2".into() },
        ];
        for target in refused {
            assert!(Cut::new(target.clone()).check(&plan()).is_err(), "{target:?}");
        }
    }

    #[test]
    fn a_cut_reads_as_the_socket_sends_it() {
        let cut: Cut = serde_json::from_str(r#"{"target":{"kind":"bmc-network"}}"#).unwrap();
        assert_eq!(cut, Cut::new(Target::BmcNetwork));
        let cut: Cut =
            serde_json::from_str(r#"{"target":{"kind":"api","machine":"n1"},"direction":"out","loss":5}"#)
                .unwrap();
        assert_eq!(
            cut,
            Cut::new(Target::Api { machine: Some("n1".into()) }).direction(Direction::Out).loss(5)
        );
    }
}
