//! What is not what it says, or forgets: compromised agents, clones, machines replaced under their Node, releases of
//! another wire version or level, disks that lose what they said was saved or are put back from a copy, clocks.
//!
//! Coroner has one level of rules and one wire version so far. A datagram of another version is refused by the shipped
//! reader of headers; a replica that says it knows another level shows that a level is in force only once all know it.

use coroner_arbiter_replica::MemoryStore;
use coroner_shared::id::BootId;
use coroner_shared::keys::PublicKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::names::PORT_REPORT;
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::datagram::{DatagramError, parse};
use coroner_shared::wire::{CURRENT, DATAGRAM_BYTES_MAX};

use super::By;
use super::liars::Lie;
use super::network::Ends;
use super::trouble::{Trouble, one_way};
use super::world::World;

/// What is not true of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oddities {
    pub(crate) lie: Option<Lie>,
    /// Its agent sends everything but reports.
    pub(crate) never_reports: bool,
    /// The wire version that its agent speaks, and the newest that it understands.
    pub(crate) wire: Option<u8>,
    /// The machine whose disk it was started from: its agent speaks for that one's Node.
    pub(crate) speaks_for: Option<usize>,
    /// Boot and beginning of the clock in the memory image from which it goes on.
    pub(crate) image: Option<(BootId, Mono)>,
    /// Its own machine id and key, where it shows others.
    own: Option<(MachineId, PublicKey)>,
    /// The machine id of the board that was there before, also as its BMC told it.
    board: Option<(MachineId, String)>,
}

/// Something odd begins.
#[derive(Clone, Debug)]
pub(crate) enum Odd {
    /// These agents are compromised, and say that one lives or is dead; `quiet`: of one that is dead, nothing at all.
    Lies { liars: Vec<usize>, about: usize, lives: bool, quiet: bool, span: Span },
    /// A machine reaches nobody of those that observe it when this begins; the others it does.
    OnlyStrangers { machine: usize, span: Span },
    /// A machine is started from a copy of another's disk: the same key, the same machine id, the same Node.
    Clone { machine: usize, of: usize, span: Span },
    /// A machine goes on from another's memory image: the same boot and the same clock, too.
    Twin { machine: usize, of: usize, span: Span },
    /// A machine's firmware tells the UUID of another.
    SameUuid { machine: usize, of: usize, span: Span },
    /// The board under a Node is replaced: another UUID, the same disk.
    Replaced { machine: usize, span: Span },
    /// Agents of another release.
    Wire { machines: Vec<usize>, version: u8, span: Span },
    /// A replica says that it knows another level.
    Level { replica: usize, level: u32, span: Span },
    /// From now on a replica's disk says that it saved what it did not; after so long its host loses power for a while.
    DiskLies { replica: usize, off_after: Span },
    /// A replica's host loses power while its disk writes.
    DiskTears { replica: usize },
    /// Somebody copies a replica's disk.
    DiskCopied { replica: usize },
    /// And puts the copy back.
    DiskRestored { replica: usize, away: Span },
    /// Every replica's disk is lost, and a fresh group begins.
    AllLost,
    /// Clocks that are fast or slow by so many parts in a million.
    Rates { ppm: Vec<(usize, i64)> },
    /// Losses come in bursts.
    Bursts { good: Span, bad: Span, span: Span },
    /// A BMC takes so long for each answer, least and most.
    SlowBmc { bmc: usize, takes: (Span, Span) },
    /// What a leader's hands saw and proved in this time comes once more, again and again, to the leaders of later terms.
    LateHands { span: Span },
    /// Whoever leads, or says so, is asked for linearizable reads, ten times a second.
    Readers { span: Span },
    /// A BMC that ignored what it was told does so no more.
    BmcObeys { bmc: usize },
    /// Somebody deletes a MachineBinding, and writes it again after so long.
    Unbound { machine: usize, span: Span },
    /// The collector of pods sees Nodes as they were so long ago.
    Collector { lags: Span, span: Span },
    /// A machine takes so long from power to a system from now on.
    Firmware { machine: usize, takes: Span },
}

