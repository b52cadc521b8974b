//! Logging in and out, and never too often.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coroner_bmc::{Bmc, BmcError, Quirk, RedfishSettings, Secret};
use coroner_shared::bmc::{Login, Power};

use crate::identity::USER;
use crate::machine::*;
use crate::server::{Reply, Then};

#[tokio::test]
async fn an_expired_session_is_mended_by_one_log_in() {
    let mut bench = bench(|_, _| None).await;
    let before = bench.bmc.power_state(MEMBER).await.unwrap().continuity;
    bench.machine.state().sessions.clear();
    let reading = bench.bmc.power_state(MEMBER).await.unwrap();
    assert_eq!(reading.power, Power::On);
    assert_ne!(reading.continuity.session, before.session);
    assert_eq!(bench.machine.state().logins, 2);
    // In the middle of an identification everything is read again in the new session.
    bench.machine.state().sessions.clear();
    bench.bmc.identify().await.unwrap();
    assert_eq!(bench.server.count("GET", SYSTEMS), 3);
}

#[tokio::test]
async fn a_refused_password_is_sent_once_and_never_again() {
    for status in [400, 401, 403] {
        let mut bench = bench_with(
            |s| s.password = Secret::new("wrong".to_owned()),
            move |_, r| {
                r.is("POST", SESSIONS)
                    .then(|| Reply::json(status, &[], r#"{"error":{"code":"Base.1.0.No"}}"#))
            },
        )
        .await;
        for _ in 0..3 {
            let error = bench.bmc.identify().await.unwrap_err();
            assert!(matches!(error, BmcError::AuthRejected { .. }), "{error}");
            assert!(error.to_string().contains(&format!("HTTP {status} Base.1.0.No")), "{error}");
        }
        assert!(bench.bmc.power_state(MEMBER).await.is_err());
        assert_eq!(bench.server.count("POST", SESSIONS), 1);
    }
}

#[tokio::test]
async fn a_bmc_that_refuses_its_own_tokens_is_not_logged_in_to_for_ever() {
    let mut bench = bench(|_, r| r.is("GET", SYSTEMS).then(|| Reply::status(401))).await;
    for _ in 0..3 {
        assert_eq!(bench.bmc.identify().await.unwrap_err().class(), "auth-rejected");
    }
    assert_eq!(bench.machine.state().logins, 2);
}

#[tokio::test]
async fn basic_is_used_only_where_there_is_no_session_service() {
    // No link at all, and a link that leads nowhere.
    for status in [None, Some(404), Some(405), Some(501)] {
        let mut bench = bench(move |m, r| {
            m.state().basic = true;
            if r.is("GET", ROOT) && status.is_some() {
                let body = format!(r#"{{"Systems":{{"@odata.id":"{SYSTEMS}"}},"SessionService":{{"@odata.id":"/redfish/v1/SessionService"}}}}"#);
                return Some(Reply::json(200, &[], &body));
            }
            status.filter(|_| r.is("POST", SESSIONS)).map(Reply::status)
        })
        .await;
        bench.bmc.identify().await.unwrap();
        assert_eq!(bench.bmc.login(), Some(Login::Basic));
        let reading = bench.bmc.power_state(MEMBER).await.unwrap();
        assert_eq!(reading.continuity.session, None);
        assert!(reading.continuity.connection.is_some());
        let renewal = bench.bmc.fresh_session().await.unwrap();
        assert!(!renewal.old_session_alive);
        let later = bench.bmc.power_state(MEMBER).await.unwrap();
        assert_ne!(later.continuity.connection, reading.continuity.connection);
    }
    // A session service that is busy, broken or full is no reason to send the password with each request.
    for status in [429, 500, 503] {
        let mut bench = bench(move |_, r| r.is("POST", SESSIONS).then(|| Reply::status(status))).await;
        assert_eq!(bench.bmc.identify().await.unwrap_err().class(), "http-status");
        assert_eq!(bench.bmc.login(), None);
        assert!(bench.server.requests().iter().all(|r| r.header("authorization").is_none()));
    }
}

fn quirk(quirk: Quirk) -> impl FnOnce(&mut RedfishSettings) {
    move |settings| settings.quirks = [quirk].into_iter().collect()
}

#[tokio::test]
async fn quirks_forbid_basic_or_sessions() {
    let mut bench = bench_with(quirk(Quirk::NoBasic), |m, _| {
        m.state().basic = true;
        None
    })
    .await;
    assert_eq!(bench.bmc.identify().await.unwrap_err().class(), "no-sessions");
    let mut bench = bench_with(quirk(Quirk::BasicOnly), |m, r| {
        m.state().basic = !r.is("GET", ROOT);
        None
    })
    .await;
    bench.bmc.identify().await.unwrap();
    assert_eq!(bench.server.count("POST", SESSIONS), 0);
}

#[tokio::test]
async fn a_wrong_password_over_basic_is_sent_once() {
    let mut bench = bench_with(
        |s| s.password = Secret::new("wrong".to_owned()),
        |m, _| {
            m.state().basic = true;
            None
        },
    )
    .await;
    for _ in 0..3 {
        assert_eq!(bench.bmc.identify().await.unwrap_err().class(), "auth-rejected");
    }
    let sent = bench.server.requests().iter().filter(|r| r.header("authorization").is_some()).count();
    assert_eq!(sent, 1);
}

#[tokio::test]
async fn sessions_do_not_leak_even_where_four_is_all_there_is() {
    let mut bench = bench(|_, _| None).await;
    for _ in 0..20 {
        bench.bmc.identify().await.unwrap();
        bench.bmc.fresh_session().await.unwrap();
        bench.bmc.identify().await.unwrap();
        bench.bmc.close().await.unwrap();
    }
    assert!(bench.machine.state().sessions.is_empty());
    assert_eq!(bench.machine.state().logins, 40);
}

#[tokio::test]
async fn a_fresh_session_says_whether_the_bmc_still_knew_the_old_one() {
    let mut bench = bench(|_, _| None).await;
    let old = bench.bmc.power_state(MEMBER).await.unwrap().continuity;
    assert!(bench.bmc.fresh_session().await.unwrap().old_session_alive);
    let new = bench.bmc.power_state(MEMBER).await.unwrap().continuity;
    assert!(new.session != old.session && new.connection != old.connection);
    assert_eq!(bench.machine.state().sessions, [2]);
    bench.machine.state().sessions.clear();
    assert!(!bench.bmc.fresh_session().await.unwrap().old_session_alive);
}

#[tokio::test]
async fn a_log_out_that_hangs_does_not_hold_up_the_new_session() {
    let mut bench = bench_with(
        |s| s.timeouts = short(),
        |_, r| (r.method == "DELETE").then(|| Reply::raw("").then(Then::Hang)),
    )
    .await;
    bench.bmc.identify().await.unwrap();
    assert!(!bench.bmc.fresh_session().await.unwrap().old_session_alive);
    assert_eq!(bench.bmc.power_state(MEMBER).await.unwrap().power, Power::On);
    assert_eq!(bench.bmc.close().await.unwrap_err().class(), "timeout");
    assert_eq!(bench.bmc.login(), None);
}

#[tokio::test]
async fn a_predecessors_session_is_deleted_and_nobody_elses() {
    let foreign = Arc::new(AtomicBool::new(false));
    let inside = Arc::clone(&foreign);
    let mut bench = bench(move |_, r| {
        let other = inside.load(Ordering::Relaxed) && r.method == "GET" && r.path.starts_with(SESSIONS);
        other.then(|| Reply::json(200, &[], r#"{"UserName":"somebody"}"#))
    })
    .await;
    let mut before = driver(settings(bench.server.port, bench.identity.ca(None)));
    before.identify().await.unwrap();
    let Some(Login::Session(uri)) = before.login() else { panic!("a session") };
    bench.bmc.delete_session(&uri).await.unwrap();
    assert_eq!(bench.machine.state().sessions, [2], "ours remains");
    bench.bmc.delete_session(&uri).await.unwrap();
    // The numbers begin anew after a restart: this is our own now.
    let Some(Login::Session(own)) = bench.bmc.login() else { panic!("a session") };
    bench.bmc.delete_session(&own).await.unwrap();
    assert_eq!(bench.machine.state().sessions, [2]);
    // Or another account's.
    foreign.store(true, Ordering::Relaxed);
    bench.machine.state().sessions.push(1);
    bench.bmc.delete_session(&uri).await.unwrap();
    assert_eq!(bench.machine.state().sessions, [2, 1]);

    let elsewhere = format!("https://elsewhere.example{uri}");
    assert_eq!(bench.bmc.delete_session(&elsewhere).await.unwrap_err().class(), "cross-origin");
    for uri in [MEMBER, "/redfish/v1/AccountService/Accounts/1", ""] {
        assert_eq!(bench.bmc.delete_session(uri).await.unwrap_err().class(), "malformed", "{uri}");
    }
    assert!(bench.server.requests().iter().filter(|r| r.method == "DELETE").all(|r| r.path == uri));
}

#[tokio::test]
async fn a_session_without_a_token_or_a_way_to_end_it_is_none() {
    let uri = format!("{SESSIONS}/1");
    let elsewhere = format!("https://bmc-internal{SESSIONS}/1");
    let body = format!(r#"{{"@odata.id":"{uri}","UserName":"{USER}"}}"#);
    for (headers, body, session) in [
        (vec![("X-Auth-Token", "t1"), ("Location", uri.as_str())], "{}", true),
        (vec![("X-Auth-Token", "t1"), ("Location", elsewhere.as_str())], body.as_str(), true),
        (vec![("X-Auth-Token", "t1")], body.as_str(), true),
        (vec![("X-Auth-Token", "t1"), ("Location", elsewhere.as_str())], "{}", false),
        (vec![("Location", uri.as_str())], body.as_str(), false),
        (vec![("X-Auth-Token", "t1")], "{}", false),
    ] {
        let reply = Reply::json(201, &headers, body);
        let mut bench = bench(move |m, r| {
            if r.header("x-auth-token") == Some("t1") {
                return Some(match r.path.as_str() {
                    SYSTEMS => Reply::json(200, &[], r#"{"Members":[]}"#),
                    MEMBER => Reply::json(200, &[], &m.system()),
                    _ => Reply::status(404),
                });
            }
            r.is("POST", SESSIONS).then(|| reply.clone())
        })
        .await;
        let outcome = bench.bmc.identify().await;
        if session {
            outcome.unwrap();
            assert_eq!(bench.bmc.login(), Some(Login::Session(uri.clone())));
        } else {
            assert_eq!(outcome.unwrap_err().class(), "malformed", "{headers:?}");
            assert_eq!(bench.bmc.login(), None);
        }
    }
}
