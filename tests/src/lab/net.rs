//! Cables: the hub with its spine and racks, the BMC network, the links of a machine, the host's own link.
//!
//! ```text
//!  host root netns --clab-NAME-- spine (hub; API server) --up-r1/down-r1-- rack-r1 --n1-- eth0 (netns of n1)
//!                                                        --up-r2/down-r2-- rack-r2 --n3-- eth0 (netns of n3)
//!  BMC network: bridge `bmc`, one address for each BMC, nothing forwarded      --n1-- bmc0 (replicas' machines only)
//! ```
//!
//! A machine's namespace is made at power-on and destroyed at power-off, so that no socket of an old life is there to
//! answer in the next one; its addresses, link addresses included, stay.

use std::{
    fmt::Write,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};

use super::{
    cuts::{Cut, CutSet, Target, uplink},
    plan::{MachinePlan, Plan, SERVICE_ADDRESS},
    shell::{run, run_with_input},
};

/// Port of the API server.
pub const API_PORT: u16 = 6443;

/// The lab's networks, and what does not pass on them.
#[derive(Debug)]
pub struct Net {
    plan: Plan,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    set: CutSet,
    /// What nft was last told, to leave out what changes nothing.
    hub: String,
    bmc: String,
}

// === impl Net ===

impl Net {
    /// Builds the hub, the racks, the BMC network and the host's link. Every machine is silent until its power-on.
    ///
    /// # Errors
    /// When a command fails, for instance because an old lab of that name is still there.
    pub fn build(plan: &Plan) -> Result<Self> {
        let net = Self { plan: plan.clone(), state: Mutex::default() };
        net.build_hub().context("build the hub")?;
        net.build_bmc_network().context("build the BMC network")?;
        net.change(|set| {
            set.silent = plan.machines.iter().map(|machine| machine.name.clone()).collect();
        })?;
        Ok(net)
    }

    /// Gives a machine fresh links, which it has to set up itself. They pass nothing before [`Net::hear`].
    ///
    /// # Errors
    /// When a command fails.
    pub fn plug(&self, machine: &MachinePlan) -> Result<()> {
        let names = &self.plan.names;
        let (netns, hub, name) = (names.netns(&machine.name), names.hub(), &machine.name);
        run("ip", ["netns", "add", &netns])?;
        batch(&netns, &format!("link set lo up\nlink add eth0 type veth peer name {name} netns {hub}\n"))?;
        batch(&hub, &format!("link set {name} master rack-{} up\n", machine.rack))?;
        let mut commands =
            format!("link set eth0 address {}\naddr add {}/16 dev eth0\n", machine.mac, machine.address);
        if let Some(address) = machine.bmc_link_address {
            let bmc = names.bmc_network();
            let mac = &machine.bmc_link_mac;
            batch(&netns, &format!("link add bmc0 type veth peer name {name} netns {bmc}\n"))?;
            batch(&bmc, &format!("link set {name} master bmc up\n"))?;
            let _ = write!(commands, "link set bmc0 address {mac}\naddr add {address}/16 dev bmc0\n");
        }
        batch(&netns, &commands)
    }

    /// Destroys a machine's links and its network namespace, if they are there.
    ///
    /// # Errors
    /// When the namespace stays.
    pub fn unplug(&self, machine: &MachinePlan) -> Result<()> {
        let names = &self.plan.names;
        // The ports first: the kernel takes a namespace apart later, when its name may be in use again.
        let _ = run("ip", ["-n", &names.hub(), "link", "del", &machine.name]);
        if machine.bmc_link_address.is_some() {
            let _ = run("ip", ["-n", &names.bmc_network(), "link", "del", &machine.name]);
        }
        let netns = names.netns(&machine.name);
        if std::path::Path::new("/run/netns").join(&netns).exists() {
            run("ip", ["netns", "del", &netns])?;
        }
        Ok(())
    }

    /// Nothing passes on any link of the machine from here on.
    ///
    /// # Errors
    /// When nft refuses.
    pub fn silence(&self, machine: &str) -> Result<()> {
        self.change(|set| {
            set.silent.insert(machine.to_owned());
        })
    }

    /// The machine's links pass again what no other cut holds back.
    ///
    /// # Errors
    /// When nft refuses.
    pub fn hear(&self, machine: &str) -> Result<()> {
        self.change(|set| {
            set.silent.remove(machine);
        })
    }

    /// Adds a cut; one with the same target is replaced.
    ///
    /// # Errors
    /// When it names nothing of this lab, or nft refuses.
    pub fn cut(&self, cut: &Cut) -> Result<()> {
        cut.check(&self.plan)?;
        self.change(|set| {
            set.cuts.retain(|old| old.target != cut.target);
            set.cuts.push(cut.clone());
        })
    }

    /// Ends the cuts with that target, or all of them; returns those that ended.
    ///
    /// # Errors
    /// When nft refuses.
    pub fn heal(&self, target: Option<&Target>) -> Result<Vec<Cut>> {
        let mut healed = Vec::new();
        self.change(|set| {
            let (end, stay) =
                set.cuts.drain(..).partition(|cut| target.is_none_or(|target| cut.target == *target));
            (healed, set.cuts) = (end, stay);
        })?;
        Ok(healed)
    }

