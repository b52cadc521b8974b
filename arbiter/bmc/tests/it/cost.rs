//! What each call costs in requests: the pace of a fence is reckoned with these (`arbiter/core`, the fence's tests).

use coroner_bmc::Bmc;

use crate::machine::*;

#[tokio::test]
async fn a_fence_pays_for_what_it_must_know_and_for_nothing_twice() {
    let mut bench = bench(|_, _| None).await;
    let mut seen = 0;
    let mut since = |server: &crate::server::Server| {
        let all = server.requests();
        let new: Vec<String> = all.iter().skip(seen).map(|r| format!("{} {}", r.method, r.path)).collect();
        seen = all.len();
        new
    };
    let get = |path: &str| format!("GET {path}");
    // A session of its own.
    bench.bmc.fresh_session().await.unwrap();
    assert_eq!(since(&bench.server), [get(ROOT), format!("POST {SESSIONS}")]);
    // Identity: the list, each member, the Manager.
    bench.bmc.identify().await.unwrap();
    assert_eq!(since(&bench.server), [get(SYSTEMS), get(MEMBER), get(MANAGER)]);
    // A reading, a command: one.
    bench.bmc.power_state(MEMBER).await.unwrap();
    assert_eq!(since(&bench.server), [get(MEMBER)]);
    bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap();
    assert_eq!(since(&bench.server), [format!("POST {RESET}")]);
    bench.bmc.power_state(MEMBER).await.unwrap();
    assert_eq!(since(&bench.server), [get(MEMBER)]);
    // And identity over the warm session costs no log-in.
    bench.bmc.identify().await.unwrap();
    assert_eq!(since(&bench.server), [get(SYSTEMS), get(MEMBER), get(MANAGER)]);
    assert_eq!(bench.server.connections(), 1);
}
