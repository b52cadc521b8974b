//! How long a commit takes: three replicas, TLS between them, logs on this disk, against three members of etcd on the
//! same disk. Both are asked over a connection to the member that leads; ours over HTTPS, etcd over gRPC without TLS.
//! They get turns of the same length, one after the other, so that neighbours on the machine disturb all alike.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use coroner_arbiter::store::StoreKind;
use futures::future::join_all;

use super::Asked;
use super::etcd::{self, Etcd};
use super::replicas::Replicas;
use super::row::Row;
use super::samples::Samples;
use crate::lab::writer::boottime_ns;

/// Bytes that etcd is given to keep: about what one of our entries has.
const VALUE_BYTES: usize = 128;
/// One who waits for each answer, as an arbiter does, and a crowd.
const CLIENTS: [usize; 2] = [1, 16];
const MS: f64 = 1_000_000.0;

/// Samples of one side.
#[derive(Default)]
struct Side {
    ns: Vec<u64>,
}

/// Measures.
///
/// # Errors
/// A side does not start, or etcd fails.
pub async fn rows(asked: &Asked) -> Result<Vec<Row>> {
    let sled = Replicas::start(StoreKind::Sled, &asked.folder, 1).await?;
    let redb = Replicas::start(StoreKind::Redb, &asked.folder, 2).await?;
    let etcd = match &asked.etcd {
        Some(program) => Some(Etcd::start(program, &asked.folder).await?),
        None => None,
    };
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let [mut of_sled, mut of_redb, mut of_etcd] = [Side::default(), Side::default(), Side::default()];
        for turn in 0..=asked.turns {
            asked.tell.note(&format!("{clients} at once: turn {turn} of {}", asked.turns));
            // The first turn warms everything up and does not count.
            let ms = if turn == 0 { asked.turn_ms / 2 } else { asked.turn_ms };
            let key = |n: usize| format!("commits-{clients}-{turn}-{n}");
            let a = during(ms, clients, async |n| sled.commit_over_tls(&key(n)).await).await?;
            let b = during(ms, clients, async |n| redb.commit_over_tls(&key(n)).await).await?;
            let c = match &etcd {
                Some(etcd) => ask_etcd(etcd, ms, clients, turn).await?,
                None => Vec::new(),
            };
            if turn > 0 {
                for (side, ns) in [(&mut of_sled, a), (&mut of_redb, b), (&mut of_etcd, c)] {
                    side.ns.extend(ns);
                }
            }
        }
        let peer = Samples::of_ns(of_etcd.ns, MS);
        for (store, side) in [("sled", of_sled), ("redb", of_redb)] {
            let crowd = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
            let row = Row::new(format!("commit, {store}, {crowd}"), "ms", &Samples::of_ns(side.ns, MS));
            rows.push(etcd.iter().fold(row, |row, etcd| row.beside(&etcd.name(), &peer)));
        }
    }
    let here = during(asked.turn_ms, 1, async |n| sled.commit_here(&format!("here-{n}")).await).await?;
    rows.push(Row::new("commit, sled, asked in the process", "ms", &Samples::of_ns(here, MS)));
    Ok(rows)
}

async fn ask_etcd(etcd: &Etcd, ms: u64, clients: usize, turn: u32) -> Result<Vec<u64>> {
    let grpc = etcd.connect().await?;
    during(ms, clients, async |n| {
        let key = format!("commits-{clients}-{turn}-{n}");
        etcd::put(&mut grpc.clone(), &key, &[7; VALUE_BYTES]).await
    })
    .await
}

/// How long each run of `work` takes, for `ms`, by so many at once. `work` gets a number of its own each time.
async fn during<F>(ms: u64, clients: usize, work: impl Fn(usize) -> F) -> Result<Vec<u64>>
where
    F: Future<Output = Result<()>>,
{
    let end = boottime_ns() + u64::try_from(Duration::from_millis(ms).as_nanos()).unwrap_or(u64::MAX);
    let client = async |client: usize| {
        let (mut found, mut n) = (Vec::new(), client);
        while boottime_ns() < end {
            let begin = boottime_ns();
            work(n).await?;
            found.push(boottime_ns() - begin);
            n += clients;
        }
        anyhow::Ok(found)
    };
    let all = join_all((0..clients).map(client)).await;
    Ok(all.into_iter().collect::<Result<Vec<_>>>()?.concat())
}
