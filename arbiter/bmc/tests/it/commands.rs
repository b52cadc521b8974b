//! Power commands: the right one, to the right place, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coroner_bmc::{Bmc, BmcError};
use coroner_shared::bmc::{CommandAnswer, Login};
use coroner_shared::time::Span;
use tokio::time::Instant;

use crate::machine::*;
use crate::server::{Reply, Then};

#[tokio::test]
async fn force_off_and_on_are_the_only_bodies_there_are() {
    let mut bench = bench(|_, _| None).await;
    bench.bmc.identify().await.unwrap();
    assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    assert_eq!(bench.bmc.power_on(MEMBER, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    let posts: Vec<_> = bench.server.requests().into_iter().filter(|r| r.is("POST", RESET)).collect();
    assert_eq!(posts[0].body, r#"{"ResetType":"ForceOff"}"#);
    assert_eq!(posts[1].body, r#"{"ResetType":"On"}"#);
    assert_eq!(posts[0].header("x-auth-token"), Some("canary-token-1"));
}

#[tokio::test]
async fn the_answer_is_accepted_refused_or_unknown_by_its_status_alone() {
    let accepted = |_: &str| CommandAnswer::Accepted;
    let refused = |why: &str| CommandAnswer::Refused { why: why.to_owned() };
    let unknown = |why: &str| CommandAnswer::Unknown { why: why.to_owned() };
    let error =
        r#"{"error":{"@Message.ExtendedInfo":[{"MessageId":"IDRAC.2.8.PSU501","Message":"already off"}]}}"#;
    let html = Reply::raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 8\r\n\r\nLog in!!");
    for (reply, answer) in [
        (Reply::status(200), accepted("")),
        (
            Reply::json(202, &[("Location", "/redfish/v1/TaskService/Tasks/1")], r#"{"TaskState":"New"}"#),
            accepted(""),
        ),
        (Reply::status(202), accepted("")),
        (Reply::raw("HTTP/1.1 204 No Content\r\n\r\n"), accepted("")),
        (html, unknown("HTTP 200 with a body that is not JSON")),
        (
            Reply::json(400, &[], r#"{"error":{"@Message.ExtendedInfo":{"MessageID":"iLO.0.10.X"}}}"#),
            refused("HTTP 400 iLO.0.10.X"),
        ),
        (Reply::json(409, &[], error), refused("HTTP 409 IDRAC.2.8.PSU501")),
        (Reply::status(403), refused("HTTP 403")),
        (Reply::status(404), refused("HTTP 404")),
        (Reply::status(412), refused("HTTP 412")),
        (Reply::status(408), unknown("HTTP 408")),
        (Reply::status(425), unknown("HTTP 425")),
        (Reply::status(429), unknown("HTTP 429")),
        (Reply::status(500), unknown("HTTP 500")),
        (Reply::json(503, &[], error), unknown("HTTP 503 IDRAC.2.8.PSU501")),
        (Reply::status(201), unknown("HTTP 201")),
    ] {
        let mut bench = bench(move |_, r| r.is("POST", RESET).then(|| reply.clone())).await;
        bench.bmc.identify().await.unwrap();
        assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap(), answer);
        assert_eq!(bench.server.count("POST", RESET), 1, "never repeated: {answer:?}");
    }
}

#[tokio::test]
async fn a_command_whose_answer_is_lost_is_unknown_and_not_repeated() {
    for reply in [
        Reply::raw("").then(Then::Close),
        Reply::raw("").then(Then::Cut),
        Reply::raw("HTTP/1.1 204").then(Then::Cut),
        Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{").then(Then::Close),
        Reply::raw("garbage\r\n\r\n"),
    ] {
        let mut bench = bench(move |_, r| r.is("POST", RESET).then(|| reply.clone())).await;
        bench.bmc.identify().await.unwrap();
        let answer = bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap();
        assert!(matches!(answer, CommandAnswer::Unknown { .. }), "{answer:?}");
        assert_eq!(bench.server.count("POST", RESET), 1);
    }
}

#[tokio::test]
async fn the_socket_dies_with_the_deadline() {
    let mut bench = bench(|_, r| r.is("POST", RESET).then(|| Reply::raw("").then(Then::Hang))).await;
    bench.bmc.identify().await.unwrap();
    let begun = Instant::now();
    let answer = bench.bmc.force_off(MEMBER, &|| true, Span::from_ms(300)).await.unwrap();
    assert_eq!(answer, CommandAnswer::Unknown { why: "no answer within 300ms".to_owned() });
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(bench.server.ending().await, "ConnectionReset");
    assert_eq!(bench.server.count("POST", RESET), 1);
    assert!(
        matches!(bench.bmc.login(), Some(Login::Session(_))),
        "the session is known to whoever comes next"
    );
}

#[tokio::test]
async fn a_deadline_that_passes_before_anything_was_sent_is_an_error() {
    let mut bench = bench(|m, r| {
        let hang = r.is("GET", MEMBER) && m.state().power == "hang";
        hang.then(|| Reply::raw("").then(Then::Hang))
    })
    .await;
    bench.bmc.identify().await.unwrap();
    bench.machine.state().power = "hang".to_owned();
    bench.machine.state().sessions.clear();
    let error = bench.bmc.force_off(MEMBER, &|| true, Span::from_ms(500)).await.unwrap_err();
    assert_eq!(error.to_string(), "prepare the command (nothing was sent): no answer within 500ms");
    let error = bench.bmc.force_off(MEMBER, &|| true, Span::ZERO).await;
    assert!(matches!(error, Err(BmcError::Timeout { .. })), "{error:?}");
    assert_eq!(bench.server.count("POST", RESET), 1, "the one that met 401");
}

#[tokio::test]
async fn a_member_that_was_not_read_gets_no_command() {
    let mut bench = bench(|_, _| None).await;
    assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap_err().class(), "not-read");
    bench.bmc.identify().await.unwrap();
    assert_eq!(
        bench.bmc.force_off("/redfish/v1/Systems/2", &|| true, DEADLINE).await.unwrap_err().class(),
        "not-read"
    );
    bench.bmc.fresh_session().await.unwrap();
    assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap_err().class(), "not-read");
    assert_eq!(bench.server.count("POST", RESET), 0);
    bench.bmc.power_state(MEMBER).await.unwrap();
    assert!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.is_ok());
}

#[tokio::test]
async fn an_expired_session_is_renewed_once_and_the_machine_looked_at_again() {
    let mut bench = bench(|_, _| None).await;
    bench.bmc.identify().await.unwrap();
    bench.machine.state().sessions.clear();
    assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    let tail: Vec<String> =
        bench.server.requests().iter().rev().take(4).map(|r| format!("{} {}", r.method, r.path)).collect();
    assert_eq!(tail[..2], [format!("POST {RESET}"), format!("GET {MEMBER}")], "{tail:?}");
    assert_eq!(bench.server.count("POST", RESET), 2, "one met 401 and did nothing");

    // The address now leads to another machine.
    bench.machine.state().sessions.clear();
    bench.machine.state().uuid = "ffffffff-4455-6677-8899-aabbccddeeff".to_owned();
    let error = bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap_err();
    assert_eq!(error.class(), "changed", "{error}");
    assert_eq!(bench.server.count("POST", RESET), 3, "again only the one that met 401");
    assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap_err().class(), "not-read");
}

#[tokio::test]
async fn a_command_that_meets_401_twice_ends_there() {
    let mut bench = bench(|_, r| r.is("POST", RESET).then(|| Reply::status(401))).await;
    bench.bmc.identify().await.unwrap();
    for _ in 0..2 {
        assert_eq!(
            bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap_err().class(),
            "auth-rejected"
        );
    }
    assert_eq!((bench.server.count("POST", RESET), bench.machine.state().logins), (2, 2));
}

#[tokio::test]
async fn over_basic_a_command_on_a_new_connection_looks_at_the_machine_first() {
    let mut bench = bench(|m, r| {
        m.state().basic = true;
        Some(m.answer(r).then(Then::Close))
    })
    .await;
    bench.bmc.identify().await.unwrap();
    let reads = bench.server.count("GET", MEMBER);
    assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    assert_eq!(bench.server.count("GET", MEMBER), reads + 1);
    assert_eq!(bench.server.count("POST", RESET), 1);
}

#[tokio::test]
async fn the_target_is_the_advertised_one_and_lies_below_the_member() {
    let oem = "/redfish/v1/Systems/1/Actions/Oem/Reset/";
    for (target, class) in [
        (format!(r##"{{"#ComputerSystem.Reset":{{"target":"{oem}"}}}}"##), None),
        (
            r##"{"#ComputerSystem.Reset":{"target":"/redfish/v1/Systems/2/Actions/ComputerSystem.Reset"}}"##
                .to_owned(),
            Some("no-target"),
        ),
        (
            r##"{"#ComputerSystem.Reset":{"target":"/redfish/v1/Systems/10/Actions/ComputerSystem.Reset"}}"##
                .to_owned(),
            Some("no-target"),
        ),
        (
            r##"{"#ComputerSystem.Reset":{"target":"https://elsewhere.example/redfish/v1/Systems/1/x"}}"##
                .to_owned(),
            Some("cross-origin"),
        ),
        (r##"{"#ComputerSystem.Reset":{}}"##.to_owned(), Some("no-target")),
        ("{}".to_owned(), Some("no-target")),
        ("7".to_owned(), Some("no-target")),
    ] {
        let body =
            format!(r#"{{"@odata.id":"{MEMBER}","UUID":"{UUID}","PowerState":"On","Actions":{target}}}"#);
        let mut bench = bench(move |_, r| match r.path.as_str() {
            MEMBER => Some(Reply::json(200, &[], &body)),
            path if path == oem => Some(Reply::status(204)),
            _ => None,
        })
        .await;
        bench.bmc.identify().await.unwrap();
        let outcome = bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await;
        assert_eq!(outcome.as_ref().err().map(BmcError::class), class, "{target}: {outcome:?}");
        let posts =
            bench.server.requests().iter().filter(|r| r.method == "POST" && r.path != SESSIONS).count();
        assert_eq!(posts, usize::from(class.is_none()));
    }
}

#[tokio::test]
async fn a_command_follows_redirects_that_keep_it_and_stay_with_the_member() {
    let slashed = format!("{RESET}/");
    for (status, location, ok) in [
        (308, slashed.clone(), true),
        (307, slashed.clone(), true),
        (301, slashed.clone(), false),
        (302, slashed.clone(), false),
        (303, slashed.clone(), false),
        (308, "https://elsewhere.example/x".to_owned(), false),
        (308, "/redfish/v1/Systems/2/Actions/ComputerSystem.Reset".to_owned(), false),
        (308, RESET.to_owned(), false),
    ] {
        let end = slashed.clone();
        let to = location.clone();
        let mut bench = bench(move |_, r| match r.path.as_str() {
            RESET => Some(Reply::redirect(status, &to)),
            path if path == end && r.method == "POST" => Some(Reply::status(204)),
            _ => None,
        })
        .await;
        bench.bmc.identify().await.unwrap();
        let answer = bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap();
        assert_eq!(answer == CommandAnswer::Accepted, ok, "{status} {location}: {answer:?}");
        assert!(ok || matches!(answer, CommandAnswer::Unknown { .. }), "{answer:?}");
        for request in bench.server.requests().iter().filter(|r| r.method == "POST" && r.path != SESSIONS) {
            assert!(request.path.starts_with(RESET), "{request:?}");
            assert_eq!(request.body, r#"{"ResetType":"ForceOff"}"#);
        }
    }
}

#[tokio::test]
async fn a_dropped_command_is_reset_and_the_next_call_is_well() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let mut bench = bench(move |_, r| {
        (r.is("POST", RESET) && seen.fetch_add(1, Ordering::Relaxed) == 0)
            .then(|| Reply::raw("").then(Then::Hang))
    })
    .await;
    bench.bmc.identify().await.unwrap();
    let call = bench.bmc.force_off(MEMBER, &|| true, DEADLINE);
    assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err());
    assert_eq!(bench.server.ending().await, "ConnectionReset");
    assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
}

#[tokio::test]
async fn reset_types_are_found_inline_in_action_info_or_nowhere() {
    let mut bench = bench(|_, _| None).await;
    let types = bench.bmc.reset_types(MEMBER).await.unwrap().unwrap();
    assert_eq!(types, ["On", "ForceOff", "PushPowerButton"]);
    let info = r#"{"Parameters":[{"Name":"Other","AllowableValues":["x"]},{"Name":"ResetType","AllowableValues":["ForceOff",7]}]}"#;
    for (action, types) in [
        (
            format!(r#"{{"target":"{RESET}","@Redfish.ActionInfo":"{MEMBER}/ResetActionInfo"}}"#),
            Some(vec!["ForceOff".to_owned()]),
        ),
        (format!(r#"{{"target":"{RESET}"}}"#), None),
    ] {
        let body = format!(r##"{{"@odata.id":"{MEMBER}","Actions":{{"#ComputerSystem.Reset":{action}}}}}"##);
        let mut bench = crate::machine::bench(move |_, r| match r.path.as_str() {
            MEMBER => Some(Reply::json(200, &[], &body)),
            "/redfish/v1/Systems/1/ResetActionInfo" => Some(Reply::json(200, &[], info)),
            _ => None,
        })
        .await;
        assert_eq!(bench.bmc.reset_types(MEMBER).await.unwrap(), types);
        assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    }
}