/// A machine that is started anew for what it is to become.
const STARTS_IN: Span = Span::from_secs(5);
/// Somebody installs a group anew in this time.
const FRESH_IN: Span = Span::from_secs(10);
/// A host that lost its power has it again after this.
const DARK: Span = Span::from_secs(20);

// === impl Oddities ===

impl Oddities {
    /// Whether it is what it says.
    pub(crate) fn is_none(&self) -> bool {
        self.lie.is_none()
            && self.wire.is_none()
            && self.speaks_for.is_none()
            && self.own.is_none()
            && self.board.is_none()
            && !self.never_reports
    }
}

// === impl World ===

impl World {
    pub(crate) fn begin_odd(&mut self, odd: Odd) {
        match odd {
            Odd::Lies { liars, about, lives, quiet, span } => {
                let lie = Lie { about, lives, quiet, since: self.now };
                for machine in liars {
                    self.machines[machine].odd.lie = Some(lie);
                    self.lie_round(machine);
                    self.after(span, move |world| world.mend(machine));
                }
            }
            Odd::Wire { machines, version, span } => {
                for machine in machines {
                    self.machines[machine].odd.wire = Some(version);
                    self.after(span, move |world| world.mend(machine));
                }
            }
            Odd::OnlyStrangers { machine, span } => {
                let observers = self.observers_of(machine);
                let cut = one_way(Ends::Hosts(vec![machine]), Ends::Hosts(observers), None, 100);
                self.begin(Trouble::Cut { cut, span });
            }
            Odd::Clone { .. } | Odd::Twin { .. } | Odd::SameUuid { .. } | Odd::Replaced { .. } => {
                self.odd_identity(&odd);
            }
            Odd::Level { .. }
            | Odd::DiskLies { .. }
            | Odd::DiskTears { .. }
            | Odd::DiskCopied { .. }
            | Odd::DiskRestored { .. } => self.odd_replica(&odd),
            Odd::AllLost => self.fresh_group(),
            Odd::Rates { ppm } => {
                let now = self.now;
                for (machine, ppm) in ppm {
                    self.machines[machine].drift.set(now, ppm);
                }
            }
            Odd::Bursts { good, bad, span } => {
                let now = self.now;
                self.network.storms_in_bursts(now, Some((good, bad)));
                self.after(span, |world| world.network.storms_in_bursts(world.now, None));
            }
            Odd::SlowBmc { bmc, takes } => self.bmcs[bmc].traits.takes = takes,
            Odd::LateHands { span } => self.late_until = self.now + span,
            Odd::Readers { span } => self.read_on(self.now + span),
            Odd::BmcObeys { bmc } => self.bmcs[bmc].traits.ignores = false,
            Odd::Unbound { machine, span } => self.unbind(machine, span),
            Odd::Collector { lags, span } => {
                self.api.collector_lags = lags;
                self.after(span, |world| world.api.collector_lags = Span::ZERO);
            }
            Odd::Firmware { machine, takes } => self.machines[machine].firmware_takes = takes,
        }
    }

