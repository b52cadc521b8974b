//! What those who hold a replica's handle see.

use coroner_arbiter::replica::ProposeError;
use coroner_arbiter_replica::{NotLeader, Role};

use crate::group::{Group, LONG, command};

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_comes_after_the_state_that_holds_it_is_published() {
    let group = Group::start();
    let leader = group.leader().await;
    for n in 0..20 {
        let before = leader.published().applied;
        if leader.propose(format!("k{n}"), command("x")).await.is_ok() {
            assert!(leader.published().applied > before);
        }
    }
    let applied = leader.published().applied;
    for handle in group.handles.values() {
        group.until("all have applied it", |_| (handle.published().applied >= applied).then_some(())).await;
    }
    let states: Vec<_> = group.handles.values().map(|h| h.published()).collect();
    assert!(states.iter().all(|p| p.applied != states[0].applied || p.state == states[0].state));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_is_answered_by_a_leader_that_a_quorum_confirms_and_refused_at_once_elsewhere() {
    let group = Group::start();
    let leader = group.leader().await;
    group.commit("x").await;
    let answered = leader.read_index(LONG).await;
    assert!(answered.is_ok() || !leader.leads(), "{answered:?}");
    let follower = group.handles.values().find(|h| !h.leads()).unwrap();
    let refused = follower.read_index(LONG).await;
    assert!(matches!(refused, Err(ProposeError::NotLeader(NotLeader::Elsewhere { .. }))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_answers_nothing_and_says_that_it_leads_no_more() {
    let group = Group::start();
    let old = group.leader().await;
    group.cut(old.id());
    let (proposed, read) =
        tokio::join!(old.propose("lost".to_owned(), command("lost")), old.read_index(LONG));
    // Whichever way it ended: not with an outcome.
    assert!(proposed.is_err() && read.is_err(), "{proposed:?} {read:?}");
    group.until("it steps down", |_| (old.published().role != Role::Leader).then_some(())).await;
    group.commit("kept").await;
    group.heal();
    let applied = group.leader().await.published().applied;
    group.until("it catches up", |_| (old.published().applied >= applied).then_some(())).await;
    let pause = old.published().state.pause.clone().unwrap();
    assert_eq!(pause.why, "kept");
}

/// Nothing is applied meanwhile: the leader's judgement rests on this all the same.
#[tokio::test(flavor = "multi_thread")]
async fn who_answers_is_published_also_in_calm_times() {
    let group = Group::start();
    let leader = group.leader().await;
    group.until("all answer", |_| (leader.published().active == Some(3)).then_some(())).await;
    let quiet = leader.published();
    let lone = group.handles.keys().copied().find(|id| *id != leader.id()).unwrap();
    group.cut(lone);
    group.until("one is missed", |_| (leader.published().active == Some(2)).then_some(())).await;
    let now = leader.published();
    assert_eq!((now.applied, now.at), (quiet.applied, quiet.at), "no entry, and the state is no younger");
    group.heal();
    group.until("it answers again", |_| (leader.published().active == Some(3)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_the_others_are_behind_is_published() {
    let group = Group::start();
    let leader = group.leader().await;
    let lone = group.handles.keys().copied().find(|id| *id != leader.id()).unwrap();
    group.cut(lone);
    for n in 0..5 {
        group.commit(&format!("k{n}")).await;
    }
    let leader = group.leader().await;
    let behind = |n: u64| {
        move |_: &Group| (leader.published().lag.get(&lone).copied().unwrap_or(0) >= n).then_some(())
    };
    group.until("five entries behind", behind(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_told_to_step_down_does_and_another_may_lead() {
    let group = Group::start();
    let old = group.leader().await;
    let term = old.published().term;
    old.step_down().await;
    group
        .until("a later term", |g| g.handles.values().any(|h| h.published().term > term).then_some(()))
        .await;
    group.commit("after").await;
}
