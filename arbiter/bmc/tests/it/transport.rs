//! HTTP rules: limits, deadlines, redirects, dead connections.

use std::time::Duration;

use coroner_bmc::{Bmc, BmcError, Stage, Timeouts};
use coroner_shared::bmc::{CommandAnswer, Power};
use coroner_shared::time::Span;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::identity::Identity;
use crate::machine::*;
use crate::server::{Reply, Then};

/// What a reading says when the member's answer is `reply`.
async fn reading(reply: Reply) -> (Bench, Result<Power, BmcError>) {
    let mut bench = bench_with(
        |s| s.timeouts = Timeouts { request: Span::from_secs(3), connect: Span::from_secs(3), ..short() },
        move |_, r| r.is("GET", MEMBER).then(|| reply.clone()),
    )
    .await;
    let outcome = bench.bmc.power_state(MEMBER).await.map(|reading| reading.power);
    (bench, outcome)
}

fn raw(head: &str, body: &str) -> Reply {
    Reply::raw(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{head}\r\n{body}"))
}

#[tokio::test]
async fn nothing_listening_and_nothing_answering_are_told_apart() {
    let identity = Identity::issued();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = driver(settings(closed, identity.ca(None))).identify().await.unwrap_err();
    assert_eq!(error.class(), "connection-refused", "{error}");

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings(silent.local_addr().unwrap().port(), identity.ca(None));
    settings.timeouts = short();
    settings.timeouts.connect = Span::from_ms(300);
    let error = driver(settings.clone()).identify().await.unwrap_err();
    assert!(matches!(error, BmcError::Timeout { stage: Stage::Tls, .. }), "{error}");

    settings.address = "bmc.invalid".to_owned();
    let error = driver(settings).identify().await.unwrap_err();
    assert!(matches!(error.class(), "resolve" | "timeout"), "{}", error.full());
}

#[tokio::test]
async fn an_answer_that_never_comes_or_never_ends_costs_its_deadline_and_no_more() {
    let begun = Instant::now();
    let (_b, outcome) = reading(Reply::raw("").then(Then::Hang)).await;
    assert!(matches!(outcome, Err(BmcError::Timeout { stage: Stage::FirstByte, .. })), "{outcome:?}");
    let (_b, outcome) =
        reading(Reply::raw("HTTP/1.1 200 OK\r\nX: y").then(Then::Drip(Duration::from_millis(50)))).await;
    assert!(matches!(outcome, Err(BmcError::Timeout { stage: Stage::FirstByte, .. })), "{outcome:?}");
    let (bench, outcome) =
        reading(raw("Content-Length: 9999\r\n", "{  ").then(Then::Drip(Duration::from_millis(50)))).await;
    assert!(matches!(outcome, Err(BmcError::Timeout { stage: Stage::Body, .. })), "{outcome:?}");
    assert_eq!(bench.server.count("GET", MEMBER), 1, "a late answer is no reason to ask twice");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_is_too_large_is_given_up_when_it_passes_the_limit() {
    let piece = format!("3e8\r\n{}\r\n", " ".repeat(1000));
    let header = format!("X-Flood: {}\r\n", "a".repeat(990));
    for (what, reply) in [
        ("announced", raw("Content-Length: 1048577\r\n", "{")),
        ("chunks", raw("Transfer-Encoding: chunked\r\n", &piece.repeat(1100)).then(Then::Hang)),
        ("no length", raw("Connection: close\r\n", &" ".repeat(1000)).then(Then::Flood)),
        ("headers", Reply::raw(format!("HTTP/1.1 200 OK\r\n{header}")).then(Then::Flood)),
        ("fields", raw(&"X: y\r\n".repeat(200), "")),
        (
            "trailers",
            raw("Transfer-Encoding: chunked\r\n", &format!("2\r\n{{}}\r\n0\r\n{}", header.repeat(99))),
        ),
    ] {
        let (_bench, outcome) = reading(reply).await;
        let class = outcome.as_ref().unwrap_err().class();
        if what == "trailers" {
            assert!(matches!(class, "too-large" | "connection-broken"), "{what}: {outcome:?}");
        } else {
            assert_eq!(class, "too-large", "{what}: {outcome:?}");
        }
    }
    let full = format!(r#"{{"@odata.id":"{MEMBER}","PowerState":"Off","x":"{}"}}"#, "x".repeat(1_000_000));
    assert_eq!(reading(Reply::json(200, &[], &full)).await.1.unwrap(), Power::Off);
}

#[tokio::test]
async fn a_reading_needs_status_200_json_and_a_whole_body() {
    let off = format!(r#"{{"@odata.id":"{MEMBER}","PowerState":"Off"}}"#);
    let length = off.len();
    let typed = format!("Content-Length: {length}\r\n");
    for (reply, class) in [
        (Reply::json(206, &[], &off), "http-status"),
        (Reply::json(304, &[], &off), "http-status"),
        (Reply::json(500, &[], &off), "http-status"),
        (raw(&format!("Content-Length: {}\r\n", length + 1), &off).then(Then::Close), "connection-broken"),
        (raw("Connection: close\r\n", &off).then(Then::Cut), "connection-broken"),
        (
            raw("Transfer-Encoding: chunked\r\n", &format!("{length:x}\r\n{off}\r\n")).then(Then::Close),
            "connection-broken",
        ),
        (raw(&format!("Content-Encoding: gzip\r\n{typed}"), &off), "malformed"),
        (Reply::raw(format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{typed}\r\n{off}")), "malformed"),
        (Reply::raw("220 ftp ready\r\n\r\n"), "connection-broken"),
        (Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}"), "connection-broken"),
        (Reply::json(200, &[], &"[".repeat(100_000)), "too-deep"),
        (Reply::raw("").then(Then::Close), "connection-broken"),
    ] {
        let shown = String::from_utf8_lossy(&reply.bytes[..reply.bytes.len().min(120)]).into_owned();
        let (_bench, outcome) = reading(reply).await;
        assert_eq!(outcome.as_ref().map_err(BmcError::class), Err(class), "{shown}: {outcome:?}");
    }
    let untyped = Reply::raw(format!("HTTP/1.1 200 OK\r\n{typed}\r\n{off}"));
    assert_eq!(reading(untyped).await.1.unwrap(), Power::Off);
}

#[tokio::test]
async fn retry_after_is_told_within_reason() {
    let (_bench, outcome) = reading(Reply::json(503, &[("Retry-After", "99999")], "{}")).await;
    let error = outcome.unwrap_err();
    assert!(error.to_string().ends_with("HTTP 503, retry after 30.00s"), "{error}");
}

#[tokio::test]
async fn redirects_are_followed_twice_and_only_at_home() {
    for (status, location, class) in [
        (308, "/redfish/v1/Systems/1/", None),
        (301, "/redfish/v1/Systems/1/", None),
        (302, "SELF/redfish/v1/Systems/1/", None),
        (302, "http://127.0.0.1/redfish/v1/Systems/1/", Some("cross-origin")),
        (302, "https://127.0.0.1:1/redfish/v1/Systems/1/", Some("cross-origin")),
        (307, "//127.0.0.2/redfish/v1/Systems/1/", Some("cross-origin")),
        (302, "Systems/1/", Some("redirect")),
        (302, "", Some("redirect")),
        (302, "/redfish/v1/Systems/1", Some("redirect")),
    ] {
        let mut bench = bench(move |m, r| match r.path.as_str() {
            MEMBER => {
                let here = format!("https://{}", r.header("host").unwrap());
                Some(Reply::redirect(status, &location.replace("SELF", &here)))
            }
            "/redfish/v1/Systems/1/" => Some(Reply::json(200, &[], &m.system())),
            _ => None,
        })
        .await;
        let outcome = bench.bmc.power_state(MEMBER).await;
        assert_eq!(outcome.as_ref().err().map(BmcError::class), class, "{location}: {outcome:?}");
        assert!(bench.server.count("GET", MEMBER) <= 3);
    }
}

#[tokio::test]
async fn the_entry_point_is_tried_with_and_without_its_slash() {
    let mut bench = bench(|m, r| match r.path.as_str() {
        ROOT => Some(Reply::status(404)),
        "/redfish/v1" => Some(m.answer(&crate::server::Request { path: ROOT.to_owned(), ..r.clone() })),
        _ => None,
    })
    .await;
    assert!(bench.bmc.identify().await.is_ok());
}

#[tokio::test]
async fn a_connection_that_idled_to_its_death_is_replaced_without_a_second_command() {
    let mut bench = bench(|m, r| Some(m.answer(r).then(Then::Close))).await;
    bench.bmc.identify().await.unwrap();
    for _ in 0..3 {
        assert_eq!(bench.bmc.power_state(MEMBER).await.unwrap().power, Power::On);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let answer = bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap();
    assert_eq!(answer, CommandAnswer::Accepted);
    assert_eq!(bench.server.count("POST", RESET), 1);
    assert_eq!(bench.machine.state().logins, 1, "the session outlives its connections");
}

#[tokio::test]
async fn a_dropped_call_costs_its_connection_and_not_the_session() {
    let mut bench = bench(|m, r| {
        let hang = r.is("GET", MEMBER) && m.state().power == "hang";
        hang.then(|| Reply::raw("").then(Then::Hang))
    })
    .await;
    bench.bmc.identify().await.unwrap();
    bench.machine.state().power = "hang".to_owned();
    let call = bench.bmc.power_state(MEMBER);
    assert!(tokio::time::timeout(Duration::from_millis(200), call).await.is_err());
    assert_eq!(bench.server.ending().await, "ConnectionReset");
    bench.machine.state().power = "On".to_owned();
    assert_eq!(bench.bmc.power_state(MEMBER).await.unwrap().power, Power::On);
    assert_eq!((bench.machine.state().logins, bench.server.connections()), (1, 2));
}

#[tokio::test]
async fn closing_is_polite() {
    // The server waits for what follows its answer to the log-out: close_notify, not a reset.
    let mut bench = bench(|m, r| (r.method == "DELETE").then(|| m.answer(r).then(Then::Hang))).await;
    bench.bmc.identify().await.unwrap();
    bench.bmc.close().await.unwrap();
    assert_eq!(bench.server.ending().await, "closed");
}
