//! Several replicas' hearing as one.

use coroner_shared::health::HealthSummary;

use super::super::pool::{Pool, Pooled};
use super::super::summary::{NodeSummary, Source, Summary};
use super::*;

/// Two replicas and the leader's pool.
struct Group {
    state: State,
    one: Heard,
    two: Heard,
    pool: Pool,
}

impl Group {
    fn new() -> Self {
        let mut two = Heard::new();
        two.witness = Witness::new(replica(2), 1, at(0));
        two.witness.sync(at(0), &two.state);
        Self { state: state(), one: Heard::new(), two, pool: Pool::new(replica(1)) }
    }

    fn hand_over(&mut self, now: u64) -> Pooled<'_> {
        let (one, two) = (self.one.summary(now), self.two.summary(now));
        self.pool.absorb(at(now), one);
        self.pool.absorb(at(now), two);
        self.pool.at(at(now), &self.state)
    }

    fn at(&self, now: u64) -> Pooled<'_> {
        self.pool.at(at(now), &self.state)
    }
}

#[test]
fn the_failure_date_is_the_latest_sign_that_anybody_holds() {
    let mut g = Group::new();
    g.one.beacon(1000, 5, 10);
    g.two.beacon(2000, 5, 20);
    let sign = g.hand_over(6000).last_sign(&name(5)).unwrap();
    assert_eq!(
        (sign.age, sign.held_by.as_str(), sign.beacon),
        (span(4000), "replica 2", Some((boot(5, 0), 20)))
    );
    // An observer that told only the follower.
    g.two.heard(6100, 3, 1, 5, 30, 0);
    let pooled = g.hand_over(6200);
    let sign = pooled.last_sign(&name(5)).unwrap();
    assert_eq!((sign.age, sign.beacon), (span(100), Some((boot(5, 0), 30))));
    assert!(pooled.heard_within(&name(5), span(100)) && !pooled.heard_within(&name(5), span(99)));
}

/// Seed 131 of the swarm: a machine that one replica alone heard was condemned 3 s after that replica had heard it, since
/// that replica had restarted and told of nobody.
#[test]
fn what_a_replica_told_before_it_restarted_is_not_forgotten() {
    let mut g = Group::new();
    g.one.beacon(1000, 5, 10);
    g.two.beacon(4000, 5, 20);
    g.two.heard(4000, 3, 7, 4, 9, 0);
    g.two.silent(4000, 2, 8, 4, 1500, 5);
    let ill = Proven::trusted(Beacon { health: HealthSummary::KUBELET_DEAD, ..beacon_of(1, boot(1, 0), 3) });
    g.two.witness.beacon(at(4000), &ill, None);
    g.hand_over(4100);
    g.two.witness = Witness::new(replica(2), 2, at(4200));
    g.two.witness.sync(at(4200), &g.state);
    let pooled = g.hand_over(6000);
    let sign = pooled.last_sign(&name(5)).unwrap();
    assert_eq!((sign.age, sign.held_by.as_str()), (span(1900), "replica 2"), "it listed nobody at 4,100");
    assert_eq!(pooled.edge(&name(3), &name(4)).hears_ago, Some(span(2000)), "a veto");
    assert_eq!(pooled.edge(&name(2), &name(4)).silent.map(|s| s.silent), Some(span(3500)), "an accusation");
    // What is so now is told by who lives now.
    assert_eq!(pooled.health(&name(1)), HealthSummary::GOOD);
    assert_eq!(pooled.listening(), span(6000), "replica 1's");
    // A letter of the life before that comes late takes nothing away.
    let late = Summary { life: 1, number: 99, ..g.two.summary(6000) };
    g.two.beacon(6050, 5, 30);
    let newer = g.two.summary(6100);
    g.pool.absorb(at(6100), newer);
    g.pool.absorb(at(6200), late);
    assert_eq!(g.at(6200).last_sign(&name(5)).unwrap().age, span(100));
}

