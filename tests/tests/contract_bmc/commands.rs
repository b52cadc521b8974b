//! Power commands: how an answer is read, what is sent and what never is. The machine is the judge, not the answer.

use std::time::Duration;

use coroner_bmc::{Bmc, BmcError};
use coroner_shared::bmc::{CommandAnswer, Power as Shown};
use coroner_shared::time::Span;
use coroner_tests::lab::emulator::machine::Power;
use serde_json::{Value, json};

use crate::bench::{Bench, DEADLINE, failed, no_secret};

const RESET: &str = "*/Actions/ComputerSystem.Reset";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Accepted,
    Refused,
    Unknown,
}

fn kind(answer: &CommandAnswer) -> Kind {
    no_secret(&format!("{answer:?}"));
    match answer {
        CommandAnswer::Accepted => Kind::Accepted,
        CommandAnswer::Refused { .. } => Kind::Refused,
        CommandAnswer::Unknown { .. } => Kind::Unknown,
    }
}

#[tokio::test]
async fn an_answer_is_accepted_refused_or_unknown_and_says_nothing_about_the_machine() {
    let status = |code: u16| json!({ "status": { "code": code } });
    let mut table: Vec<(Value, Kind)> = Vec::new();
    table.extend([200, 202, 204].map(|code| (status(code), Kind::Accepted)));
    table.extend([400, 403, 404, 405, 409, 412, 415].map(|code| (status(code), Kind::Refused)));
    table.extend([408, 425, 429, 500, 501, 502, 503, 504].map(|code| (status(code), Kind::Unknown)));
    table.extend([json!("hang"), json!("reset")].map(|fault| (fault, Kind::Unknown)));
    // The text says that the power is off; the status says no.
    let text = json!({ "error": { "message": "Power is off", "@Message.ExtendedInfo": [{ "MessageID": "PSU501" }] } });
    table.push((json!({ "status": { "code": 409, "body": text } }), Kind::Refused));
    for (fault, want) in table {
        for acts in [false, true] {
            let bench = Bench::ours();
            let (mut driver, member) = (bench.driver(), bench.member());
            driver.identify().await.unwrap();
            bench.set(
                &json!({ "rules": [{ "method": "POST", "path": RESET, "acts": acts, "fault": fault }] }),
            );
            let answer = driver.force_off(&member, &|| true, Span::from_ms(700)).await.unwrap();
            assert_eq!(kind(&answer), want, "{fault} {answer:?}");
            if acts {
                bench.until(Power::Off).await;
            }
            assert_eq!(bench.machines[0].power() == Power::Off, acts, "{fault}");
            assert_eq!(bench.resets(), ["ForceOff"], "{fault}: sent once, whatever the answer");
        }
    }
}