    /// The cuts in force.
    pub fn cuts(&self) -> Vec<Cut> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).set.cuts.clone()
    }

    /// Takes the BMC's address away, or gives it back: the cord of the whole machine.
    ///
    /// # Errors
    /// When it cannot be changed.
    pub fn bmc_address(&self, machine: &MachinePlan, present: bool) -> Result<()> {
        let address = format!("{}/32", machine.bmc_address);
        let verb = if present { "replace" } else { "del" };
        let done = run("ip", ["-n", &self.plan.names.bmc_network(), "addr", verb, &address, "dev", "bmc"]);
        match done {
            // Already gone is what was asked for.
            Err(error) if !present && format!("{error:#}").contains("Cannot assign") => Ok(()),
            other => other.map(drop),
        }
    }

    /// Changes the cuts and tells nft, in each namespace whose rules differ now.
    fn change(&self, edit: impl FnOnce(&mut CutSet)) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        edit(&mut state.set);
        let (hub, bmc) = (state.set.hub_rules(&self.plan)?, state.set.bmc_rules(&self.plan)?);
        if state.hub != hub {
            nft(&self.plan.names.hub(), &hub).context("change the hub's cuts")?;
            state.hub = hub;
        }
        if state.bmc != bmc {
            nft(&self.plan.names.bmc_network(), &bmc).context("change the BMC network's cuts")?;
            state.bmc = bmc;
        }
        Ok(())
    }

    fn build_hub(&self) -> Result<()> {
        let (plan, names) = (&self.plan, &self.plan.names);
        let (hub, api) = (names.hub(), plan.api_address);
        run("ip", ["netns", "add", &hub])?;
        let mut commands = format!(
            "link set lo up\nlink add spine type bridge\nlink set spine address {} up\naddr add {api}/16 dev spine\n",
            plan.hub_mac
        );
        for rack in &plan.racks {
            let up = uplink(rack);
            let _ = write!(
                commands,
                "link add rack-{rack} type bridge\nlink set rack-{rack} up\n\
                 link add {up} type veth peer name down-{rack}\n\
                 link set {up} master spine up\nlink set down-{rack} master rack-{rack} up\n"
            );
        }
        for machine in &plan.machines {
            let _ = writeln!(commands, "route add {} via {} dev spine", machine.pod_range, machine.address);
        }
        batch(&hub, &commands)?;
        // Bridged packets stay out of the IP rules, which would redirect them a second time. Absent without br_netfilter.
        // Only the spine owns the hub's address. Without arp_ignore the racks' bridges answer for it too, with a MAC that
        // changes whenever a port goes, and then the neighbours of a machine that lost power lose the API server.
        in_netns(
            &hub,
            "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore; echo 1 > /proc/sys/net/ipv4/ip_forward; for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $f ] || echo 0 > $f; done",
        )?;
        nft(
            &hub,
            &format!(
                "table ip services {{\n\
                 chain from_machines {{\n type nat hook prerouting priority -100;\n ip daddr {SERVICE_ADDRESS} tcp dport 443 dnat to {api}:{API_PORT}\n }}\n\
                 chain from_hub {{\n type nat hook output priority -100;\n ip daddr {SERVICE_ADDRESS} tcp dport 443 dnat to {api}:{API_PORT}\n }}\n}}\n"
            ),
        )?;
        let link = names.host_link();
        run("ip", ["link", "add", &link, "type", "veth", "peer", "name", "host", "netns", &hub])?;
        batch(&hub, "link set host master spine up\n")?;
        run("ip", ["addr", "add", &format!("{}/16", plan.host_address), "dev", &link])?;
        run("ip", ["link", "set", &link, "up"]).map(drop)
    }

    fn build_bmc_network(&self) -> Result<()> {
        let bmc = self.plan.names.bmc_network();
        run("ip", ["netns", "add", &bmc])?;
        let mut commands = String::from(
            "link set lo up\nlink add bmc type bridge\nlink set bmc address 02:c0:00:ff:00:01 up\nroute add 172.30.0.0/16 dev bmc\n",
        );
        for machine in &self.plan.machines {
            let _ = writeln!(commands, "addr add {}/32 dev bmc", machine.bmc_address);
        }
        batch(&bmc, &commands)?;
        in_netns(
            &bmc,
            "echo 0 > /proc/sys/net/ipv4/ip_forward; for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $f ] || echo 0 > $f; done",
        )
    }
}

/// Several `ip` commands in one network namespace, for the price of one process.
fn batch(netns: &str, commands: &str) -> Result<()> {
    run_with_input("ip", ["-n", netns, "-batch", "-"], commands).map(drop)
}

fn nft(netns: &str, rules: &str) -> Result<()> {
    // Cheaper than `ip netns exec`, which mounts a /sys of its own.
    run_with_input("nsenter", [&format!("--net=/run/netns/{netns}"), "nft", "-f", "-"], rules).map(drop)
}

fn in_netns(netns: &str, script: &str) -> Result<()> {
    run("ip", ["netns", "exec", netns, "sh", "-c", script]).map(drop)
}
