//! The Raft id belongs to the disk: a replica that has spoken never starts again with less than it had.
//! (What happens where one does: `arbiter/replica/tests/group/lost_disk.rs`.)

use std::path::{Path, PathBuf};

use coroner_arbiter::birth::{self, BirthError, Identity};
use coroner_arbiter::store::StoreKind;
use coroner_arbiter::{begun, replica};
use coroner_arbiter_core::state::State;
use coroner_arbiter_replica::{Bootstrap, Fatal, ReplicaConfig, StoreError};
use coroner_shared::id::ReplicaId;
use tempfile::TempDir;

use crate::api::Api;

/// One start of the process on this disk, as `run.rs` does it.
async fn start(client: &kube::Client, node: &str, disk: &Path) -> Result<Identity, BirthError> {
    let begun = begun::is_begun(&log(disk));
    birth::identity(client, "coroner", &node.parse().unwrap(), disk, begun).await
}

fn log(disk: &Path) -> PathBuf {
    disk.join("log")
}

/// Begins the log, and ends again.
fn live(kind: StoreKind, id: ReplicaId, disk: &Path) -> Result<(), Fatal> {
    let members = (1..=3).map(|n| ReplicaId::new(n).unwrap()).collect();
    let bootstrap = Bootstrap { members, state: State::default() };
    replica::start_on(kind, ReplicaConfig::new(id), &log(disk), &bootstrap).map(|_| ())
}

fn damaged(result: Result<(), Fatal>) -> String {
    match result {
        Err(Fatal::Store { source: StoreError::Damaged { what, .. }, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_first_start_sets_a_mark_and_later_ones_need_no_api_server() {
    let (api, client) = Api::serve().await;
    let disk = TempDir::new().unwrap();
    assert!(matches!(start(&client, "n2", disk.path()).await, Err(BirthError::NoSecret)));
    api.init();
    let born = start(&client, "n2", disk.path()).await.unwrap();
    assert_eq!(born.id.get(), 2);
    assert!(api.keys().contains(&"used-2".to_owned()));
    live(StoreKind::Sled, born.id, disk.path()).unwrap();
    api.down(true);
    let asked = api.asked();
    let again = start(&client, "n2", disk.path()).await.unwrap();
    assert_eq!((again.id, again.key.public()), (born.id, born.key.public()));
    assert_eq!(api.asked(), asked);
}

#[tokio::test]
async fn an_empty_disk_beside_a_mark_is_a_lost_disk_and_does_not_start() {
    let (api, client) = Api::serve().await;
    api.init();
    let disk = TempDir::new().unwrap();
    start(&client, "n2", disk.path()).await.unwrap();
    let another = TempDir::new().unwrap();
    let refused = start(&client, "n2", another.path()).await.err().unwrap();
    assert!(matches!(refused, BirthError::LostDisk { id, .. } if id.get() == 2));
    assert!(refused.to_string().contains("cannot make a new member"), "{refused}");
    assert_eq!(std::fs::read_dir(another.path()).unwrap().count(), 0, "it leaves nothing there");
    // Another member is another matter.
    assert_eq!(start(&client, "n3", another.path()).await.unwrap().id.get(), 3);
}

#[tokio::test]
async fn a_start_that_ended_between_its_disk_and_its_mark_sets_the_mark_before_it_speaks() {
    let (api, client) = Api::serve().await;
    api.init();
    let disk = TempDir::new().unwrap();
    api.refuse_writes(true);
    assert!(matches!(start(&client, "n1", disk.path()).await, Err(BirthError::Api(_))));
    // Its identity is on the disk by now; that alone must not let it speak.
    assert!(matches!(start(&client, "n1", disk.path()).await, Err(BirthError::Api(_))));
    api.refuse_writes(false);
    start(&client, "n1", disk.path()).await.unwrap();
    assert!(api.keys().contains(&"used-1".to_owned()));
}

#[tokio::test]
async fn a_node_that_is_no_member_is_told_so() {
    let (api, client) = Api::serve().await;
    api.init();
    let disk = TempDir::new().unwrap();
    let refused = start(&client, "n9", disk.path()).await.err().unwrap();
    assert!(refused.to_string().contains("n1, n2, n3"), "{refused}");
}

/// Identity and keys are there, the log is not.
#[tokio::test]
async fn a_log_that_was_begun_and_is_empty_does_not_start() {
    for kind in [StoreKind::Sled, StoreKind::Redb] {
        let disk = TempDir::new().unwrap();
        let id = ReplicaId::new(2).unwrap();
        live(kind, id, disk.path()).unwrap();
        settle(kind, disk.path());
        std::fs::remove_dir_all(log(disk.path())).unwrap();
        assert!(damaged(live(kind, id, disk.path())).contains("it may have voted"), "{kind:?}");
        // The failed start has made an empty log; it is no better the second time.
        settle(kind, disk.path());
        assert!(damaged(live(kind, id, disk.path())).contains("it may have voted"), "{kind:?}");
    }
}

#[tokio::test]
async fn a_log_of_another_replica_or_in_another_store_is_not_opened() {
    let disk = TempDir::new().unwrap();
    let (two, three) = (ReplicaId::new(2).unwrap(), ReplicaId::new(3).unwrap());
    live(StoreKind::Sled, two, disk.path()).unwrap();
    let wrong = [(StoreKind::Sled, three, "its own disk"), (StoreKind::Redb, two, "with that --store")];
    for (kind, id, way) in wrong {
        let refused = live(kind, id, disk.path()).unwrap_err();
        let source = std::error::Error::source(&refused).unwrap();
        let why = std::error::Error::source(source).unwrap().to_string();
        assert!(why.contains("replica 2 in sled") && why.contains(way), "{why}");
    }
    assert!(!log(disk.path()).join("log.redb").exists());
}

/// The thread of a replica that nobody holds ends by itself, and lets go of its log.
fn settle(kind: StoreKind, disk: &Path) {
    for _ in 0..200 {
        if coroner_arbiter::store::open(kind, &log(disk)).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the log stays locked");
}
