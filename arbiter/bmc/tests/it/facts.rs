//! What is read, and how.

use std::time::Duration;

use coroner_bmc::{Bmc, Quirk, Redfish};
use coroner_shared::bmc::{Login, MemberRead, Power, PowerReading};
use coroner_shared::hex::Hex;

use crate::machine::*;
use crate::server::{Reply, Then};

#[tokio::test]
async fn a_plain_bmc_is_identified_read_switched_off_and_left_without_a_trace() {
    let Bench { machine, server, mut bmc, identity } = bench(|_, _| None).await;
    assert_eq!(bmc.login(), None);
    let facts = bmc.identify().await.unwrap();
    assert_eq!(facts.members.len(), 1);
    assert_eq!(facts.members[0].path, MEMBER);
    let read = MemberRead::Read { uuid: Some(UUID.to_owned()), serial: Some("S1".to_owned()) };
    assert_eq!(facts.members[0].read, read);
    assert_eq!(facts.manager_uuid.as_deref(), Some("manager"));
    assert_eq!(facts.tls_key_sha256, Some(Hex(&identity.key_sha256).to_string()));
    assert_eq!(bmc.certificate().unwrap().key_sha256, facts.tls_key_sha256);
    assert_eq!(bmc.login(), Some(Login::Session(format!("{SESSIONS}/1"))));
    let reading = bmc.power_state(MEMBER).await.unwrap();
    assert_eq!((reading.power, reading.uuid.as_deref()), (Power::On, Some(UUID)));
    bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap();
    assert_eq!(bmc.power_state(MEMBER).await.unwrap().power, Power::Off);
    bmc.close().await.unwrap();
    assert_eq!(bmc.login(), None);
    assert!(machine.state().sessions.is_empty(), "the session was deleted");
    assert_eq!(server.connections(), 1, "one warm connection");

    for request in server.requests() {
        assert_eq!(request.header("odata-version"), Some("4.0"));
        assert_eq!(request.header("accept"), Some("application/json"));
        assert_eq!(request.header("host"), Some(format!("127.0.0.1:{}", server.port).as_str()));
        assert_eq!(request.header("content-type").is_some(), request.method == "POST");
        let open = request.is("GET", ROOT) || request.is("POST", SESSIONS);
        assert_eq!(request.header("x-auth-token").is_none(), open, "{request:?}");
        for absent in ["if-match", "if-none-match", "if-modified-since", "accept-encoding", "authorization"] {
            assert_eq!(request.header(absent), None, "{request:?}");
        }
    }
}