/// Seed 5849: an observer had accused a node, and rebooted. Who had not heard its new boot yet still told of the accusation,
/// under a higher number than the new boot's first words.
#[test]
fn a_boot_of_an_observer_that_is_over_accuses_nobody_and_hides_nothing() {
    let mut g = Group::new();
    g.two.silent(4000, 2, 8, 4, 1500, 5);
    assert!(g.hand_over(4100).edge(&name(2), &name(4)).silent.is_some());
    g.state.nodes.get_mut(&name(2)).unwrap().member.as_mut().unwrap().boot = boot(2, 1);
    let pooled = g.hand_over(4200);
    assert_eq!(pooled.edge(&name(2), &name(4)).silent, None);
    assert_eq!(pooled.last_sign(&name(4)).unwrap().age, span(1700), "its last beacon is still a date");
    let (boot, reports) = (boot(2, 1), vec![Report { subject: uid(4), hearing: silence(4, 3000, 5) }]);
    let batch = ReportBatch { boot, number: 1, snapshot: true, doubts: Vec::new(), reports };
    g.one.witness.reports(at(5000), &uid(2), &CheckedBatch::trusted(&batch));
    let now = g.hand_over(5100);
    assert_eq!(now.edge(&name(2), &name(4)).silent.map(|s| s.silent), Some(span(3100)));
}

#[test]
fn an_observers_last_beacon_counts_for_the_failure_date_but_is_no_proof() {
    let mut g = Group::new();
    g.one.beacon(1000, 5, 10);
    g.one.silent(4000, 3, 1, 5, 1500, 16);
    let pooled = g.hand_over(5000);
    let sign = pooled.last_sign(&name(5)).unwrap();
    assert_eq!(
        (sign.age, sign.held_by.as_str(), sign.beacon),
        (span(2500), "observer n03", Some((boot(5, 0), 16)))
    );
    assert!(!pooled.heard_within(&name(5), span(3999)));
    assert_eq!(pooled.newest_proof(&name(5)).unwrap().ago, span(4000));
}

#[test]
fn a_pause_is_taken_off_what_counts_silence_and_not_off_what_shows_life() {
    let mut g = Group::new();
    for i in 0..6 {
        g.two.beacon(1000, i, 10);
    }
    g.two.witness.tick(at(1200));
    g.two.witness.tick(at(21_200));
    let pooled = g.hand_over(21_300);
    assert_eq!(pooled.last_sign(&name(5)).unwrap().age, span(300));
    assert!(pooled.heard_within(&name(5), span(300)) && !pooled.lives_within(&name(5), span(20_299)));
    // Listed though nothing is wrong by the ages: that a letter does not list somebody shows life as well.
    let newest = pooled.newest_proof(&name(5)).map(|held| (held.ago, held.clock_ago));
    assert_eq!(newest, Some((span(300), span(20_300))));
    // The leader's own pause.
    g.pool.tick(at(21_400));
    g.pool.tick(at(31_400));
    let newest = g.at(31_400).newest_of_any(&name(5)).map(|held| (held.ago, held.clock_ago));
    assert_eq!(newest, Some((span(400), span(30_400))));
}

#[test]
fn what_the_machine_itself_said_is_told_from_its_replicas_traffic() {
    let mut g = Group::new();
    for i in 0..6 {
        g.two.beacon(900, i, 10);
    }
    let pooled = g.hand_over(1000);
    // Not listed: heard within S, which is 1.25 s, of the letter. The newest of any kind is the letter itself, of whom sent it.
    for host in [name(5), name(2)] {
        let newest = pooled.newest_of_any(&host).map(|held| held.clock_ago);
        assert_eq!((pooled.spoke_ago(&host), newest), (Some(span(1_250)), Some(Span::ZERO)), "{host}");
    }
}

