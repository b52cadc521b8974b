//! Answers that a BMC should not give, and identities that no one can use: each is shown as it is or is an error of
//! its class, never a panic, never Off, and the driver goes on afterwards.

use coroner_bmc::{Bmc, BmcError, PinOf, Quirk, RedfishSettings};
use coroner_shared::bmc::{MemberRead, Power as Shown};
use coroner_shared::time::Span;
use coroner_tests::lab::emulator::control::Command;
use coroner_tests::lab::emulator::machine::Power;
use serde_json::{Value, json};

use crate::bench::{Bench, UUIDS, failed, pin};

/// Settings for tests that wait for a time-out.
fn hasty(settings: &mut RedfishSettings) {
    settings.timeouts.connect = Span::from_ms(500);
    settings.timeouts.first_byte = Span::from_ms(500);
    settings.timeouts.request = Span::from_ms(1000);
    settings.timeouts.log_out = Span::from_ms(500);
}

#[tokio::test]
async fn every_power_state_is_shown_as_it_is_and_only_off_is_off() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    let other = |text: &str| Shown::Other(text.to_owned());
    let constant = |value: &str| json!({ "power": { "constant": { "value": value, "for_ms": null } } });
    let table = [
        (constant("Off"), Shown::Off),
        (constant("On"), Shown::On),
        (constant("PoweringOff"), Shown::PoweringOff),
        (constant("PoweringOn"), Shown::PoweringOn),
        (constant("Paused"), Shown::Paused),
        (constant("Reset"), other("Reset")),
        (constant("Unknown"), other("Unknown")),
        (constant("off"), other("off")),
        (constant("Off "), other("Off ")),
        (constant(""), other("")),
        (json!({ "power": "null" }), other("missing")),
        (json!({ "power": "missing" }), other("missing")),
    ];
    for (knobs, want) in table {
        bench.set(&knobs);
        assert_eq!(driver.power_state(&member).await.unwrap().power, want, "{knobs}");
    }
}

#[tokio::test]
async fn a_bad_answer_is_an_error_of_its_class_and_the_next_good_one_counts() {
    let bench = Bench::ours();
    let (mut driver, member) = (bench.driver_with(hasty), bench.member());
    driver.identify().await.unwrap();
    let elsewhere = "https://127.0.0.2:1{path}";
    let table: [(Value, &[&str]); 21] = [
        (json!({ "status": { "code": 400 } }), &["http-status"]),
        (json!({ "status": { "code": 403 } }), &["http-status", "auth-rejected"]),
        (json!({ "status": { "code": 404 } }), &["http-status"]),
        (json!({ "status": { "code": 429, "headers": [["Retry-After", "99999999"]] } }), &["http-status"]),
        (json!({ "status": { "code": 500, "body": { "PowerState": "Off" } } }), &["http-status"]),
        (json!({ "status": { "code": 503 } }), &["http-status"]),
        (json!({ "status": { "code": 204 } }), &["http-status", "malformed"]),
        (json!({ "status": { "code": 200, "body": ["Off"] } }), &["malformed"]),
        (json!({ "huge": 2 * 1024 * 1024 }), &["too-large"]),
        (json!("endless"), &["too-large"]),
        (json!({ "deep": 1000 }), &["too-deep"]),
        (json!({ "deep": 500_000 }), &["too-deep"]),
        (json!("invalid_json"), &["malformed"]),
        (json!("html"), &["malformed"]),
        (json!("truncated"), &["malformed", "connection-broken"]),
        (json!("reset"), &["connection-broken"]),
        (json!("hang"), &["timeout"]),
        (json!({ "drip": 100 }), &["timeout"]),
        (json!({ "redirect": { "code": 308, "to": elsewhere } }), &["cross-origin"]),
        (json!({ "redirect": { "code": 307, "to": "{path}" } }), &["redirect"]),
        (json!({ "patch": { "@odata.id": "/redfish/v1/Systems/2" } }), &["wrong-resource"]),
    ];
    for (fault, classes) in table {
        bench.set(&json!({ "rules": [{ "method": "GET", "path": member, "fault": fault }] }));
        let error = failed(driver.power_state(&member).await, &fault);
        assert!(classes.contains(&error.class()), "{fault}: {} {error:?}", error.class());
        bench.reset_knobs();
        let reading = driver.power_state(&member).await;
        assert_eq!(reading.map(|reading| reading.power).ok(), Some(Shown::On), "after {fault}");
    }
}

