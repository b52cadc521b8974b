//! Every edge of a node's life, one test per way it can be taken. An edge that is not in [`ALL`] does not exist: the last
//! test says so of these rows, and `random` of every log it makes.

use coroner_shared::bmc::CommandAnswer;

use super::world::{World, before, machine, name, offs, policy, secs, uid};
use crate::command::{Command, Outcome};
use crate::phase::{EvidenceClass, HeldReason, Phase};
use crate::policy::Mode;

/// All edges: from, to, and by what.
pub(crate) const ALL: &[(&str, &str, &str)] = &[
    ("Alive", "Condemned", "verdict Dead, Enforce"),
    ("Alive", "Alive", "verdict Dead, Observe: WouldCondemn"),
    ("Alive", "Held", "verdict Held, or Dead and not permitted"),
    ("Alive", "Condemned", "order"),
    ("Held", "Condemned", "order"),
    ("Held", "Alive", "a new view"),
    ("Held", "Condemned", "a new view"),
    ("Held", "Held", "a new view"),
    ("Held", "ProvenOff", "confirm-off"),
    ("Condemned", "ProvenOff", "confirm-off"),
    ("Fencing", "ProvenOff", "confirm-off, no call under way"),
    ("ProvenOff", "ProvenOff", "confirm-off after LastReadFailed"),
    ("Condemned", "Alive", "proof of life or Lease: Reprieve"),
    ("Fencing", "Alive", "nothing sent; proof of life or Lease: Reprieve"),
    ("Condemned", "Held", "no longer permitted"),
    ("Fencing", "Held", "nothing sent; no longer permitted, or found On"),
    ("Condemned", "Fencing", "intent"),
    ("Fencing", "Fencing", "attempt"),
    ("Fencing", "Alive", "heard for long, still On: Averted"),
    ("Fencing", "Fencing", "identity refuses, or Off while heard: Stalled"),
    ("Fencing", "Fencing", "no progress: Stalled"),
    ("Fencing", "Returning", "new boot, nothing released"),
    ("ProvenOff", "Returning", "new boot, nothing released"),
    ("Fencing", "Held", "another machine, nothing released"),
    ("ProvenOff", "Held", "another machine, nothing released"),
    ("Fencing", "ProvenOff", "proof complete"),
    ("ProvenOff", "Fencing", "last read says On, or the same boot is heard"),
    // Not in the design's table: without a command of ours there is nothing to send again, and no brake was asked.
    ("ProvenOff", "Held", "nothing sent; last read says On"),
    ("ProvenOff", "Alive", "nothing sent; proof of life: Reprieve"),
    ("ProvenOff", "ProvenOff", "last read cannot be made"),
    ("ProvenOff", "Releasing", "last read good"),
    ("Releasing", "Released", "taint seen"),
    ("Releasing", "Returning", "patch refused: another boot"),
    ("Releasing", "Held", "patch refused: another machine"),
    // Not in the design's table: between the commit and the taint a second writer would have no edge at all.
    ("Releasing", "Fencing", "the same boot is heard: re-fence"),
    ("Released", "Fencing", "the same boot is heard: re-fence"),
    ("Released", "Released", "BMC says On: Booting, later OnButUnknown"),
    ("Released", "Fencing", "ordered while OnButUnknown: re-fence"),
    ("Released", "Returning", "new boot of the pinned machine"),
    ("Fencing", "Returning", "re-fence; new boot of the pinned machine"),
    ("ProvenOff", "Returning", "re-fence; new boot of the pinned machine"),
    ("Returning", "Alive", "return rule, or coroner return"),
    ("Returning", "Condemned", "not released; silent past its deadline"),
    ("Returning", "Held", "not released; silent past its deadline"),
    ("Returning", "Returning", "a newer boot replaces the older"),
    // Birth after all replicas were lost.
    ("Alive", "Returning", "our taint, and nobody remembers: Orphaned"),
    ("any", "gone", "Node deleted or re-created"),
];

pub(crate) type Part = fn(&mut World);
/// Name, edge, from, to.
type Row = (&'static str, &'static str, &'static str, &'static str);

