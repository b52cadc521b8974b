//! Sessions and what shows a restart: every log-in is accounted for, ends when it should, and a BMC that was away in
//! between two readings is never taken for one that was there all the time.

use coroner_bmc::{Bmc, BmcError, Quirk, Redfish, Secret};
use coroner_shared::bmc::{Continuity, Login, Power as Shown};
use coroner_tests::lab::emulator::control::Command;
use serde_json::json;

use crate::bench::{Bench, failed};

async fn read(driver: &mut Redfish, member: &str) -> Continuity {
    driver.power_state(member).await.unwrap().continuity
}

/// Restarts n1, and waits until it answers again.
async fn restart(bench: &Bench, says_off_ms: u64) {
    bench.command(Command::Restart { bmc: "n1".to_owned(), down_ms: 50, says_off_ms }).await;
    tokio::time::sleep(std::time::Duration::from_millis(150)).await;
}

/// Reads until the BMC answers; how the readings on the way fail does not matter here.
async fn read_again(driver: &mut Redfish, member: &str) -> coroner_shared::bmc::PowerReading {
    for _ in 0..100 {
        if let Ok(reading) = driver.power_state(member).await {
            return reading;
        }
    }
    panic!("the BMC never came back");
}

#[tokio::test]
async fn readings_of_a_bmc_that_stays_are_unbroken_over_one_session() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    let first = read(&mut driver, &member).await;
    assert!(first.session.is_some() && first.connection.is_some() && first.reset_time.is_some(), "{first:?}");
    for _ in 0..3 {
        assert_eq!(read(&mut driver, &member).await, first);
    }
    assert_eq!((bench.log_ins(), bench.sessions().len()), (1, 1));
}

#[tokio::test]
async fn a_restart_breaks_continuity_even_where_the_bmc_says_off_at_once() {
    // (LastResetTime, tokens outlive the restart, the quirk that says so)
    let table = [
        (true, false, None),
        (false, false, None),
        (true, true, None),
        (false, true, Some(Quirk::SessionsSurviveRestart)),
    ];
    for (last_reset_time, sessions_survive, quirk) in table {
        let bench = Bench::ours();
        bench.set(&json!({ "last_reset_time": last_reset_time, "sessions_survive": sessions_survive }));
        let member = bench.member();
        let mut driver = quirk.map_or_else(|| bench.driver(), |quirk| bench.driver_with_quirk(quirk));
        driver.identify().await.unwrap();
        let before = read(&mut driver, &member).await;
        assert!(read(&mut driver, &member).await.unbroken_since(&before));
        restart(&bench, 60_000).await;
        let after = read_again(&mut driver, &member).await;
        assert_eq!(after.power, Shown::Off, "the lie that this is about");
        assert!(!after.continuity.unbroken_since(&before), "{quirk:?} {before:?} {after:?}");
    }
}

#[tokio::test]
async fn a_session_that_ended_is_replaced_with_one_log_in_and_another_number() {
    let bench = Bench::ours();
    bench.set(&json!({ "last_reset_time": false }));
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    let before = read(&mut driver, &member).await;
    bench.emulator().bmc("n1").unwrap().with_sessions(|sessions, _| sessions.clear());
    let after = read_again(&mut driver, &member).await.continuity;
    assert_ne!(after.session, before.session);
    assert_eq!((bench.log_ins(), bench.sessions().len()), (2, 1));
}

#[tokio::test]
async fn every_session_is_deleted_also_after_failures() {
    let bench = Bench::ours();
    bench.set(&json!({ "session_limit": 2 }));
    let member = bench.member();
    for round in 0..12 {
        let mut driver = bench.driver();
        let fault = json!({ "status": { "code": 500 } });
        let rules = if round % 2 == 0 { json!([]) } else { json!([{ "path": member, "fault": fault }]) };
        bench.set(&json!({ "rules": rules }));
        driver.identify().await.unwrap();
        assert_eq!(driver.power_state(&member).await.is_ok(), round % 2 == 0);
        driver.close().await.unwrap();
        assert_eq!(bench.sessions(), [] as [&str; 0], "round {round}");
    }
}

