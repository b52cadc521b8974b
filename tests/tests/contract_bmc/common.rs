//! What every BMC must give through the driver. Run on each peer by `main.rs`.

use coroner_bmc::{Bmc, BmcError, PinOf, Secret, Trust};
use coroner_shared::bmc::{CommandAnswer, MemberRead, Power as Shown};
use coroner_tests::lab::emulator::machine::Power;

use crate::bench::{Bench, DEADLINE, PASSWORD, UUIDS, failed, pin};

pub(crate) async fn identify_lists_the_members_with_their_uuids_and_the_key_that_was_spoken_to(bench: Bench) {
    let mut driver = bench.driver();
    let facts = driver.identify().await.unwrap();
    let uuid = facts.members.iter().find_map(|member| match &member.read {
        MemberRead::Read { uuid, .. } if member.path == bench.member() => uuid.clone(),
        MemberRead::Read { .. } | MemberRead::Unreadable { .. } => None,
    });
    assert_eq!(uuid.as_deref(), Some(UUIDS[0]), "{facts:?}");
    assert_eq!(facts.tls_key_sha256.as_deref(), Some(bench.key_sha256.as_str()));
}

pub(crate) async fn the_power_state_is_read_afresh_and_exactly_with_the_uuid_of_the_same_body(bench: Bench) {
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    for (power, want) in [(Power::On, Shown::On), (Power::Off, Shown::Off), (Power::On, Shown::On)] {
        bench.machines[0].set(power);
        let reading = driver.power_state(&member).await.unwrap();
        assert_eq!((reading.power, reading.uuid.as_deref()), (want, Some(UUIDS[0])));
    }
}

pub(crate) async fn force_off_turns_that_machine_off_and_sends_one_command(bench: Bench) {
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    let answer = driver.force_off(&member, &|| true, DEADLINE).await.unwrap();
    assert_eq!(answer, CommandAnswer::Accepted);
    bench.until(Power::Off).await;
    assert_eq!(bench.resets(), ["ForceOff"]);
    assert_eq!(bench.machines[1].power(), Power::On, "the neighbour");
    while driver.power_state(&member).await.unwrap().power != Shown::Off {}
}

pub(crate) async fn force_off_of_a_machine_that_is_off_is_answered_and_leaves_it_off(bench: Bench) {
    let (mut driver, member) = (bench.driver(), bench.member());
    bench.machines[0].set(Power::Off);
    driver.identify().await.unwrap();
    match driver.force_off(&member, &|| true, DEADLINE).await.unwrap() {
        CommandAnswer::Accepted | CommandAnswer::Refused { .. } => {}
        CommandAnswer::Unknown { why } => panic!("{why}"),
    }
    assert_eq!(driver.power_state(&member).await.unwrap().power, Shown::Off);
    assert_eq!(bench.machines[0].changes().len(), 1, "only the hand that turned it off before");
}

