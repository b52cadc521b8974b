//! What becomes of machines: power, boots, hangs, and the programs that come up with a system.

use coroner_shared::id::BootId;
use coroner_shared::time::{Mono, Span};

use super::machine::Condition;
use super::truth::Fact;
use super::world::World;

/// Whose hand it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A command of ours.
    Us,
    /// A person, or a rack's feed.
    World,
}

/// From a running system to its programs.
const PROGRAMS: (Span, Span) = (Span::from_ms(500), Span::from_secs(4));

// === impl World ===

impl World {
    /// Power goes, at once.
    pub(crate) fn power_off(&mut self, machine: usize, by: By) {
        if !self.machines[machine].has_power() {
            return;
        }
        let boot = self.machines[machine].boot;
        self.end_life(machine, Condition::Off);
        let now = self.now;
        if let (By::Us, Some(boot)) = (by, boot) {
            self.machines[machine].off_by_us = Some((now, boot));
        }
        self.note_power(machine, false);
        let name = self.machines[machine].name.clone();
        self.say(&format!("{name} loses power ({by:?})"));
        self.tell(&Fact::TurnedOff { machine, by });
        let restores = self.bmcs.iter().filter(|b| b.machine == machine).find_map(|b| b.traits.restores);
        if let Some(after) = restores {
            self.after(after, move |world| world.power_on(machine, By::World));
        }
    }

    /// Power comes: the firmware, then a system.
    pub(crate) fn power_on(&mut self, machine: usize, by: By) {
        if self.machines[machine].has_power() {
            return;
        }
        self.end_life(machine, Condition::Firmware);
        self.note_power(machine, true);
        let name = self.machines[machine].name.clone();
        self.say(&format!("{name} has power ({by:?})"));
        self.machines[machine].off_by_us = None;
        self.tell(&Fact::TurnedOn { by });
        self.firmware(machine);
    }

    /// The system ends and another one begins, the power on throughout.
    pub(crate) fn reboot(&mut self, machine: usize) {
        if !self.machines[machine].has_power() {
            return;
        }
        let name = self.machines[machine].name.clone();
        self.say(&format!("{name} reboots"));
        self.end_life(machine, Condition::Firmware);
        self.firmware(machine);
    }

    /// The kernel crashes: for so long a crash kernel answers pings, then the machine reboots.
    pub(crate) fn panic(&mut self, machine: usize, dumps_for: Span) {
        if !self.machines[machine].is_up() {
            return;
        }
        let name = self.machines[machine].name.clone();
        self.say(&format!("{name} panics"));
        self.end_life(machine, Condition::CrashKernel);
        let life = self.machines[machine].life;
        self.after(dumps_for, move |world| {
            if world.machines[machine].life == life {
                world.reboot(machine);
            }
        });
    }

    /// Nothing of it moves any more, until it is thawed.
    pub(crate) fn freeze(&mut self, machine: usize) {
        if self.machines[machine].is_up() {
            let name = self.machines[machine].name.clone();
            self.say(&format!("{name} freezes"));
            self.machines[machine].condition = Condition::Frozen;
            self.machines[machine].disturbed = self.now;
        }
    }

    /// It goes on.
    pub(crate) fn thaw(&mut self, machine: usize) {
        if self.machines[machine].condition == Condition::Frozen {
            let name = self.machines[machine].name.clone();
            self.say(&format!("{name} goes on"));
            let froze = self.machines[machine].disturbed;
            self.machines[machine].pauses.push((froze, self.now));
            self.machines[machine].condition = Condition::Runs;
            self.machines[machine].disturbed = self.now;
            self.catch_up(machine);
        }
    }

    /// Its programs stop being scheduled; the kernel answers, and what had been started may go on writing.
    pub(crate) fn hang(&mut self, machine: usize) {
        if self.machines[machine].is_up() {
            let name = self.machines[machine].name.clone();
            self.say(&format!("{name} hangs, its kernel answers"));
            self.machines[machine].condition = Condition::Hung;
            self.machines[machine].disturbed = self.now;
        }
    }

    fn firmware(&mut self, machine: usize) {
        let (life, takes) = (self.machines[machine].life, self.machines[machine].firmware_takes);
        self.after(takes, move |world| {
            if world.machines[machine].life == life {
                world.system_up(machine);
            }
        });
    }

    /// A new boot.
    pub(crate) fn system_up(&mut self, machine: usize) {
        let boot = BootId::from_bytes(self.draws.machines.bytes16());
        let now = self.now;
        let on = &mut self.machines[machine];
        let (boot, booted) = on.odd.image.unwrap_or((boot, now));
        on.life += 1;
        on.condition = Condition::Runs;
        on.boot = Some(boot);
        on.booted = booted;
        on.drift.restart(now);
        on.disturbed = now;
        let name = on.name.clone();
        self.say(&format!("{name} runs boot {}", short(boot)));
        self.start_programs(machine);
    }

    /// A machine that has been running since before the beginning.
    pub(crate) fn has_been_up(&mut self, machine: usize) {
        let boot = BootId::from_bytes(self.draws.machines.bytes16());
        let since = self.draws.machines.range(100_000, 900_000_000);
        let on = &mut self.machines[machine];
        on.life += 1;
        on.condition = Condition::Runs;
        on.boot = Some(boot);
        on.booted = Mono::from_ms(since);
        self.start_programs(machine);
    }

    fn start_programs(&mut self, machine: usize) {
        let mut takes = || self.draws.machines.span(PROGRAMS.0, PROGRAMS.1);
        let (kubelet, agent, replica) = (takes(), takes(), takes());
        self.on_machine(kubelet, machine, move |world| world.kubelet_starts(machine));
        self.on_machine(agent, machine, move |world| world.agent_starts(machine));
        if let Some(index) = self.site.replicas.iter().position(|host| *host == machine) {
            self.on_machine(replica, machine, move |world| world.replica_starts(index));
        }
    }

    /// Everything that ran on it is over.
    fn end_life(&mut self, machine: usize, condition: Condition) {
        let lost_power = condition == Condition::Off;
        self.agent_ends(machine);
        if let Some(index) = self.site.replicas.iter().position(|host| *host == machine) {
            self.replica_ends(index, lost_power);
        }
        let now = self.now;
        let on = &mut self.machines[machine];
        on.life += 1;
        on.condition = condition;
        on.disturbed = now;
        on.boot = None;
        on.kubelet = false;
        on.runs.clear();
        on.missed.clear();
        on.sleeping.clear();
    }

    fn note_power(&mut self, machine: usize, on: bool) {
        let now = self.now;
        for bmc in self.bmcs.iter_mut().filter(|b| b.machine == machine) {
            bmc.note_power(now, on);
        }
    }
}

/// The first digits of a boot id.
pub(crate) fn short(boot: BootId) -> String {
    boot.to_string().chars().take(8).collect()
}