#[test]
fn whoever_is_not_listed_was_heard_within_s_when_the_letter_was_written() {
    let mut g = Group::new();
    for i in 0..6 {
        g.two.beacon(900, i, 10);
    }
    let sign = g.hand_over(1000).last_sign(&name(5)).unwrap();
    assert_eq!((sign.age, sign.beacon), (Span::ZERO, None));
    assert_eq!(g.at(1400).last_sign(&name(5)).unwrap().age, span(400), "it ages with the letter");
    assert_eq!(g.at(1400).newest_proof(&name(5)), None, "which boot it was is not told");
    // A replica that does not know the member yet says nothing of it.
    g.state.membership += 1;
    let mut late = World::racks(7, 3).state;
    late.membership = 9;
    late.observers = crate::observers::Observers::default();
    crate::observers::reseat(&mut late);
    assert_eq!(g.pool.at(at(1400), &late).last_sign(&name(6)), None);
}

#[test]
fn a_letter_that_was_overtaken_changes_nothing_and_a_new_life_takes_nothing_back() {
    let mut g = Group::new();
    let old = g.two.summary(1000);
    for i in 0..6 {
        g.two.beacon(2000, i, 1);
    }
    let new = g.two.summary(2000);
    g.pool.absorb(at(2000), new);
    g.pool.absorb(at(2050), old.clone());
    assert!(g.at(2100).heard_within(&name(5), span(100)));
    // The replica restarted, again and again, and has heard nobody: what it told before ages, and is all there is.
    for life in 77..80 {
        g.pool.absorb(at(2200), Summary { life, number: 1, ..old.clone() });
        let pooled = g.at(2300);
        assert!(pooled.heard_within(&name(5), span(300)) && !pooled.heard_within(&name(5), span(299)));
    }
}

#[test]
fn a_letter_is_life_of_the_host_that_sent_it() {
    let mut g = Group::new();
    g.hand_over(1000);
    let sign = g.at(1500).last_sign(&name(1)).unwrap();
    assert_eq!((sign.age, sign.beacon), (span(500), None));
    assert_eq!(g.at(1500).newest_proof(&name(1)), None, "it names no boot");
    let (host, now) = (name(1), g.at(1500));
    let held = now.last_proof(&host).unwrap();
    assert_eq!((held.replica, held.source, held.ago), (replica(2), &Source::ReplicaTraffic, span(500)));
    assert_eq!(g.at(1500).reached().count(), 2);
    assert_eq!(g.at(4000).reached().count(), 2);
    assert_eq!(g.at(4001).reached().collect::<Vec<_>>(), [replica(1)], "the leader always reaches itself");
}

#[test]
fn signs_of_another_life_or_a_left_boot_are_not_signs() {
    let mut g = Group::new();
    g.one.beacon(1000, 5, 10);
    g.one.silent(4000, 3, 1, 5, 1500, 16);
    let member = g.state.nodes.get_mut(&name(5)).unwrap().member.as_mut().unwrap();
    member.left_boots.push_back(boot(5, 0));
    assert_eq!(g.hand_over(5000).last_sign(&name(5)), None);
    let member = g.state.nodes.get_mut(&name(5)).unwrap().member.as_mut().unwrap();
    member.left_boots.clear();
    assert!(g.at(5000).last_sign(&name(5)).is_some());
    member_uid(&mut g.state, 5, "new");
    assert_eq!(g.at(5000).last_sign(&name(5)), None);
}

fn member_uid(state: &mut State, i: usize, uid: &str) {
    state.nodes.get_mut(&name(i)).unwrap().member.as_mut().unwrap().uid = NodeUid::new(uid).unwrap();
    crate::observers::reseat(state);
}