pub(crate) async fn power_on_turns_it_on(bench: Bench) {
    let (mut driver, member) = (bench.driver(), bench.member());
    bench.machines[0].set(Power::Off);
    driver.identify().await.unwrap();
    assert_eq!(driver.power_on(&member, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    bench.until(Power::On).await;
    assert_eq!(bench.resets(), ["On"]);
}

pub(crate) async fn a_machine_that_the_bmc_cannot_ask_gives_no_reading(bench: Bench) {
    let (mut driver, member) = (bench.driver(), bench.member());
    driver.identify().await.unwrap();
    bench.machines[0].breaks(Some("no power controller".to_owned()));
    let error = failed(driver.power_state(&member).await, "read");
    assert!(matches!(error, BmcError::Status { status: 503, .. }), "{error:?}");
    bench.machines[0].breaks(None);
    assert_eq!(driver.power_state(&member).await.unwrap().power, Shown::On);
}

pub(crate) async fn a_wrong_password_is_an_error_of_its_own_and_turns_nothing_off(bench: Bench) {
    let mut driver = bench.driver_with(|settings| settings.password = Secret::new("wrong".to_owned()));
    for _ in 0..3 {
        let error = failed(driver.identify().await, "identify");
        assert!(matches!(error, BmcError::AuthRejected { .. }), "{error:?}");
    }
    let result = driver.force_off(&bench.member(), &|| true, DEADLINE).await;
    failed(result, "force off");
    assert_eq!((bench.machines[0].power(), bench.resets().len()), (Power::On, 0));
}

pub(crate) async fn a_command_to_a_member_that_was_not_read_is_not_sent(bench: Bench) {
    let mut driver = bench.driver();
    for member in [bench.member(), "/redfish/v1/Systems/other".to_owned()] {
        let error = failed(driver.force_off(&member, &|| true, DEADLINE).await, &member);
        assert!(matches!(error, BmcError::NotRead { .. }), "{error:?}");
    }
    driver.identify().await.unwrap();
    failed(
        driver.force_off("/redfish/v1/Systems/other", &|| true, DEADLINE).await,
        "a member that is not there",
    );
    assert_eq!(bench.resets().len(), 0);
}

pub(crate) async fn every_good_trust_connects_and_every_wrong_one_sends_not_a_byte_of_http(bench: Bench) {
    let stranger = Bench::ours();
    let of_stranger = |server_name: &str| Trust::CaBundle {
        pem: stranger.ca_pem.clone(),
        server_name: Some(server_name.to_owned()),
    };
    let wrong = [
        (of_stranger(&bench.server_name), "tls-unknown-issuer"),
        (bench.ca(Some("other.bmc.lab")), "tls-name"),
        (pin(PinOf::Key, &stranger.key_sha256), "tls-wrong-pin"),
        (pin(PinOf::Certificate, &stranger.certificate_sha256), "tls-wrong-pin"),
        // A pin of the right value, but taken for the other kind.
        (pin(PinOf::Certificate, &bench.key_sha256), "tls-wrong-pin"),
    ];
    for (trust, class) in wrong {
        let error = failed(bench.driver_with(|settings| settings.trust = trust).identify().await, class);
        assert_eq!(error.class(), class, "{error:?}");
        let seen = error.certificate().unwrap();
        assert_eq!(
            seen.key_sha256.as_deref(),
            Some(bench.key_sha256.as_str()),
            "what a person is to approve"
        );
        assert!(error.full().contains(&bench.certificate_sha256), "{}", error.full());
    }
    assert_eq!(bench.requests(), [], "nothing was asked of a BMC that is not trusted");
    let good = [
        bench.ca(Some(&bench.server_name)),
        bench.ca(None), // the address is in the certificate, too
        pin(PinOf::Key, &bench.key_sha256),
        pin(PinOf::Certificate, &bench.certificate_sha256),
    ];
    for trust in good {
        let mut driver = bench.driver_with(|settings| settings.trust = trust.clone());
        let facts = driver.identify().await.unwrap();
        assert_eq!(facts.tls_key_sha256.as_deref(), Some(bench.key_sha256.as_str()), "{trust:?}");
        driver.close().await.unwrap();
    }
}

pub(crate) async fn a_closed_driver_has_no_log_in_and_can_be_used_again(bench: Bench) {
    let mut driver = bench.driver();
    for _ in 0..2 {
        assert_eq!(driver.login(), None);
        driver.identify().await.unwrap();
        assert!(driver.login().is_some());
        driver.close().await.unwrap();
    }
    assert_eq!(driver.login(), None);
}

pub(crate) async fn the_ledger_and_the_driver_show_no_password(bench: Bench) {
    let mut driver = bench.driver();
    driver.identify().await.unwrap();
    driver.close().await.unwrap();
    assert!(!bench.requests().is_empty());
    for entry in bench.requests() {
        assert!(!format!("{entry:?}").contains(PASSWORD), "{entry:?}");
    }
    crate::bench::no_secret(&format!("{:?}", bench.settings()));
}