#[tokio::test]
async fn a_fresh_session_is_a_new_one_over_a_new_connection_and_the_old_one_is_gone() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    let (before, login) = (read(&mut driver, &member).await, driver.login());
    assert!(driver.fresh_session().await.unwrap().old_session_alive);
    let after = read(&mut driver, &member).await;
    assert!(after.session != before.session && after.connection != before.connection, "{before:?} {after:?}");
    assert_ne!(driver.login(), login);
    assert_eq!(bench.sessions().len(), 1);
    restart(&bench, 0).await;
    let mut renewed = driver.fresh_session().await;
    for _ in 0..100 {
        if renewed.is_ok() {
            break;
        }
        renewed = driver.fresh_session().await;
    }
    assert!(!renewed.unwrap().old_session_alive, "it died with the restart");
}

#[tokio::test]
async fn a_successor_deletes_the_recorded_session_of_its_predecessor() {
    let bench = Bench::ours();
    let (mut first, mut second) = (bench.driver(), bench.driver());
    first.identify().await.unwrap();
    let Some(Login::Session(uri)) = first.login() else { panic!("{:?}", first.login()) };
    second.identify().await.unwrap();
    assert_eq!(bench.sessions().len(), 2);
    for _ in 0..2 {
        second.delete_session(&uri).await.unwrap();
        assert_eq!(bench.sessions().len(), 1, "gone already is as good");
    }
    assert_ne!(second.login(), Some(Login::Session(uri)));
}

#[tokio::test]
async fn basic_is_used_only_where_there_are_no_sessions() {
    let bench = Bench::ours();
    let mut driver = bench.driver();
    driver.identify().await.unwrap();
    assert!(matches!(driver.login(), Some(Login::Session(_))));
    driver.close().await.unwrap();
    bench.set(&json!({ "session_limit": 0 }));
    let error = failed(bench.driver().identify().await, "all sessions are taken");
    assert!(matches!(error, BmcError::Status { status: 503, .. }), "{error:?}");
    let basic = || bench.requests().iter().filter(|entry| entry.session.as_deref() == Some("basic")).count();
    assert_eq!(basic(), 0);
    bench.set(&json!({ "sessions": false }));
    let mut driver = bench.driver();
    driver.identify().await.unwrap();
    assert_eq!((driver.login(), basic() > 0), (Some(Login::Basic), true));
    let before = basic();
    let error = failed(bench.driver_with_quirk(Quirk::NoBasic).identify().await, "no Basic");
    assert!(matches!(error, BmcError::NoSessions), "{error:?}");
    assert_eq!(basic(), before);
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_so_that_it_locks_no_account() {
    let bench = Bench::ours();
    bench.set(&json!({ "lockout": { "failures": 2, "for_ms": 600_000 } }));
    let mut wrong = bench.driver_with(|settings| settings.password = Secret::new("wrong".to_owned()));
    for _ in 0..5 {
        let error = failed(wrong.identify().await, "wrong");
        assert!(matches!(error, BmcError::AuthRejected { .. }), "{error:?}");
    }
    assert_eq!(bench.log_ins(), 1);
    bench.driver().identify().await.unwrap();
}

#[tokio::test]
async fn a_rotated_password_spares_the_open_session_and_is_tried_once_when_that_ends() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    let new = "rotated".to_owned();
    bench.command(Command::Password { bmc: "n1".to_owned(), username: None, password: new.clone() }).await;
    assert_eq!(driver.power_state(&member).await.unwrap().power, Shown::On);
    bench.emulator().bmc("n1").unwrap().with_sessions(|sessions, _| sessions.clear());
    for _ in 0..3 {
        let error = failed(driver.power_state(&member).await, "rotated");
        assert!(matches!(error, BmcError::AuthRejected { .. }), "{error:?}");
    }
    assert_eq!(bench.log_ins(), 2, "the first one, and one with the old password");
    let mut current = bench.driver_with(|settings| settings.password = Secret::new(new));
    current.identify().await.unwrap();
}

#[tokio::test]
async fn another_key_behind_the_same_name_is_not_taken_for_the_same_bmc() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    bench.set(&json!({ "certificate": "new_key" }));
    restart(&bench, 0).await;
    let mut classes = Vec::new();
    for _ in 0..100 {
        match driver.power_state(&member).await {
            Ok(reading) => panic!("{reading:?} after {classes:?}"),
            Err(error) => classes.push(failed::<()>(Err(error), "new key").class()),
        }
        if classes.last() == Some(&"tls-key-changed") {
            return;
        }
    }
    panic!("{classes:?}");
}
