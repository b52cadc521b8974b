//! What can go wrong, each with its own end: hosts, networks, BMCs, the API server, replicas and their disks.

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::time::Span;

use super::By;
use super::network::{Cut, Ends, Flow, Weather};
use super::world::World;

/// Something that goes wrong, or that somebody does.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Power goes; the BMC lives.
    PowerCut { machine: usize },
    /// Power goes, and the BMC's with it, until the end.
    CordPulled { machine: usize },
    /// A feed: all machines of a rack lose power, their BMCs too if they hang on the same.
    RackPower { rack: usize, bmcs: bool },
    /// Nothing moves or answers for so long.
    Freeze { machine: usize, span: Span },
    /// Programs hang, the kernel answers.
    Hang { machine: usize },
    /// A crash kernel dumps for so long, then a reboot.
    Panic { machine: usize, dumps_for: Span },
    /// A reboot without a word.
    Reboot { machine: usize },
    /// A reboot after a goodbye, with a firmware that takes so long.
    PlannedReboot { machine: usize, firmware: Span },
    /// It falls silent and reboots while it is being judged.
    FreezeThenReboot { machine: usize, after: Span },
    /// Somebody powers a machine off and on again while it is being worked on.
    OffThenOn { machine: usize, after: Span },
    /// A machine's wall clock is set forward, or back.
    ClockJump { machine: usize, by: Span, back: bool },
    /// The agent's process is away for so long, with a goodbye or without.
    AgentAway { machine: usize, span: Span, goodbye: bool },
    /// The kubelet's.
    KubeletAway { machine: usize, span: Span },
    /// A cut between some ends, for so long.
    Cut { cut: Vec<Cut>, span: Span },
    /// The same, on and off.
    Flapping { cut: Vec<Cut>, each: Span, times: u32 },
    /// Bad weather for so long.
    Weather { weather: Weather, span: Span },
    /// A BMC answers nobody for so long.
    BmcSilent { bmc: usize, span: Span },
    /// BMCs restart.
    BmcRestart { bmcs: Vec<usize>, gone: Span },
    /// Every call to a BMC is refused for so long.
    BmcPassword { bmc: usize, span: Span },
    /// A BMC answers 500 to so many of a hundred calls.
    BmcErrors { bmc: usize, errors: u64, span: Span },
    /// Two BMCs have each other's address for so long.
    BmcSwapped { a: usize, b: usize, span: Span },
    /// The API server answers nobody for so long.
    ApiDown { span: Span },
    /// A replica's watches show nothing new for so long.
    WatchStuck { replica: usize, span: Span },
    /// A replica's process is killed and started again after so long.
    ReplicaKilled { replica: usize, away: Span },
    /// A replica's disk fails, or is full, for a while.
    DiskFails { replica: usize, full: bool, span: Span },
    /// A replica's disk takes so long for each write, for a while.
    DiskStalls { replica: usize, stall: Span, span: Span },
    /// Somebody records a machine's beacons.
    Records { machine: usize },
    /// And no more: later ones are not among them.
    RecordsNoMore,
    /// And sends them again, from another one.
    Replays { from: usize, span: Span },
    /// By now that death must be decided, or held by a brake.
    MustBeDecided { machine: usize },
    /// By now it must be over: proven, or held by a brake.
    MustBeOver { machine: usize },
    /// What people do.
    People(super::people::Act),
    /// What is not what it says, or forgets.
    Odd(super::odd::Odd),
}

// === impl World ===

