//! A follower asks the leader to explain.

use coroner_arbiter_core::state::State;
use coroner_shared::id::ReplicaId;

use super::*;
use crate::ingress;
use crate::testing::{Site, golden, http, serve};

#[tokio::test]
async fn a_follower_is_told_what_the_leader_alone_knows() {
    let site = Site::with(golden(|state: &State| !state.nodes.is_empty())).await;
    site.leads().await;
    let node = site.people.shown.nodes()[0].node.clone();
    let leader = serve(ingress::router(site.ingress.clone()), ReplicaId::new(2).ok()).await;
    let told = explanation(&http(), &format!("http://{leader}"), &node).await.unwrap();
    assert_eq!(told.sentences, site.people.shown.explain(&node).unwrap().sentences);
    assert!(!told.sentences.join(" ").contains("does not lead"), "{:?}", told.sentences);
    let nobody = "nobody".parse().unwrap();
    assert!(explanation(&http(), &format!("http://{leader}"), &nobody).await.is_err());
    // The people's port has its own way, with rights.
    let stranger = serve(ingress::router(site.ingress.clone()), None).await;
    let refused = explanation(&http(), &format!("http://{stranger}"), &node).await.unwrap_err();
    assert!(crate::transport::chain(&refused).contains("403"), "{refused}");
}

#[tokio::test]
async fn a_leader_that_says_nothing_is_waited_for_no_longer_than_two_seconds() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", silent.local_addr().unwrap());
    let began = tokio::time::Instant::now();
    assert!(explanation(&http(), &base, &"n1".parse().unwrap()).await.is_err());
    let waited = began.elapsed();
    assert!(waited >= EXPLAINS_WITHIN && waited < Duration::from_secs(10), "{waited:?}");
}