#[test]
fn the_newest_statement_of_an_observer_counts_whichever_replica_has_it() {
    let mut g = Group::new();
    g.one.silent(3000, 3, 5, 5, 1500, 10);
    assert_eq!(g.hand_over(3000).edge(&name(3), &name(5)).silent.unwrap().silent, span(1500));
    g.two.heard(3500, 3, 6, 5, 11, 0);
    let edge = g.hand_over(3600).edge(&name(3), &name(5));
    assert_eq!((edge.silent, edge.hears_ago), (None, Some(span(100))));
    g.one.silent(6000, 3, 7, 5, 1500, 11);
    let edge = g.hand_over(6000).edge(&name(3), &name(5));
    assert_eq!(edge.silent.unwrap().silent, span(1500));
    assert_eq!(g.at(6100).edge(&name(3), &name(5)).silent.unwrap().silent, span(1600), "and ages");
}

#[test]
fn whoever_claims_to_hear_after_its_accusation_does_not_accuse() {
    let mut g = Group::new();
    g.one.silent(3000, 3, 5, 5, 1500, 10);
    g.two.status(4000, 3, 1, &[5], &[]);
    assert_eq!(g.hand_over(4100).edge(&name(3), &name(5)).silent, None);
    g.one.silent(5000, 3, 6, 5, 1500, 10);
    assert!(g.hand_over(5100).edge(&name(3), &name(5)).silent.is_some());
}

#[test]
fn doubts_are_those_told_last() {
    let mut g = Group::new();
    g.one.status(1000, 3, 1, &[], &[SelfDoubt::Pressure]);
    g.two.status(2000, 3, 2, &[], &[]);
    assert_eq!(g.hand_over(4000).reporter(&name(3)), Some((boot(3, 0), &[][..])));
    g.one.status(4100, 3, 3, &[], &[SelfDoubt::NoArbiter]);
    // Not calm, so that it is listed as an observer of somebody.
    assert_eq!(g.hand_over(6000).reporter(&name(3)).unwrap().1, [SelfDoubt::NoArbiter]);
    assert_eq!(g.at(6000).reporter(&name(0)), None, "of one that never spoke nothing is known");
}

#[test]
fn probes_are_pooled_too() {
    use coroner_shared::beacon::{Answer, Path, ProbeAnswer, ProbeOutcome};
    let mut g = Group::new();
    let say = |h: &mut Heard, now, number, answer, ago| {
        let found = ProbeOutcome { path: Path::Ping, answer, asked_ago: span(ago), worked_ago: None };
        let answer = ProbeAnswer { number, subject: uid(5), outcomes: vec![found], beacon: None };
        h.witness.probe_answer(at(now), &uid(2), &CheckedAnswer::trusted(&answer));
    };
    say(&mut g.one, 5000, 1, Answer::Answered, 300);
    say(&mut g.two, 6000, 2, Answer::Nothing, 300);
    g.hand_over(6000);
    let now = g.at(7000);
    let found = &now.probes(&name(5))[&name(2)];
    assert_eq!(found.number, 2);
    let ages: Vec<_> = found.outcomes.iter().map(|o| (o.answer, o.asked_ago.as_ms())).collect();
    assert_eq!(ages, [(Answer::Answered, 2300), (Answer::Nothing, 1300)], "the answer is not lost");
}

#[test]
fn keys_health_and_twofold_identities_are_known_if_any_replica_knows_them() {
    let mut g = Group::new();
    let key = coroner_shared::keys::PublicKey::from_bytes([5; 32]);
    let mut summary = g.two.summary(1000);
    let node: &mut NodeSummary = summary.nodes.iter_mut().find(|n| n.node == name(5)).unwrap();
    node.duplicate = true;
    node.health = HealthSummary::KUBELET_DEAD;
    node.keys = vec![(key, span(50))];
    g.pool.absorb(at(1000), g.one.summary(1000));
    g.pool.absorb(at(1000), summary);
    let now = g.at(1100);
    assert!(now.is_duplicate(&name(5)) && !now.is_duplicate(&name(4)));
    assert_eq!(now.health(&name(5)), HealthSummary::KUBELET_DEAD);
    assert_eq!(now.key_spoke(&name(5), &key), Some(span(150)));
    assert_eq!(now.key_spoke(&name(4), &key), None);
}