impl World {
    /// Begins.
    pub(crate) fn begin(&mut self, trouble: Trouble) {
        self.say(&format!("TROUBLE {trouble:?}"));
        match trouble {
            Trouble::PowerCut { machine } => self.power_off(machine, By::World),
            Trouble::CordPulled { machine } => self.pull_cord(machine),
            Trouble::RackPower { rack, bmcs } => self.rack_power(rack, bmcs),
            Trouble::Freeze { machine, span } => {
                self.freeze(machine);
                self.after(span, move |world| world.thaw(machine));
            }
            Trouble::Hang { machine } => self.hang(machine),
            Trouble::Panic { machine, dumps_for } => self.panic(machine, dumps_for),
            Trouble::Reboot { machine } => self.reboot(machine),
            Trouble::PlannedReboot { machine, firmware } => self.planned_reboot(machine, firmware),
            Trouble::FreezeThenReboot { machine, after } => {
                self.freeze(machine);
                self.after(after, move |world| world.reboot(machine));
            }
            Trouble::OffThenOn { machine, after } => {
                self.power_off(machine, By::World);
                self.after(after, move |world| world.power_on(machine, By::World));
            }
            Trouble::ClockJump { machine, by, back } => self.set_clock(machine, by, back),
            Trouble::AgentAway { machine, span, goodbye } => self.agent_away(machine, span, goodbye),
            Trouble::KubeletAway { machine, span } => {
                self.machines[machine].kubelet = false;
                self.on_machine(span, machine, move |world| {
                    if !world.machines[machine].kubelet {
                        world.kubelet_starts(machine);
                    }
                });
            }
            Trouble::Cut { cut, span } => self.cut_for(cut, span),
            Trouble::Flapping { cut, each, times } => self.flap(cut, each, times),
            Trouble::Weather { weather, span } => {
                self.network.changed = self.now;
                self.network.weather = weather;
                self.after(span, |world| {
                    world.network.changed = world.now;
                    world.network.weather = Weather::FAIR;
                });
            }
            Trouble::BmcSilent { .. }
            | Trouble::BmcRestart { .. }
            | Trouble::BmcPassword { .. }
            | Trouble::BmcErrors { .. } => self.begin_at_bmc(trouble),
            Trouble::BmcSwapped { a, b, span } => {
                self.bmcs.swap(a, b);
                self.after(span, move |world| world.bmcs.swap(a, b));
            }
            Trouble::ApiDown { span } => {
                self.api.down = true;
                self.after(span, |world| world.api.down = false);
            }
            Trouble::WatchStuck { replica, span } => self.stick_watch(replica, span),
            Trouble::ReplicaKilled { .. } | Trouble::DiskFails { .. } | Trouble::DiskStalls { .. } => {
                self.begin_at_replica(&trouble);
            }
            Trouble::Records { machine } => self.record_from(machine),
            Trouble::RecordsNoMore => self.record_no_more(),
            Trouble::Replays { from, span } => self.replay(from, span),
            Trouble::MustBeDecided { machine } => {
                self.tell(&super::truth::Fact::Due { machine, proven: false });
            }
            Trouble::MustBeOver { machine } => {
                self.tell(&super::truth::Fact::Due { machine, proven: true });
            }
            Trouble::People(act) => self.people(&act),
            Trouble::Odd(odd) => self.begin_odd(odd),
        }
    }

    fn begin_at_bmc(&mut self, trouble: Trouble) {
        if let Trouble::BmcSilent { bmc, span } = trouble {
            self.bmcs[bmc].dead = true;
            self.after(span, move |world| world.bmcs[bmc].dead = false);
        } else if let Trouble::BmcRestart { bmcs, gone } = trouble {
            let now = self.now;
            for bmc in bmcs {
                self.bmcs[bmc].restart(now, gone);
            }
        } else if let Trouble::BmcPassword { bmc, span } = trouble {
            self.bmcs[bmc].password_changed = true;
            self.bmcs[bmc].sessions.clear();
            self.after(span, move |world| world.bmcs[bmc].password_changed = false);
        } else if let Trouble::BmcErrors { bmc, errors, span } = trouble {
            let before = std::mem::replace(&mut self.bmcs[bmc].traits.errors, errors);
            let heals = self.heals;
            self.after(span, move |world| {
                if world.heals == heals {
                    world.bmcs[bmc].traits.errors = before;
                }
            });
        }
    }

    fn stick_watch(&mut self, replica: usize, span: Span) {
        let Some(process) = self.replicas[replica].process.as_deref_mut() else { return };
        process.watch_stuck = true;
        let group = process.group;
        self.after(span, move |world| {
            if let Some(process) = world.process(replica, group) {
                process.watch_stuck = false;
                process.watch_broken = true;
            }
        });
    }