#[tokio::test]
async fn the_body_must_be_the_resource_that_was_asked_for_and_say_each_thing_once() {
    for (body, class) in [
        (r#"{"@odata.id":"/redfish/v1/Systems/2","PowerState":"Off"}"#, "wrong-resource"),
        (r#"{"PowerState":"Off"}"#, "wrong-resource"),
        (r#"{"@odata.id":"/redfish/v1/Systems/1","PowerState":"On","PowerState":"Off"}"#, "malformed"),
        (r#"{"@odata.id":"/redfish/v1/Systems/1","PowerState":"Off""#, "malformed"),
        (r#"["Off"]"#, "malformed"),
        (r#""Off""#, "malformed"),
    ] {
        let mut bench = bench(move |_, r| r.is("GET", MEMBER).then(|| Reply::json(200, &[], body))).await;
        assert_eq!(bench.bmc.power_state(MEMBER).await.unwrap_err().class(), class, "{body}");
    }
}

#[tokio::test]
async fn only_the_exact_text_off_is_off_and_odd_values_hide_nothing_else() {
    for (state, power) in [
        (r#""Off""#, Power::Off),
        (r#""On""#, Power::On),
        (r#""PoweringOff""#, Power::PoweringOff),
        (r#""off""#, Power::Other("off".to_owned())),
        ("null", Power::Other("missing".to_owned())),
        ("0", Power::Other("missing".to_owned())),
        (r#"["Off"]"#, Power::Other("missing".to_owned())),
    ] {
        let body = format!(
            r#"{{"@odata.id":"{MEMBER}/","UUID":7,"SerialNumber":{{}},"Links":1,"PowerState":{state}}}"#
        );
        let mut bench = bench(move |_, r| r.is("GET", MEMBER).then(|| Reply::json(200, &[], &body))).await;
        let reading = bench.bmc.power_state(MEMBER).await.unwrap();
        assert_eq!((reading.power, reading.uuid), (power, None), "{state}");
    }
}

#[tokio::test]
async fn a_member_that_cannot_be_read_stays_in_the_list_beside_those_that_can() {
    let members = r#"{"Members@odata.count":0,"Members":[{"@odata.id":"/redfish/v1/Systems/off"},
        {"@odata.id":"https://elsewhere.example/redfish/v1/Systems/1"},{"@odata.id":"/redfish/v1/Systems/1"},
        {"@odata.id":7},{}],"Members@odata.nextLink":"/redfish/v1/Systems?$skip=5"}"#;
    let mut bench = bench(move |_, r| match r.path.as_str() {
        SYSTEMS => Some(Reply::json(200, &[], members)),
        "/redfish/v1/Systems?$skip=5" => {
            Some(Reply::json(200, &[], r#"{"Members":[{"@odata.id":"/redfish/v1/Systems/html"}]}"#))
        }
        "/redfish/v1/Systems/off" => {
            Some(Reply::json(503, &[("Retry-After", "7")], r#"{"error":{"code":"Base.1.0.Busy"}}"#))
        }
        "/redfish/v1/Systems/html" => {
            Some(Reply::raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\nOff"))
        }
        _ => None,
    })
    .await;
    let facts = bench.bmc.identify().await.unwrap();
    let paths: Vec<&str> = facts.members.iter().map(|m| m.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/redfish/v1/Systems/off",
            "https://elsewhere.example/redfish/v1/Systems/1",
            MEMBER,
            "",
            "",
            "/redfish/v1/Systems/html"
        ]
    );
    let why: Vec<Option<&str>> = facts
        .members
        .iter()
        .map(|m| match &m.read {
            MemberRead::Read { .. } => None,
            MemberRead::Unreadable { why } => Some(why.as_str()),
        })
        .collect();
    assert_eq!(why[0], Some("GET /redfish/v1/Systems/off: HTTP 503 Base.1.0.Busy, retry after 7.00s"));
    assert!(why[1].unwrap().starts_with("link to another origin"), "{why:?}");
    assert_eq!(why[2], None);
    assert!(why[5].unwrap().contains("media type text/html"), "{why:?}");
}

#[tokio::test]
async fn a_collection_without_end_is_refused() {
    let mut bench = bench(|_, r| {
        r.path.starts_with(SYSTEMS).then(|| {
            Reply::json(200, &[], &format!(r#"{{"Members":[],"Members@odata.nextLink":"{SYSTEMS}?x"}}"#))
        })
    })
    .await;
    assert_eq!(bench.bmc.identify().await.unwrap_err().class(), "too-large");
}

#[tokio::test]
async fn the_managers_uuid_never_changes_its_source_because_of_a_failed_read() {
    let mut bench = bench(|_, r| r.is("GET", MANAGER).then(|| Reply::status(503))).await;
    assert_eq!(bench.bmc.identify().await.unwrap().manager_uuid, None);
    // A service without Managers has only its own.
    let mut bench = crate::machine::bench(|m, r| {
        m.state().basic = true;
        let body = m.system().replace("ManagedBy", "Other");
        r.is("GET", MEMBER).then(|| Reply::json(200, &[], &body))
    })
    .await;
    assert_eq!(bench.bmc.identify().await.unwrap().manager_uuid.as_deref(), Some("root"));
}

async fn read(bmc: &mut Redfish) -> PowerReading {
    bmc.power_state(MEMBER).await.unwrap()
}

#[tokio::test]
async fn readings_over_one_connection_are_continuous_and_a_restart_breaks_them() {
    let Bench { machine, server, mut bmc, .. } = bench(|_, _| None).await;
    let first = read(&mut bmc).await;
    let second = read(&mut bmc).await;
    assert_eq!(first.continuity, second.continuity);
    assert!(first.continuity.session.is_some() && first.continuity.connection.is_some());
    assert_eq!(first.continuity.reset_time.as_deref(), Some("2024-01-01T00:00:00Z"));
    assert_eq!(server.count("GET", MANAGER), 1, "the same connection shows that nothing restarted");
    assert_eq!(server.count("GET", MEMBER), 2, "each reading is a request of its own");
    // The BMC restarts: sessions gone, connection gone (it answers 401 and closes).
    machine.state().sessions.clear();
    machine.state().reset_time = Some("2024-01-02T00:00:00Z".to_owned());
    bmc.close().await.unwrap();
    let third = read(&mut bmc).await;
    assert!(!third.continuity.unbroken_since(&second.continuity));
    assert_ne!(third.continuity.session, second.continuity.session);
}

#[tokio::test]
async fn over_new_connections_the_reset_time_is_read_each_time_and_its_loss_counts() {
    let Bench { machine, mut bmc, .. } = bench(|m, r| {
        let gone = r.is("GET", MANAGER) && m.state().reset_time.as_deref() == Some("gone");
        Some(if gone { Reply::status(503) } else { m.answer(r) }.then(Then::Close))
    })
    .await;
    let first = read(&mut bmc).await;
    let second = read(&mut bmc).await;
    assert_eq!(first.continuity.session, second.continuity.session);
    assert_ne!(first.continuity.connection, second.continuity.connection);
    assert!(second.continuity.unbroken_since(&first.continuity));
    machine.state().reset_time = Some("later".to_owned());
    let third = read(&mut bmc).await;
    assert!(!third.continuity.unbroken_since(&second.continuity), "restarted, though the token lives on");
    machine.state().reset_time = Some("gone".to_owned());
    let fourth = read(&mut bmc).await;
    assert_eq!((fourth.continuity.session, fourth.continuity.reset_time.clone()), (None, None));
    assert!(!fourth.continuity.unbroken_since(&third.continuity));
}

#[tokio::test]
async fn a_token_shows_nothing_where_sessions_survive_a_restart() {
    let quirk = |s: &mut coroner_bmc::RedfishSettings| {
        s.quirks = [Quirk::SessionsSurviveRestart].into_iter().collect();
    };
    let mut bench = bench_with(quirk, |_, _| None).await;
    let reading = read(&mut bench.bmc).await;
    assert_eq!(reading.continuity.session, None);
    assert!(reading.continuity.connection.is_some());
    assert!(!bench.bmc.fresh_session().await.unwrap().old_session_alive);
}

#[tokio::test]
async fn numbers_are_never_shared_by_two_drivers() {
    let Bench { server, mut bmc, identity, .. } = bench(|_, _| None).await;
    let mut other = driver(settings(server.port, identity.ca(None)));
    let (a, b) = (read(&mut bmc).await.continuity, read(&mut other).await.continuity);
    assert_ne!(a.session, b.session);
    assert_ne!(a.connection, b.connection);
}

#[tokio::test]
async fn took_is_the_time_of_the_request() {
    let mut bench = bench(|_, _| None).await;
    bench.bmc.identify().await.unwrap();
    let took = Duration::from(read(&mut bench.bmc).await.took);
    assert!(took < Duration::from_secs(5), "{took:?}");
}