#[tokio::test]
async fn a_command_that_is_accepted_and_does_nothing_leaves_the_machine_on_in_every_reading() {
    for (command, want) in [("nothing", Shown::On), ("stuck_powering_off", Shown::PoweringOff)] {
        let bench = Bench::ours();
        let (mut driver, member) = (bench.driver(), bench.member());
        bench.set(&json!({ "command": command }));
        driver.identify().await.unwrap();
        assert_eq!(driver.force_off(&member, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
        for _ in 0..5 {
            assert_eq!(driver.power_state(&member).await.unwrap().power, want);
        }
        assert_eq!(bench.machines[0].power(), Power::On);
    }
}

#[tokio::test]
async fn a_slow_machine_is_powering_off_until_it_is_off() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    bench.set(&json!({ "off_takes_ms": 60_000, "command_status": 202, "task": true }));
    assert_eq!(driver.force_off(&member, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    assert_eq!(driver.power_state(&member).await.unwrap().power, Shown::PoweringOff);
    bench.machines[0].set(Power::Off);
    assert_eq!(driver.power_state(&member).await.unwrap().power, Shown::PoweringOff, "as the BMC says");
}

#[tokio::test]
async fn an_off_machine_that_refuses_the_command_is_still_read_as_off() {
    for status in [400, 409] {
        let bench = Bench::ours();
        let (mut driver, member) = (bench.driver(), bench.member());
        bench.set(&json!({ "off_when_off": status }));
        bench.machines[0].set(Power::Off);
        driver.identify().await.unwrap();
        let answer = driver.force_off(&member, &|| true, DEADLINE).await.unwrap();
        assert_eq!(kind(&answer), Kind::Refused, "{answer:?}");
        assert_eq!(driver.power_state(&member).await.unwrap().power, Shown::Off);
    }
}

#[tokio::test]
async fn force_off_cancels_a_power_on_under_way() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    bench.machines[0].set(Power::Off);
    bench.set(&json!({ "on_takes_ms": 400, "transitional": false }));
    driver.identify().await.unwrap();
    assert_eq!(driver.power_on(&member, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    assert_eq!(driver.power_state(&member).await.unwrap().power, Shown::Off, "nothing tells it");
    assert_eq!(driver.force_off(&member, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!((bench.machines[0].power(), bench.machines[0].changes().len()), (Power::Off, 1));
}

#[tokio::test]
async fn only_force_off_is_ever_sent_whatever_the_bmc_lists() {
    let without = ["On", "PushPowerButton", "GracefulShutdown", "ForceRestart", "PowerCycle"];
    let table = [
        (json!({ "allowable": without }), Some(without.len()), Kind::Refused),
        (json!({ "allowable_in": "in_action_info" }), Some(6), Kind::Accepted),
        (json!({ "allowable_in": "nowhere" }), None, Kind::Accepted),
    ];
    for (knobs, listed, want) in table {
        let bench = Bench::ours();
        let (mut driver, member) = (bench.driver(), bench.member());
        bench.set(&knobs);
        driver.identify().await.unwrap();
        let types = driver.reset_types(&member).await.unwrap();
        assert_eq!(types.map(|types| types.len()), listed, "{knobs}");
        let answer = driver.force_off(&member, &|| true, DEADLINE).await.unwrap();
        assert_eq!(kind(&answer), want, "{knobs} {answer:?}");
        assert_eq!(bench.resets(), ["ForceOff"], "{knobs}");
    }
}

#[tokio::test]
async fn the_advertised_target_is_used_and_one_outside_the_member_is_not() {
    let oem = "/redfish/v1/Systems/1/Actions/Oem/Lab.Reset";
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    bench.set(&json!({ "reset_target": oem }));
    driver.identify().await.unwrap();
    assert_eq!(driver.force_off(&member, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    bench.until(Power::Off).await;
    assert!(bench.requests().iter().any(|entry| entry.method == "POST" && entry.path == oem));
    for outside in
        ["/redfish/v1/Systems/2/Actions/ComputerSystem.Reset", "https://127.0.0.2/x", "//127.0.0.2/x"]
    {
        let bench = Bench::ours();
        let mut driver = bench.driver();
        bench.set(&json!({ "reset_target": outside }));
        driver.identify().await.unwrap();
        let error = failed(driver.force_off(&member, &|| true, DEADLINE).await, outside);
        assert!(["no-target", "cross-origin"].contains(&error.class()), "{error:?}");
        assert_eq!((bench.resets().len(), bench.machines[0].power()), (0, Power::On));
    }
}

#[tokio::test]
async fn a_redirected_command_reaches_no_other_origin_and_is_not_taken_for_accepted() {
    let (bench, other) = (Bench::ours(), Bench::ours());
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    for code in [301, 302, 303, 307, 308] {
        let to = format!("https://{}{{path}}", other.address);
        let fault = json!({ "redirect": { "code": code, "to": to } });
        bench.set(&json!({ "rules": [{ "method": "POST", "path": RESET, "fault": fault }] }));
        match driver.force_off(&member, &|| true, DEADLINE).await {
            Ok(answer) => assert_ne!(kind(&answer), Kind::Accepted, "{code}"),
            Err(error) => assert!(["redirect", "cross-origin"].contains(&error.class()), "{error:?}"),
        }
        assert_eq!((other.requests(), bench.machines[0].power()), (vec![], Power::On), "{code}");
    }
    // These turn a POST into a GET, whose 200 would look like an accepted command; not even within the origin.
    for (code, to) in
        [301, 302, 303].into_iter().flat_map(|code| [(code, member.as_str()), (code, "{path}/")])
    {
        let fault = json!({ "redirect": { "code": code, "to": to } });
        bench.set(&json!({ "rules": [{ "method": "POST", "path": RESET, "fault": fault }] }));
        if let Ok(answer) = driver.force_off(&member, &|| true, DEADLINE).await {
            assert_ne!(kind(&answer), Kind::Accepted, "{code} {to}");
        }
        assert_eq!(bench.machines[0].power(), Power::On, "{code} {to}");
    }
}

#[tokio::test]
async fn a_command_redirected_to_the_same_path_with_a_slash_arrives_once_and_whole() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    let fault = json!({ "redirect": { "code": 308, "to": "{path}/" } });
    let path = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
    bench.set(&json!({ "rules": [{ "method": "POST", "path": path, "fault": fault }] }));
    assert_eq!(driver.force_off(&member, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    bench.until(Power::Off).await;
    let carried_out = bench.requests().iter().filter(|entry| entry.true_power.is_some()).count();
    assert_eq!((carried_out, bench.resets().len()), (1, 2), "the redirected one and the one that arrived");
}

#[tokio::test]
async fn a_command_whose_session_has_died_is_sent_over_a_new_one_after_the_member_was_read_again() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    bench.emulator().bmc("n1").unwrap().with_sessions(|sessions, _| sessions.clear());
    assert_eq!(driver.force_off(&member, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    bench.until(Power::Off).await;
    let requests = bench.requests();
    let sent = requests.iter().rposition(|entry| entry.path.ends_with("ComputerSystem.Reset")).unwrap();
    let read = requests.iter().rposition(|entry| entry.method == "GET" && entry.path == member).unwrap();
    assert!(read < sent, "{requests:#?}");
    assert_eq!(requests[read].session, requests[sent].session, "read and sent in one session");
}

#[tokio::test]
async fn a_member_that_became_another_machine_since_it_was_identified_gets_no_command() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    bench.emulator().bmc("n1").unwrap().with_sessions(|sessions, _| sessions.clear());
    bench.set(&json!({ "members": [{ "id": "1", "of": "n2" }] }));
    let error = failed(driver.force_off(&member, &|| true, DEADLINE).await, "another machine");
    assert!(matches!(error, BmcError::Changed { .. }), "{error:?}");
    // The one over the dead session was refused; none went over the new one.
    let statuses: Vec<u16> =
        bench.requests().iter().filter(|e| e.path.ends_with("Reset")).map(|e| e.status).collect();
    assert_eq!((statuses, bench.machines[1].power()), (vec![401], Power::On));
}

#[tokio::test]
async fn a_command_ends_with_its_own_deadline_not_with_the_patience_for_other_requests() {
    let bench = Bench::ours();
    let mut driver = bench.driver_with(|settings| {
        (settings.timeouts.first_byte, settings.timeouts.request) = (Span::from_mins(1), Span::from_mins(1));
    });
    driver.identify().await.unwrap();
    bench.set(&json!({ "rules": [{ "method": "POST", "path": RESET, "fault": "hang" }] }));
    let member = bench.member();
    let sent = driver.force_off(&member, &|| true, Span::from_ms(300));
    let answer =
        tokio::time::timeout(Duration::from_secs(6), sent).await.expect("it outlived its deadline").unwrap();
    assert_eq!(kind(&answer), Kind::Unknown, "{answer:?}");
}

#[tokio::test]
async fn a_dropped_command_is_sent_at_most_once_and_the_driver_goes_on() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    bench.set(&json!({ "rules": [{ "method": "POST", "path": RESET, "fault": "hang" }] }));
    let dropped =
        tokio::time::timeout(Duration::from_millis(300), driver.force_off(&member, &|| true, DEADLINE)).await;
    assert!(dropped.is_err(), "it should have hung");
    bench.reset_knobs();
    assert_eq!(driver.power_state(&member).await.unwrap().power, Shown::On);
    assert_eq!(bench.resets(), ["ForceOff"]);
}