    fn begin_at_replica(&mut self, trouble: &Trouble) {
        if let Trouble::ReplicaKilled { replica, away } = *trouble {
            let host = self.site.replicas[replica];
            self.replica_ends(replica, false);
            self.on_machine(away, host, move |world| world.replica_starts(replica));
        } else if let Trouble::DiskFails { replica, full, span } = *trouble {
            self.disk_of(replica, |disk| if full { disk.fill(true) } else { disk.fail(true) });
            self.after(span, move |world| {
                world.disk_of(replica, |disk| {
                    disk.fill(false);
                    disk.fail(false);
                });
            });
        } else if let Trouble::DiskStalls { replica, stall, span } = *trouble {
            self.disk_of(replica, |disk| disk.stall(stall));
            self.after(span, move |world| world.disk_of(replica, |disk| disk.stall(Span::ZERO)));
        }
    }

    pub(crate) fn pull_cord(&mut self, machine: usize) {
        for bmc in self.bmcs.iter_mut().filter(|b| b.machine == machine) {
            bmc.dead = true;
        }
        self.power_off(machine, By::World);
    }

    fn rack_power(&mut self, rack: usize, bmcs: bool) {
        let members: Vec<usize> =
            (0..self.machines.len()).filter(|m| self.machines[*m].rack == Some(rack)).collect();
        for machine in members {
            if bmcs {
                self.pull_cord(machine);
            } else {
                self.power_off(machine, By::World);
            }
        }
    }

    /// Says goodbye, goes down a moment later, and takes its time.
    pub(crate) fn planned_reboot(&mut self, machine: usize, firmware: Span) {
        let Some(boot) = self.machines[machine].boot.filter(|_| self.machines[machine].is_up()) else {
            return;
        };
        self.goodbye(machine, boot, GoodbyeKind::Reboot);
        self.on_machine(Span::from_secs(3), machine, move |world| {
            let usual = std::mem::replace(&mut world.machines[machine].firmware_takes, firmware);
            world.reboot(machine);
            world.machines[machine].firmware_takes = usual;
        });
    }

    /// Says goodbye, and loses its power a moment later.
    pub(crate) fn planned_shutdown(&mut self, machine: usize, kind: GoodbyeKind) {
        let Some(boot) = self.machines[machine].boot.filter(|_| self.machines[machine].is_up()) else {
            return;
        };
        self.goodbye(machine, boot, kind);
        self.on_machine(Span::from_secs(3), machine, move |world| world.power_off(machine, By::World));
    }

    fn goodbye(&mut self, machine: usize, boot: coroner_shared::id::BootId, kind: GoodbyeKind) {
        self.agent_ends(machine);
        let group = self.new_group();
        self.spawn(machine, group, move |shared| {
            Box::pin(super::uplink::goodbye(shared, machine, boot, kind))
        });
    }

    fn agent_away(&mut self, machine: usize, span: Span, goodbye: bool) {
        let Some(boot) = self.machines[machine].boot else { return };
        if goodbye {
            self.goodbye(machine, boot, GoodbyeKind::AgentRestart);
        } else {
            self.agent_ends(machine);
        }
        self.on_machine(span, machine, move |world| world.agent_starts(machine));
    }

    fn cut_for(&mut self, cuts: Vec<Cut>, span: Span) {
        let now = self.now;
        let numbers: Vec<u64> = cuts.into_iter().map(|cut| self.network.cut(now, cut)).collect();
        self.after(span, move |world| {
            let now = world.now;
            for number in numbers {
                world.network.heal(now, number);
            }
        });
    }

    fn flap(&mut self, cuts: Vec<Cut>, each: Span, times: u32) {
        self.cut_for(cuts.clone(), each);
        if times > 1 {
            let heals = self.heals;
            self.after(each + each, move |world| {
                if world.heals == heals {
                    world.flap(cuts, each, times - 1);
                }
            });
        }
    }

    pub(crate) fn disk_of(
        &mut self,
        replica: usize,
        work: impl FnOnce(&mut coroner_arbiter_replica::MemoryStore),
    ) {
        let host = &mut self.replicas[replica];
        match (&mut host.process, &mut host.disk) {
            (Some(process), _) => work(process.replica.store_mut()),
            (None, Some(disk)) => work(disk),
            (None, None) => {}
        }
    }