#[tokio::test]
async fn a_redirect_within_the_origin_is_followed_and_one_to_another_reaches_nobody() {
    let (bench, other) = (Bench::ours(), Bench::ours());
    let (mut driver, member) = (bench.driver(), bench.member());
    // A slash at the end, as iLO 5 has it (C20).
    for path in ["/redfish/v1/Systems", &member] {
        let fault = json!({ "redirect": { "code": 308, "to": "{path}/" } });
        bench.set(&json!({ "rules": [{ "path": path, "fault": fault }] }));
        driver.identify().await.unwrap();
    }
    for to in [format!("https://{}{{path}}", other.address), format!("//{}{{path}}", other.address)] {
        bench.set(
            &json!({ "rules": [{ "path": member, "fault": { "redirect": { "code": 307, "to": to } } }] }),
        );
        let error = failed(driver.power_state(&member).await, &to);
        assert!(matches!(error, BmcError::CrossOrigin { .. }), "{error:?}");
    }
    assert_eq!(other.requests(), []);
}

#[tokio::test]
async fn a_uuid_is_handed_on_as_it_is_and_what_is_none_is_none() {
    let bench = Bench::ours();
    let mut driver = bench.driver();
    let upper = UUIDS[0].to_ascii_uppercase();
    let table = [
        (json!("right"), Some(UUIDS[0])),
        (json!("upper"), Some(upper.as_str())),
        (json!("swapped"), Some("33221100-5544-7766-8899-aabbccddeeff")),
        (json!("zeros"), Some("00000000-0000-0000-0000-000000000000")),
        (json!("ones"), Some("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF")),
        (json!({ "value": "Not Settable" }), Some("Not Settable")),
        (json!("empty"), Some("")),
        (json!("missing"), None),
        (json!("null"), None),
        (json!({ "value": 7 }), None),
    ];
    for (uuid, want) in table {
        bench.set(&json!({ "uuid": uuid, "serial": "missing" }));
        let facts = driver.identify().await.unwrap();
        let want = MemberRead::Read { uuid: want.map(str::to_owned), serial: None };
        assert_eq!(facts.members.iter().map(|member| &member.read).collect::<Vec<_>>(), [&want], "{uuid}");
    }
}

#[tokio::test]
async fn members_are_listed_in_the_bmcs_order_and_one_that_cannot_be_read_spoils_no_other() {
    let bench = Bench::ours();
    bench.set(&json!({ "members": [
        { "id": "witness", "of": "-", "unreadable": "always" },
        { "id": "B", "of": "n2", "unreadable": "while_off" },
        { "id": "A", "of": "" },
        { "id": "twin/", "of": "-", "uuid": { "value": UUIDS[0] } },
    ] }));
    let mut driver = bench.driver();
    let read = async |driver: &mut coroner_bmc::Redfish| -> Vec<(String, Option<String>)> {
        let members = driver.identify().await.unwrap().members;
        let uuid = |read| match read {
            MemberRead::Read { uuid, .. } => uuid,
            MemberRead::Unreadable { .. } => None,
        };
        members.into_iter().map(|member| (member.path, uuid(member.read))).collect()
    };
    let want = |neighbour: Option<&str>| {
        let uuid = [None, neighbour, Some(UUIDS[0]), Some(UUIDS[0])];
        let paths = ["witness", "B", "A", "twin/"].map(|id| format!("/redfish/v1/Systems/{id}"));
        paths.into_iter().zip(uuid.map(|uuid| uuid.map(str::to_owned))).collect::<Vec<_>>()
    };
    assert_eq!(read(&mut driver).await, want(Some(UUIDS[1])));
    bench.machines[1].set(Power::Off);
    assert_eq!(read(&mut driver).await, want(None), "503 while it is off");
    // A command goes to the member it names, wherever that stands.
    let answer = driver.force_off("/redfish/v1/Systems/A", &|| true, crate::bench::DEADLINE).await.unwrap();
    assert_eq!(answer, coroner_shared::bmc::CommandAnswer::Accepted);
    bench.until(Power::Off).await;
}