/// Walks one row: `set` leads to `from`, `act` to `to`.
#[track_caller]
pub(crate) fn walk(row: &str, from: &str, set: Part, act: Part, to: &str) {
    let mut world = World::new(5);
    set(&mut world);
    assert_eq!(world.stands(1), from, "{row}: set up");
    act(&mut world);
    let stands = if world.state.nodes.contains_key(&name(1)) { world.stands(1) } else { "gone".to_owned() };
    assert_eq!(stands, to, "{row}");
}

macro_rules! edges {
    ($($row:ident: $by:literal, $from:literal => $to:literal, $set:expr, $act:expr;)*) => {
        $(#[test] fn $row() { walk(stringify!($row), $from, $set, $act, $to); })*

        /// Every row: its name, and which edge it walks.
        pub(super) const ROWS: &[Row] = &[$((stringify!($row), $by, $from, $to)),*];
    };
}

mod early;
mod fencing;
mod late;

#[test]
fn every_edge_is_walked_and_none_besides() {
    let kind = |stands: &str| stands.split(':').next().unwrap().to_owned();
    let rows: Vec<&Row> = early::ROWS.iter().chain(fencing::ROWS).chain(late::ROWS).collect();
    for (from, to, by) in ALL {
        let walked = rows.iter().any(|(_, row_by, row_from, row_to)| {
            row_by == by && (*from == "any" || kind(row_from) == *from) && kind(row_to) == *to
        });
        assert!(walked, "no row walks {from} -> {to}: {by}");
    }
    for (row, by, row_from, row_to) in &rows {
        let known = ALL.iter().any(|(from, to, edge)| {
            edge == by && (*from == "any" || kind(row_from) == *from) && kind(row_to) == *to
        });
        assert!(known, "{row} walks an edge that does not exist");
    }
}

// === parts of rows ===

pub(crate) fn nothing(_: &mut World) {}

pub(crate) fn judge(world: &mut World, view: crate::view::View) -> Outcome {
    world.say(Command::Judge(Box::new(view)))
}

pub(crate) fn found_off(world: &mut World) {
    world.found_off(1);
}

pub(crate) fn silent_on(world: &mut World) {
    world.silent_on(1);
}

pub(crate) fn fencing(world: &mut World) {
    world.silent_on(1);
    world.done(world.intent(1));
}

pub(crate) fn fencing_found_off(world: &mut World) {
    world.found_off(1);
    world.done(world.intent(1));
}

pub(crate) fn attempted(world: &mut World) {
    world.attempted(1);
}

pub(crate) fn proven_off(world: &mut World) {
    world.proven_off(1);
}

pub(crate) fn releasing(world: &mut World) {
    world.proven_off(1);
    world.done(world.release_begun(1));
}

pub(crate) fn released(world: &mut World) {
    world.released(1);
}

pub(crate) fn re_fenced(world: &mut World) {
    world.released(1);
    world.done(world.heard(1));
}

pub(crate) fn re_proven(world: &mut World) {
    re_fenced(world);
    world.done(world.attempt(1, 2, true));
    world.wait(secs(4));
    world.done(Command::SilentAgain { node: name(1) });
    world.wait(secs(31));
    world.done(world.proven(1, 2, offs(1, secs(30), None)));
}

pub(crate) fn returning(world: &mut World) {
    world.attempted(1);
    world.reboot(1);
    world.wait(secs(1));
}

pub(crate) fn returning_released(world: &mut World) {
    world.released(1);
    world.reboot(1);
}

pub(crate) fn held_by_bmc(world: &mut World) {
    let view = world.view(1).bmc_silent();
    world.done(Command::Judge(Box::new(view)));
}

pub(crate) fn ordered(world: &mut World) {
    world.done(world.order(1, "alice"));
}

pub(crate) fn observe(world: &mut World) {
    world.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
}

pub(crate) fn another_machine(world: &mut World) {
    world.new_boot(1);
    let mut registration = world.registration(1);
    if let Command::Register { machine: found, .. } = &mut registration {
        *found = Ok(machine(77));
    }
    world.done(registration);
}

pub(crate) fn pause_all(world: &mut World) {
    world.done(Command::Pause { node: None, who: "alice".to_owned(), why: "wait".to_owned() });
}

pub(crate) fn alarmed(world: &World, word: &str) {
    assert!(world.node(1).alarms.contains_key(word), "no alarm {word}: {:?}", world.node(1).alarms);
}