    /// Everything that went wrong ends, and people put right what only they can.
    pub(crate) fn heal_world(&mut self) {
        self.say("everything heals");
        self.heals += 1;
        let now = self.now;
        self.network.heal_all(now);
        self.api.down = false;
        self.api.held_pods.clear();
        self.heal_odd();
        for bmc in &mut self.bmcs {
            bmc.dead = false;
            bmc.password_changed = false;
            bmc.traits.errors = 0;
        }
        for replica in 0..self.replicas.len() {
            self.disk_of(replica, |disk| {
                disk.fill(false);
                disk.fail(false);
                disk.lie(false);
                disk.stall(Span::ZERO);
            });
            if let Some(process) = self.replicas[replica].process.as_deref_mut() {
                process.watch_stuck = false;
                process.watch_broken = true;
            }
        }
        for machine in 0..self.machines.len() {
            self.thaw(machine);
        }
    }

    /// People look after machines that do not come back by themselves.
    pub(crate) fn tend_machines(&mut self) {
        for machine in 0..self.machines.len() {
            match self.machines[machine].condition {
                super::Condition::Off => self.power_on(machine, By::World),
                super::Condition::Hung => self.reboot(machine),
                super::Condition::Firmware
                | super::Condition::Runs
                | super::Condition::Frozen
                | super::Condition::CrashKernel => {}
            }
            if self.is_taken_for_over(machine) {
                self.reboot(machine);
            }
            if self.machines[machine].is_up() && self.machines[machine].agent.is_none() {
                self.agent_starts(machine);
            }
            if self.machines[machine].is_up() && !self.machines[machine].kubelet {
                self.kubelet_starts(machine);
            }
        }
        for index in 0..self.site.replicas.len() {
            let host = self.site.replicas[index];
            if self.machines[host].is_up() && self.replicas[index].process.is_none() {
                self.replica_starts(index);
            }
        }
    }
}

impl World {
    /// A clone registered a later boot with its key, so the boot that it runs counts as left, and only another one helps.
    fn is_taken_for_over(&self, machine: usize) -> bool {
        let on = &self.machines[machine];
        let member = self.truth.state.nodes.get(&on.name).and_then(|node| node.member.as_ref());
        on.is_up() && on.boot.is_some_and(|boot| member.is_some_and(|m| m.left_boots.contains(&boot)))
    }
}

/// Both ways between some machines and everything else on the data network.
pub(crate) fn isolation(hosts: &[usize]) -> Vec<Cut> {
    let cut = |from: Ends, to: Ends| Cut {
        name: "isolated".to_owned(),
        from,
        to,
        flows: None,
        loss: 100,
        longer_than: 0,
    };
    let inside = || Ends::Hosts(hosts.to_vec());
    let outside = || Ends::NotHosts(hosts.to_vec());
    vec![
        cut(inside(), outside()),
        cut(outside(), inside()),
        cut(inside(), Ends::Api),
        cut(Ends::Api, inside()),
    ]
}

/// One way, all flows or some, with that loss.
pub(crate) fn one_way(from: Ends, to: Ends, flows: Option<Vec<Flow>>, loss: u64) -> Vec<Cut> {
    vec![Cut { name: "one way".to_owned(), from, to, flows, loss, longer_than: 0 }]
}

impl World {
    /// People clear what waits for them alone: pauses, opt-outs, observed policies, holds that only they may end.
    pub(crate) fn tend_decisions(&mut self) {
        use super::people::Act;
        use coroner_arbiter_core::policy::Mode;
        let state = self.truth.state.clone();
        if state.pause.is_some() {
            self.people(&Act::Resume(None));
        }
        if self.api.policies.contains_key("second") {
            self.people(&Act::SecondPolicy(false));
        }
        if self.api.policies.values().any(|p| p.brakes.deaths_per_day == 0) {
            self.people(&Act::BadPolicy(false));
        }
        if self.api.policies.values().any(|p| p.mode == Mode::Observe) {
            self.people(&Act::Mode(Mode::Enforce));
        }
        for machine in 0..self.machines.len() {
            let name = self.machines[machine].name.clone();
            let Some(node) = state.nodes.get(&name) else { continue };
            if node.pause.is_some() {
                self.people(&Act::Resume(Some(machine)));
            }
            self.people(&Act::Exclude(machine, false));
            if node.repeat_offender || node.is_silent_before_enforce() {
                self.people(&Act::ClearHeld(machine));
            }
        }
    }
}
