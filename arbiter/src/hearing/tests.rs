//! What the leader says of a node when a person confirms that its machine is off.

use coroner_arbiter_core::phase::{Confirmation, Phase};
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::witness::Witness;

use super::*;
use crate::testing::{Site, golden};

/// The first state of the golden log in which a node is held, and that node.
fn held() -> (State, NodeName) {
    let is = |phase: &Phase| matches!(phase, Phase::Held { .. });
    let state = golden(|state| state.nodes.values().any(|node| is(&node.phase)));
    let node = state.nodes.iter().find(|(_, node)| is(&node.phase)).unwrap().0.clone();
    (state, node)
}

/// What goes into the log with a confirmation of this node.
async fn said(hearing: &Hearing, node: &NodeName) -> Hears {
    let confirmation = Confirmation {
        incident: "n1-00000001".to_owned().into(),
        node: NodeUid::new("uid-1").unwrap(),
        boot: BootId::from_bytes([1; 16]),
        who: "alice".to_owned(),
        why: "I pulled the cord".to_owned(),
    };
    // Whatever a caller claims is replaced.
    let command = Command::ConfirmOff { node: node.clone(), confirmation, heard: Hears::Silence };
    let Command::ConfirmOff { heard, .. } = hearing.with_what_is_heard(command).await else {
        panic!("another command")
    };
    heard
}

#[tokio::test]
async fn whoever_has_not_listened_says_when_to_ask_again_and_whoever_has_says_what_it_hears() {
    let (state, node) = held();
    let me = ReplicaId::new(1).unwrap();
    let site = Site::with(state.clone()).await;
    let hearing = &site.tools.hearing;
    let not_yet = Hears::NotYet { ask_again: LISTENS_AT_MOST };
    assert_eq!(said(hearing, &node).await, not_yet, "a follower");
    site.leads().await;
    tokio::time::pause();
    assert_eq!(said(hearing, &node).await, not_yet, "a leader whose desk has not begun");
    hearing.desk().settles_in = Some(Span::from_ms(1200));
    hearing.desk().pool = Some(Pool::new(me));
    assert_eq!(said(hearing, &node).await, Hears::NotYet { ask_again: Span::from_secs(2) });
    tokio::time::resume();
    hearing.has_listened(Pool::new(me));
    assert_eq!(said(hearing, &node).await, Hears::Silence);

    let now = clock::now();
    let mut witness = Witness::new(me, 1, now);
    witness.sync(now, &state);
    let member = state.nodes[&node].member.as_ref().unwrap();
    witness.registered(now, &member.uid, member.boot);
    let mut pool = Pool::new(me);
    pool.absorb(now, witness.summary(now, &state));
    hearing.has_listened(pool);
    assert_eq!(said(hearing, &node).await, Hears::Node);
}

#[tokio::test]
async fn a_kubelet_that_renews_is_told_apart_from_an_agent_that_is_heard() {
    let (state, node) = held();
    let site = Site::with(state).await;
    site.leads().await;
    let (leases, watched) = watch::channel(Arc::new(Leases::default()));
    let (hearing, _) = new(site.tools.proposer.handle().watch(), watched);
    hearing.has_listened(Pool::new(ReplicaId::new(1).unwrap()));
    let now = clock::now();
    let mut seen = Leases::default();
    seen.note(node.clone(), "1", now.back(Span::from_secs(15)));
    seen.listed(now.back(Span::from_secs(15)));
    leases.send_replace(Arc::new(seen.clone()));
    assert_eq!(said(&hearing, &node).await, Hears::Silence, "it did not renew while it was watched");
    seen.note(node.clone(), "2", now.back(Span::from_secs(5)));
    leases.send_replace(Arc::new(seen));
    assert_eq!(said(&hearing, &node).await, Hears::Kubelet);
}
