//! Stories drawn by seed: ticks, losses, doubles, changed order, cuts and crashes in any order, also in the midst of a
//! turn; then everything is healed, and what was ever applied must still be there.
//!
//! Told with disks that keep their promise the laws hold in every story. Told with disks that forget what was not yet
//! synced (as if we spoke before we saved), or that tear a batch, they must break in some: laws that no bad disk can
//! break prove nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use coroner_arbiter_replica::{PowerCut, Role};

use crate::group::{ELECTION, Group, Member, id};

/// Stories with a good disk.
const STORIES: u64 = 300;
const STEPS: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    /// As `LogStore` demands.
    Good,
    /// What is written reaches the disk some time after the messages have left.
    Forgets,
    /// A loss of power in the midst of a write leaves a part of the batch.
    Tears,
}

/// xorshift64*: the whole story comes from one number.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(drawn).unwrap() % n
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len())])
    }
}

/// Tells one story; what broke, if anything did.
fn tell(seed: u64, disk: Disk) -> Option<String> {
    let told = catch_unwind(AssertUnwindSafe(|| {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut group = Group::with(3, seed, 30);
        group.late_sync = disk == Disk::Forgets;
        group.compare_disks = disk != Disk::Forgets;
        if disk == Disk::Forgets {
            group.ids().into_iter().for_each(|m| group.disk(m).lie(true));
        }
        for _ in 0..STEPS {
            if let Err(why) = step(&mut group, &mut chance, disk) {
                return Some(why);
            }
        }
        end(&mut group)
    }));
    told.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Some(format!("panic: {}", text.unwrap_or_default()))
    })
}

fn step(group: &mut Group, chance: &mut Chance, disk: Disk) -> Result<(), String> {
    let up = group.up();
    match chance.below(100) {
        0..40 => {
            if let Some(member) = chance.of(&up) {
                group.tick_only(member, 1);
            }
        }
        40..84 => {
            // Any of the oldest messages; now and then it is lost or stays for a second time.
            if !group.wire.is_empty() {
                let at = chance.below(group.wire.len().min(6));
                let envelope = group.wire.remove(at).unwrap();
                match chance.below(20) {
                    0 => {}
                    1 => {
                        group.deliver(&envelope);
                        group.wire.push_back(envelope);
                    }
                    _ => group.deliver(&envelope),
                }
            }
        }
        84..92 => {
            let leads = |m: &u64| matches!(&group.members[m], Member::Up(r) if r.role().0 == Role::Leader);
            let leaders: Vec<u64> = up.iter().copied().filter(leads).collect();
            if let Some(leader) = chance.of(&leaders) {
                let _ = group.try_propose(leader);
            }
        }
        92..94 => {
            if let Some(member) = chance.of(&group.ids()) {
                group.isolate(member);
            }
        }
        94..96 => group.heal(),
        96..98 => {
            if let Some(member) = chance.of(&up) {
                crash_in_turn(group, chance, member, disk);
            }
        }
        _ => {
            let down: Vec<u64> = group.ids().into_iter().filter(|m| !up.contains(m)).collect();
            if let Some(member) = chance.of(&down) {
                group.try_start(member).map_err(|fatal| format!("{fatal:?}"))?;
            }
        }
    }
    if disk == Disk::Forgets
        && chance.below(4) == 0
        && let Some(member) = chance.of(&group.up())
    {
        group.disk(member).sync();
    }
    group.laws.broken().map_or(Ok(()), |broken| Err(broken.to_owned()))
}

/// The power goes before the write, after it and before anything was sent, or in its midst.
fn crash_in_turn(group: &mut Group, chance: &mut Chance, member: u64, disk: Disk) {
    let whole = group.disk(member).unsynced();
    let waiting: Vec<usize> = (0..group.wire.len()).filter(|at| group.wire[*at].to == member).collect();
    if let Some(at) = chance.of(&waiting) {
        let envelope = group.wire.remove(at).unwrap();
        let _ = group.replica(member).step(id(envelope.from), &envelope.bytes);
    }
    group.replica(member).tick();
    group.disk(member).lie(true);
    // What this turn would send is never sent.
    let _ = group.replica(member).turn();
    let cut = match (disk, chance.below(2)) {
        (Disk::Good, 0) | (Disk::Forgets, _) => PowerCut::Lost,
        (Disk::Good, _) => PowerCut::Kept(usize::MAX),
        (Disk::Tears, _) => PowerCut::Torn { whole, entries: 1 },
    };
    group.crash(member, cut);
}

/// Heals everything, and looks whether what was applied is still there.
fn end(group: &mut Group) -> Option<String> {
    group.heal();
    for member in group.ids() {
        if !group.up().contains(&member)
            && let Err(fatal) = group.try_start(member)
        {
            return Some(format!("{fatal:?}"));
        }
    }
    group.settle();
    group.run(ELECTION * 2);
    let leader = group.elect();
    group.commit(leader);
    group.run(ELECTION);
    if let Some(broken) = group.laws.broken() {
        return Some(broken.to_owned());
    }
    group.assert_equal();
    None
}

#[test]
fn with_good_disks_the_laws_hold_in_every_story() {
    for seed in 0..STORIES {
        assert_eq!(tell(seed, Disk::Good), None, "seed {seed}");
    }
}

#[test]
fn a_disk_that_forgets_what_was_said_is_found_out() {
    let broken: Vec<String> = (0..STORIES).filter_map(|seed| tell(seed, Disk::Forgets)).collect();
    assert!(broken.len() > 10, "{} of {STORIES}", broken.len());
}

#[test]
fn a_disk_that_tears_a_batch_is_found_out() {
    let broken: Vec<String> = (0..STORIES).filter_map(|seed| tell(seed, Disk::Tears)).collect();
    assert!(broken.iter().any(|why| why.contains("Damaged")), "{broken:#?}");
}

/// One votes for the first, loses its power, and is asked by the second in the same term. What broke, if anything did.
pub(crate) fn two_candidates(forgets: bool) -> Option<String> {
    let mut group = Group::new(3, 0);
    group.late_sync = forgets;
    group.compare_disks = !forgets;
    let order: Vec<u64> = {
        let mut by_timeout = group.ids();
        by_timeout.sort_by_key(|m| group.config(*m).election_ticks);
        by_timeout
    };
    let (first, voter, second) = (order[0], order[1], order[2]);
    if forgets {
        group.disk(voter).lie(true);
    }
    group.isolate(second);
    let leader = group.elect();
    assert_eq!(leader, first);
    group.crash(voter, PowerCut::Lost);
    group.heal();
    group.isolate(first);
    group.wire.clear();
    group.start(voter);
    for _ in 0..ELECTION {
        // Only the second stands; the voter has the longer patience.
        group.tick_only(second, 1);
        group.settle();
    }
    let broken = group.laws.broken().map(str::to_owned);
    group.late_sync = true;
    broken
}

#[test]
fn a_vote_that_was_sent_before_it_was_saved_makes_two_leaders_in_one_term() {
    assert_eq!(two_candidates(false), None);
    let broken = two_candidates(true).expect("the forgotten vote is given again");
    assert!(broken.contains("both led in term 2"), "{broken}");
}

/// The laws also see it at once: what is said is compared with what the disk holds.
#[test]
fn whoever_speaks_before_it_saves_is_found_out_at_its_first_word() {
    let mut group = Group::new(3, 0);
    group.late_sync = true;
    group.ids().into_iter().for_each(|m| group.disk(m).lie(true));
    group.run(ELECTION);
    let broken = group.laws.broken().unwrap();
    assert!(broken.contains("unsaved"), "{broken}");
}
