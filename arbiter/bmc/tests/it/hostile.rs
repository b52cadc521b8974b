//! Random rubbish in every place; the driver answers with an error or a fact, in time, and lives on.

use std::sync::{Arc, Mutex};

use coroner_bmc::Bmc;
use coroner_shared::time::Span;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::machine::*;
use crate::server::{Reply, Then};

/// Bytes that look a little like an answer, so that they get past the first check now and then.
fn rubbish() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"HTTP/1.1 200 OK\r\n".to_vec()),
        Just(b"HTTP/1.1 307 X\r\nLocation: /redfish/v1/\r\n".to_vec()),
        Just(b"Content-Type: application/json\r\n".to_vec()),
        Just(b"Content-Length: 5\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"X-Auth-Token: t\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"{\"Members\":[".to_vec()),
        Just(b"{\"@odata.id\":\"/redfish/v1/Systems/1\"}".to_vec()),
        Just(b"]}".to_vec()),
        Just(b"ffffffffffffffff\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..20),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

#[test]
fn rubbish_at_any_step_ends_in_an_error_or_a_fact() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let given = Arc::new(Mutex::new(("", Reply::raw(""))));
    let inside = Arc::clone(&given);
    let bench = runtime.block_on(bench(move |_, r| {
        let (path, reply) = inside.lock().unwrap().clone();
        (r.path == path).then_some(reply)
    }));
    let paths = prop::sample::select(vec![ROOT, SESSIONS, SYSTEMS, MEMBER, MANAGER, RESET]);
    let mut runner = TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(paths, rubbish()), |(path, bytes)| {
        *given.lock().unwrap() = (path, Reply::raw(bytes).then(Then::Close));
        bench.machine.state().sessions.clear();
        let mut settings = settings(bench.server.port, bench.identity.ca(None));
        settings.timeouts = short();
        let mut bmc = driver(settings);
        runtime.block_on(async {
            let _ = bmc.identify().await;
            let _ = bmc.power_state(MEMBER).await;
            let _ = bmc.force_off(MEMBER, &|| true, Span::from_secs(2)).await;
            *given.lock().unwrap() = ("", Reply::raw(""));
            let _ = bmc.close().await;
            Ok(())
        })
    });
    outcome.unwrap();
}