    fn odd_identity(&mut self, odd: &Odd) {
        if let Odd::Clone { machine, of, span } = *odd {
            let (id, key) = (self.machines[of].id, self.machines[of].key);
            self.machines[machine].kept_slice = self.machines[of].kept_slice.clone();
            self.machines[machine].odd.speaks_for = Some(of);
            self.becomes(machine, id, key, span);
        } else if let Odd::Twin { machine, of, span } = *odd {
            let image = &self.machines[of];
            let (boot, booted) = (image.boot, image.booted);
            self.machines[machine].odd.image = boot.map(|boot| (boot, booted));
            self.odd_identity(&Odd::Clone { machine, of, span });
        } else if let Odd::SameUuid { machine, of, span } = *odd {
            let (id, key) = (self.machines[of].id, self.machines[machine].key);
            self.becomes(machine, id, key, span);
        } else if let Odd::Replaced { machine, span } = *odd {
            let mut bytes = self.draws.odd.bytes16();
            bytes[0] |= 1;
            if let Ok(id) = MachineId::from_bytes(bytes) {
                let told = self.bmcs.iter().find(|b| b.machine == machine).map(|b| b.traits.uuid.clone());
                let was = (self.machines[machine].id, told.unwrap_or_default());
                self.machines[machine].odd.board.get_or_insert(was);
                self.swap_board(machine, id, &id.to_string());
                self.after(span, move |world| world.mend(machine));
            }
        }
    }

    fn odd_replica(&mut self, odd: &Odd) {
        if let Odd::Level { replica, level, span } = *odd {
            self.replicas[replica].level = Some(level);
            self.after(span, move |world| world.replicas[replica].level = None);
        } else if let Odd::DiskLies { replica, off_after } = *odd {
            self.disk_of(replica, |disk| disk.lie(true));
            self.after(off_after, move |world| world.dark_for_a_while(replica));
        } else if let Odd::DiskTears { replica } = *odd {
            self.replicas[replica].tears = true;
            self.disk_of(replica, |disk| disk.lie(true));
        } else if let Odd::DiskCopied { replica } = *odd {
            let host = &self.replicas[replica];
            let held = host.process.as_ref().map(|process| process.replica.store());
            let copy = held.or(host.disk.as_ref()).cloned();
            self.replicas[replica].copy = copy;
        } else if let Odd::DiskRestored { replica, away } = *odd {
            let Some(copy) = self.replicas[replica].copy.take() else { return };
            self.replica_ends(replica, false);
            self.replicas[replica].disk = Some(copy);
            let host = self.site.replicas[replica];
            self.on_machine(away, host, move |world| world.replica_starts(replica));
        }
    }

    pub(crate) fn observers_of(&self, machine: usize) -> Vec<usize> {
        let observers = self.truth.state.observers.of(&self.machines[machine].name);
        observers.iter().filter_map(|name| self.machine_of(name)).collect()
    }

    fn fresh_group(&mut self) {
        for replica in 0..self.replicas.len() {
            self.replica_ends(replica, false);
            self.replicas[replica].disk = Some(MemoryStore::new());
        }
        self.truth.forget_log();
        for replica in 0..self.replicas.len() {
            let host = self.site.replicas[replica];
            self.on_machine(FRESH_IN, host, move |world| world.replica_starts(replica));
        }
    }

    /// The power goes before a write is on the disk, and before anything that rests on it has left.
    pub(crate) fn power_goes_in_a_write(&mut self, replica: usize) {
        self.coverage.reach("replica: power goes in a write");
        self.dark_for_a_while(replica);
    }

    fn dark_for_a_while(&mut self, replica: usize) {
        self.replicas[replica].tears = false;
        let host = self.site.replicas[replica];
        let unsynced = self.replicas[replica].process.as_ref().map_or(0, |p| p.replica.store().unsynced());
        if unsynced > 0 {
            self.coverage.reach("replica: loses what its disk said was saved");
        }
        self.power_off(host, By::World);
        self.after(DARK, move |world| world.power_on(host, By::World));
    }

    /// From its next boot, now, it shows that machine id and that key.
    fn becomes(&mut self, machine: usize, id: MachineId, key: PublicKey, span: Span) {
        let on = &mut self.machines[machine];
        on.odd.own.get_or_insert((on.id, on.key));
        (on.id, on.key) = (id, key);
        self.starts_anew(machine);
        self.after(span, move |world| world.mend(machine));
    }