#[test]
fn a_replica_counts_whom_it_has_not_heard_itself() {
    let mut g = Group::new();
    for i in 0..6 {
        g.one.beacon(1000, i, 1);
        g.two.beacon(1000, i, 1);
    }
    for i in 0..4 {
        g.one.beacon(4500, i, 2);
    }
    // What another brings is not its own hearing.
    g.one.heard(4500, 0, 1, 5, 2, 0);
    g.hand_over(5000);
    assert_eq!(g.at(5000).unheard_by(replica(1), span(3000)), Some(2));
    assert_eq!(g.at(5000).unheard_by(replica(2), span(3000)), Some(6));
    assert_eq!(g.at(5000).unheard_by(replica(2), span(4000)), Some(0));
    assert_eq!(g.at(9000).unheard_by(replica(2), span(3000)), None, "not reached");
}

/// Seed 7778 of the swarm: a follower that was behind listed none of 92 machines that had just joined, was taken to hear
/// them all, and every leader stepped down for it, which could not lead, once a second for 90 s.
#[test]
fn a_replica_has_not_heard_whom_it_does_not_know() {
    let mut g = Group::new();
    let all = g.state.observers.seats().count();
    let mut behind = g.two.summary(1000);
    (behind.membership, behind.nodes) = (0, Vec::new());
    g.pool.absorb(at(1000), behind.clone());
    assert_eq!(g.at(1000).unheard_by(replica(2), span(3000)), Some(all));
    behind.number += 1;
    behind.membership = g.state.membership;
    g.pool.absorb(at(1000), behind);
    assert_eq!(g.at(1000).unheard_by(replica(2), span(3000)), Some(0), "known and not listed is heard");
}

/// Seeds 131 and 2838 of the swarm: the leader alone heard a machine, and was killed. Its successor condemned that
/// machine 3 s after it had been heard, by silences that had lasted for long.
#[test]
fn what_a_replica_heard_before_it_restarted_or_died_is_lost_and_that_is_known() {
    let mut g = Group::new();
    g.state.replicas.retain(|id, _| id.get() <= 2);
    // The leader itself started at 0 and led from 20 s on; nobody knows what replica 2 heard until then.
    let own = g.one.summary(20_000);
    g.pool.absorb(at(20_000), own);
    assert_eq!(g.at(21_000).untold(), Some(span(1000)), "no letter: until this leader began");
    // A host that fell silent: until the traffic of its replica ended.
    g.one.witness.replica_traffic(at(17_000), replica(2));
    let own = g.one.summary(21_000);
    g.pool.absorb(at(21_000), own);
    assert_eq!(g.at(21_000).untold(), Some(span(4000)), "it spoke last 4 s ago");
    // It is back, and tells what it has heard since then.
    g.two.witness = Witness::new(replica(2), 2, at(21_500));
    g.two.witness.sync(at(21_500), &g.state);
    let first = g.two.summary(21_700);
    g.pool.absorb(at(21_700), first);
    assert_eq!(g.at(22_000).untold(), Some(span(500)), "what it heard before it started");
    // It restarts once more: what it had told is here.
    g.two.witness = Witness::new(replica(2), 3, at(23_000));
    g.two.witness.sync(at(23_000), &g.state);
    let second = g.two.summary(23_100);
    g.pool.absorb(at(23_100), second);
    assert_eq!(g.at(23_100).untold(), Some(span(23_100)), "the leader's own start is the latest loss");
    g.state.replicas.remove(&replica(1));
    assert_eq!(g.at(23_100).untold(), None);
}

#[test]
fn a_pause_of_the_leader_ages_no_letter() {
    let mut g = Group::new();
    g.pool.tick(at(1000));
    g.one.beacon(1000, 5, 10);
    g.two.beacon(1000, 5, 10);
    g.hand_over(1000);
    g.pool.tick(at(3000));
    assert!(g.at(3050).heard_within(&name(5), span(50)));
}