#[tokio::test]
async fn swapped_cables_show_in_the_uuid_or_already_in_the_certificate() {
    let bench = Bench::ours();
    let swap = |certificates| Command::Swap {
        a: "n1".to_owned(),
        b: "n2".to_owned(),
        certificates,
        accounts: false,
    };
    bench.command(swap(false)).await;
    let facts = bench.driver().identify().await.unwrap();
    let want = MemberRead::Read { uuid: Some(UUIDS[1].to_owned()), serial: Some("SN-n2".to_owned()) };
    assert_eq!(facts.members[0].read, want, "all but the machine is as it was");
    bench.command(Command::Unswap).await;
    bench.command(swap(true)).await;
    let error = failed(bench.driver().identify().await, "the name of n1");
    assert!(matches!(error, BmcError::WrongName { .. }), "{error:?}");
    let key = pin(PinOf::Key, &bench.key_sha256);
    let error = failed(bench.driver_with(|settings| settings.trust = key).identify().await, "the key of n1");
    assert!(matches!(error, BmcError::WrongPin { .. }), "{error:?}");
}

#[tokio::test]
async fn a_bad_certificate_is_refused_by_its_fault_and_a_pin_looks_at_the_key_alone() {
    let bench = Bench::ours();
    let table = [
        ("expired", "tls-date", true),
        ("wrong_name", "tls-name", true),
        ("self_signed", "tls-unknown-issuer", true),
        ("self_signed_ca", "tls-certificate", true),
        ("new_key", "", false),
    ];
    for (certificate, class, same_key) in table {
        bench.set(&json!({ "certificate": certificate }));
        let by_ca = bench.driver().identify().await;
        match class {
            "" => assert!(by_ca.is_ok(), "the CA vouches for it"),
            class => assert_eq!(failed(by_ca, certificate).class(), class),
        }
        let key = pin(PinOf::Key, &bench.key_sha256);
        let by_pin = bench.driver_with(|settings| settings.trust = key).identify().await;
        match same_key {
            true => assert!(by_pin.is_ok(), "{certificate}"),
            false => assert_eq!(failed(by_pin, certificate).class(), "tls-wrong-pin"),
        }
    }
}

#[tokio::test]
async fn both_tls_versions_are_spoken_with_a_ca_and_with_a_pin() {
    let bench = Bench::ours();
    for tls in ["1.2", "1.3", "both"] {
        bench.set(&json!({ "tls": tls }));
        for trust in [bench.ca(None), pin(PinOf::Key, &bench.key_sha256)] {
            let mut driver = bench.driver_with(|settings| settings.trust = trust.clone());
            assert!(driver.identify().await.is_ok(), "{tls} {trust:?}");
        }
        let old = bench.driver_with_quirk(Quirk::Tls12Only).identify().await;
        assert_eq!(old.is_ok(), tls != "1.3", "{tls}: the quirk offers 1.2 alone");
    }
}

#[tokio::test]
async fn a_bmc_that_hangs_resets_or_is_gone_is_told_apart() {
    let bench = Bench::ours();
    for (connect, classes) in
        [("hang", &["timeout"][..]), ("reset", &["connection-broken", "tls-handshake", "unreachable"])]
    {
        bench.set(&json!({ "connect": connect }));
        let error = failed(bench.driver_with(hasty).identify().await, connect);
        assert!(classes.contains(&error.class()), "{connect}: {} {error:?}", error.class());
    }
    bench.reset_knobs();
    bench.command(Command::Die { bmc: "n1".to_owned() }).await;
    let mut driver = bench.driver_with(hasty);
    // The listener is closed by a task of its own; until then a connection may still be taken and reset.
    let refused = async { while failed(driver.identify().await, "gone").class() != "connection-refused" {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), refused).await.unwrap();
    bench.command(Command::Live { bmc: "n1".to_owned(), says_off_ms: 0 }).await;
    let back = async { while driver.identify().await.is_err() {} };
    tokio::time::timeout(std::time::Duration::from_secs(30), back).await.unwrap();
}