    /// Power and BMC go, and come with another board.
    fn swap_board(&mut self, machine: usize, id: MachineId, told: &str) {
        self.power_off(machine, By::World);
        self.machines[machine].id = id;
        let now = self.now;
        for bmc in self.bmcs.iter_mut().filter(|b| b.machine == machine) {
            told.clone_into(&mut bmc.traits.uuid);
            bmc.restart(now, DARK);
        }
        self.after(DARK, move |world| world.power_on(machine, By::World));
    }

    /// What a machine truly is, whatever its firmware or its disk make it say.
    pub(crate) fn true_id(&self, machine: usize) -> MachineId {
        let on = &self.machines[machine];
        on.odd.own.map_or(on.id, |(id, _)| id)
    }

    /// It is again what it says.
    pub(crate) fn mend(&mut self, machine: usize) {
        let odd = std::mem::take(&mut self.machines[machine].odd);
        if let Some((board, told)) = &odd.board {
            self.swap_board(machine, *board, told);
        }
        if let Some((id, key)) = odd.own {
            let on = &mut self.machines[machine];
            (on.id, on.key) = (id, key);
            if odd.speaks_for.is_some() {
                on.kept_slice = None;
            }
            self.starts_anew(machine);
        } else if (odd.lie.is_some() || odd.wire.is_some()) && self.machines[machine].is_up() {
            // Installed anew.
            self.agent_ends(machine);
            self.agent_starts(machine);
        }
    }

    fn starts_anew(&mut self, machine: usize) {
        let usual = std::mem::replace(&mut self.machines[machine].firmware_takes, STARTS_IN);
        self.reboot(machine);
        self.machines[machine].firmware_takes = usual;
    }

    /// Everything is what it says again.
    pub(crate) fn heal_odd(&mut self) {
        let now = self.now;
        self.api.collector_lags = Span::ZERO;
        for machine in 0..self.machines.len() {
            self.machines[machine].drift.set(now, 0);
            if !self.machines[machine].odd.is_none() {
                self.mend(machine);
            }
        }
        for replica in &mut self.replicas {
            (replica.tears, replica.level, replica.copy) = (false, None, None);
        }
    }

    fn unbind(&mut self, machine: usize, span: Span) {
        let name = self.machines[machine].name.clone();
        let Some(binding) = self.api.bindings.remove(&name) else { return };
        self.settings_changed();
        self.after(span, move |world| {
            world.api.bindings.insert(name, binding);
            world.settings_changed();
        });
    }

    pub(crate) fn set_clock(&mut self, machine: usize, by: Span, back: bool) {
        let by = i64::try_from(by.as_ms()).unwrap_or(i64::MAX);
        self.machines[machine].wall += if back { -by } else { by };
    }

    /// The machine for whose Node its agent speaks: its own, unless it was started from another's disk.
    pub(crate) fn speaks_for(&self, machine: usize) -> usize {
        self.machines[machine].odd.speaks_for.unwrap_or(machine)
    }

    // === wire versions ===

    /// Whether who listens there understands what comes from that machine: an agent of its release, or a replica of this.
    pub(crate) fn understands(&self, machine: usize, port: u16, source: usize, by_replica: bool) -> bool {
        let spoken = self.machines[source].odd.wire.filter(|_| !by_replica).unwrap_or(CURRENT);
        match self.machines[machine].odd.wire.filter(|_| port != PORT_REPORT) {
            // A newer release reads what older ones write, an older one nothing newer.
            Some(newest) => spoken <= newest,
            None => spoken == CURRENT || reads(spoken),
        }
    }
}

/// Whether this build reads a datagram that begins with that version.
fn reads(version: u8) -> bool {
    let mut datagram = b"CRN".to_vec();
    datagram.push(version);
    datagram.resize(DATAGRAM_BYTES_MAX, 0);
    !matches!(parse(&datagram), Err(DatagramError::Version { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_build_reads_its_own_version_and_no_later_one() {
        assert!(reads(CURRENT));
        assert!(!reads(CURRENT + 1));
        assert!(!reads(0));
    }
}
