//! What jobs do around their decisions, on a real replica and an API server that remembers: nothing is looked at, read or
//! written by a leader that has not listened, and nothing is written for a job that the log no longer asks for.

use coroner_arbiter_core::phase::FenceProof;
use coroner_arbiter_core::witness::pool::Pool;
use coroner_shared::id::ReplicaId;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Site, golden};

/// The first state of the golden log that asks for a job like this, and that job.
fn asked(is: impl Fn(&Job) -> bool) -> (State, Job) {
    let state = golden(|state| jobs::jobs(state).iter().any(&is));
    let job = jobs::jobs(&state).into_iter().find(is).unwrap();
    (state, job)
}

/// The Node of a job's life as the API server has it.
fn node_of(life: &jobs::Life) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": life.node, "uid": life.incarnation.node, "resourceVersion": "7"},
        "spec": {},
        "status": {"nodeInfo": {
            "bootID": life.incarnation.boot.to_string(), "machineID": "", "systemUUID": "", "kernelVersion": "",
            "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
            "operatingSystem": "", "architecture": ""}},
    })
}

fn is_of_person(proof: &FenceProof) -> bool {
    matches!(proof, FenceProof::PersonConfirmed { .. })
}

/// A site whose replica leads, with this state.
async fn leading(state: State, life: &jobs::Life) -> Site {
    let site = Site::with(state).await;
    site.leads().await;
    site.api.show(node_of(life), Vec::new());
    site
}

fn listens(site: &Site) {
    site.tools.hearing.has_listened(Pool::new(ReplicaId::new(1).unwrap()));
}

/// The same life in an incident that is over.
fn over(life: &jobs::Life) -> jobs::Life {
    jobs::Life { incident: format!("{}-0ff0ff00", life.node).into(), ..life.clone() }
}

/// Runs a job that never ends for a moment.
async fn for_a_moment(work: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(Duration::from_millis(700), work).await;
}

#[tokio::test]
async fn a_leader_that_has_not_listened_takes_no_last_look() {
    let (state, job) = asked(|job| matches!(job, Job::Fence(_)));
    let Job::Fence(of) = &job else { panic!() };
    let site = leading(state, &of.life).await;
    let why = fence::look(&site.tools, &job, &of.life.node).await.unwrap_err();
    assert!(why.contains("only just been elected"), "{why}");
    listens(&site);
    let look = fence::look(&site.tools, &job, &of.life.node).await.unwrap();
    assert!(look.wanted, "and once it has, it may");
}

#[tokio::test]
async fn a_leader_that_has_not_listened_releases_nothing() {
    let (state, begins) = asked(|job| matches!(job, Job::Release(_)));
    let Job::Release(of) = &begins else { panic!() };
    let site = leading(state, &of.life).await;
    tokio::time::pause();
    release::release(&site.tools, &begins, of).await;
    tokio::time::resume();
    assert_eq!(site.api.take_asked(), [""; 0]);

    let (state, writes) = asked(|job| matches!(job, Job::WriteRelease(w) if is_of_person(&w.proof)));
    let Job::WriteRelease(of) = &writes else { panic!() };
    let site = leading(state, &of.life).await;
    tokio::time::pause();
    release::write(&site.tools, &writes, of).await;
    tokio::time::resume();
    assert_eq!(site.api.take_asked(), [""; 0]);
}

#[tokio::test]
async fn the_patch_is_written_only_after_a_last_look_that_still_asks_for_it() {
    let is = |job: &Job| matches!(job, Job::WriteRelease(w) if is_of_person(&w.proof));
    let (state, job) = asked(is);
    let Job::WriteRelease(of) = &job else { panic!() };
    let path = format!("/api/v1/nodes/{}", of.life.node);
    for wanted in [true, false] {
        let site = leading(state.clone(), &of.life).await;
        listens(&site);
        let life = if wanted { of.life.clone() } else { over(&of.life) };
        let of = jobs::WriteReleaseJob { life, ..of.clone() };
        release::write(&site.tools, &Job::WriteRelease(of.clone()), &of).await;
        let asked = site.api.take_asked();
        assert_eq!(asked.contains(&format!("PATCH {path}")), wanted, "{asked:?}");
        assert!(asked.contains(&format!("GET {path}")), "{asked:?}");
    }
}

/// A leader that was asleep must not take away what a later release wrote.
#[tokio::test]
async fn the_way_back_is_taken_only_after_a_last_look_that_still_asks_for_it() {
    let (state, job) = asked(|job| matches!(job, Job::Return(_)));
    let Job::Return(of) = &job else { panic!() };
    for wanted in [true, false] {
        let site = leading(state.clone(), &of.life).await;
        listens(&site);
        let life = if wanted { of.life.clone() } else { over(&of.life) };
        let of = jobs::ReturnJob { life, ..of.clone() };
        release::give_back(&site.tools, &Job::Return(of.clone()), &of).await;
        let asked = site.api.take_asked();
        assert_eq!(!asked.is_empty(), wanted, "{asked:?}");
    }
}

#[tokio::test]
async fn pods_are_deleted_only_while_the_kubelet_reports_the_boot_that_was_proven_off() {
    let (state, job) = asked(|job| matches!(job, Job::Expedite(e) if !e.released.pods.is_empty()));
    let Job::Expedite(of) = &job else { panic!() };
    let of = &jobs::ExpediteJob {
        strategy: coroner_arbiter_core::policy::ReleaseStrategy::Expedite,
        ..of.clone()
    };
    let (uid, name) = of.released.pods[0].clone();
    let (namespace, name) = name.split_once('/').map_or(("default", &*name), |both| both);
    let pod =
        json!({"metadata": {"name": name, "namespace": namespace, "uid": uid}, "spec": {"containers": []}});
    let deletion = format!("DELETE /api/v1/namespaces/{namespace}/pods/{name}");
    for same_boot in [true, false] {
        let site = leading(state.clone(), &of.life).await;
        let mut node = node_of(&of.life);
        if !same_boot {
            node["status"]["nodeInfo"]["bootID"] = json!("99999999-0000-4000-8000-000000000099");
        }
        site.api.show(node, vec![pod.clone()]);
        for_a_moment(release::expedite(&site.tools, of)).await;
        let asked = site.api.take_asked();
        assert_eq!(asked.contains(&deletion), same_boot, "{asked:?}");
    }
}
