//! Who passes as the BMC.

use coroner_bmc::{Bmc, BmcError, Pin, PinOf, Quirk, Trust};
use coroner_shared::hex::Hex;
use rcgen::{DnType, ExtendedKeyUsagePurpose, date_time_ymd};
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::identity::Identity;
use crate::machine::{Machine, driver, settings};
use crate::server::Server;

async fn attempt(identity: &Identity, trust: Trust) -> Result<Option<String>, BmcError> {
    let machine = Machine::new();
    let server = Server::start(identity, move |r| machine.answer(r)).await;
    let outcome = driver(settings(server.port, trust)).identify().await;
    if outcome.is_err() {
        assert!(server.requests().is_empty(), "nothing is said to a stranger");
    }
    outcome.map(|facts| facts.tls_key_sha256)
}

#[tokio::test]
async fn ca_mode_checks_issuer_name_dates_and_purpose_each_with_its_own_class() {
    let good = Identity::issued();
    let spoken_to = attempt(&good, good.ca(None)).await.unwrap();
    assert_eq!(spoken_to, Some(Hex(&good.key_sha256).to_string()));
    assert!(
        attempt(&good, good.ca(Some("n1.bmc.lab"))).await.is_ok(),
        "the name may differ from the address"
    );

    let expired = Identity::issued_with(|p| p.not_after = date_time_ymd(2002, 1, 1));
    let future = Identity::issued_with(|p| p.not_before = date_time_ymd(2999, 1, 1));
    let client = Identity::issued_with(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    let authority = Identity::authority();
    let cn_only = Identity::issued_with(|p| {
        p.subject_alt_names.clear();
        p.distinguished_name.push(DnType::CommonName, "127.0.0.1");
    });
    for (identity, trust, class) in [
        (&good, Identity::issued().ca(None), "tls-unknown-issuer"),
        (&good, good.ca(Some("n2.bmc.lab")), "tls-name"),
        (&cn_only, cn_only.ca(None), "tls-name"),
        (&expired, expired.ca(None), "tls-date"),
        (&future, future.ca(None), "tls-date"),
        (&client, client.ca(None), "tls-certificate"),
        (&Identity::factory(), good.ca(None), "tls-date"),
        (&authority, good.ca(None), "tls-certificate"),
        (&authority, authority.ca(None), "tls-certificate"),
    ] {
        let error = attempt(identity, trust).await.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
        let fingerprint = Hex(&identity.key_sha256).to_string();
        assert!(error.to_string().contains(&fingerprint), "{error}");
        assert_eq!(error.certificate().unwrap().key_sha256.as_ref(), Some(&fingerprint));
    }
    let impostor = Identity::impostor_of(&good);
    for version in [&TLS12, &TLS13] {
        let error = attempt(&impostor.clone().only(version), good.ca(None)).await.unwrap_err();
        assert_eq!(error.class(), "tls-certificate", "{error}");
    }
}

#[tokio::test]
async fn a_self_signed_authority_passes_by_pin_only_and_the_error_says_so() {
    let authority = Identity::authority();
    let error = attempt(&authority, authority.ca(None)).await.unwrap_err();
    assert!(error.to_string().contains("pin its key instead"), "{error}");
    assert!(attempt(&authority, authority.pin(PinOf::Key)).await.is_ok());
}

#[tokio::test]
async fn pin_mode_takes_the_exact_key_whatever_else_the_certificate_says() {
    for identity in [Identity::issued(), Identity::factory(), Identity::version_1(), Identity::rsa()] {
        for version in [&TLS12, &TLS13] {
            for of in [PinOf::Key, PinOf::Certificate] {
                let only = identity.clone().only(version);
                let spoken_to = attempt(&only, identity.pin(of)).await.unwrap();
                assert_eq!(spoken_to, Some(Hex(&identity.key_sha256).to_string()));
            }
        }
    }
}

#[tokio::test]
async fn pin_mode_refuses_another_key_and_shows_what_it_saw() {
    let (old, new) = (Identity::factory(), Identity::factory());
    for of in [PinOf::Key, PinOf::Certificate] {
        let error = attempt(&new, old.pin(of)).await.unwrap_err();
        assert_eq!(error.class(), "tls-wrong-pin");
        let text = error.to_string();
        assert!(text.contains(&Hex(&new.key_sha256).to_string()), "{text}");
        assert!(text.contains("BMC default certificate"), "{text}");
        let pin = match old.pin(of) {
            Trust::Pins(pins) => pins[0],
            Trust::CaBundle { .. } => unreachable!(),
        };
        assert!(text.contains(&pin.to_string()), "{text}");
    }
    // A key's hash is no certificate's.
    let crossed = Trust::Pins(vec![Pin { sha256: new.key_sha256, of: PinOf::Certificate }]);
    assert_eq!(attempt(&new, crossed).await.unwrap_err().class(), "tls-wrong-pin");
    // Two pins while a key is being replaced.
    let both = [old.pin(PinOf::Key), new.pin(PinOf::Key)].into_iter().flat_map(|trust| match trust {
        Trust::Pins(pins) => pins,
        Trust::CaBundle { .. } => unreachable!(),
    });
    assert!(attempt(&new, Trust::Pins(both.collect())).await.is_ok());
}

#[tokio::test]
async fn the_pinned_certificate_without_its_private_key_does_not_pass() {
    for identity in [Identity::factory(), Identity::version_1(), Identity::rsa()] {
        for version in [&TLS12, &TLS13] {
            for of in [PinOf::Key, PinOf::Certificate] {
                let impostor = Identity::impostor_of(&identity).only(version);
                let error = attempt(&impostor, identity.pin(of)).await.unwrap_err();
                assert_eq!(error.class(), "tls-certificate", "{error}");
            }
        }
    }
}

#[tokio::test]
async fn quirk_tls12_only_offers_no_more() {
    let identity = Identity::issued();
    let machine = Machine::new();
    let server = Server::start(&identity.clone().only(&TLS13), move |r| machine.answer(r)).await;
    let mut settings = settings(server.port, identity.ca(None));
    settings.quirks = [Quirk::Tls12Only].into_iter().collect();
    assert_eq!(driver(settings).identify().await.unwrap_err().class(), "tls-too-old");
}

#[tokio::test]
async fn a_new_connection_with_another_key_is_another_bmc_and_gets_no_token() {
    let mut bench = crate::machine::bench(|m, r| Some(m.answer(r).then(crate::server::Then::Close))).await;
    bench.bmc.identify().await.unwrap();
    let other = Identity::issued();
    // The same authority would have to have issued it; here both are pinned.
    let pins =
        [bench.identity.pin(PinOf::Key), other.pin(PinOf::Key)].into_iter().flat_map(|trust| match trust {
            Trust::Pins(pins) => pins,
            Trust::CaBundle { .. } => unreachable!(),
        });
    let mut bmc = driver(settings(bench.server.port, Trust::Pins(pins.collect())));
    bmc.identify().await.unwrap();
    let before = bench.server.requests().len();
    bench.server.become_another(&other);
    let error = bmc.force_off(crate::machine::MEMBER, &|| true, crate::machine::DEADLINE).await.unwrap_err();
    assert_eq!(error.class(), "tls-key-changed", "{error}");
    assert_eq!(bench.server.requests().len(), before);
    let again = bmc.force_off(crate::machine::MEMBER, &|| true, crate::machine::DEADLINE).await.unwrap_err();
    assert_eq!(again.class(), "not-read", "it has to be identified first: {again}");
    assert_eq!(bench.server.count("POST", crate::machine::RESET), 0);
    let facts = bmc.identify().await.unwrap();
    assert_eq!(facts.tls_key_sha256, Some(Hex(&other.key_sha256).to_string()));
}

#[tokio::test]
async fn old_protocols_and_strangers_on_the_port_are_told_apart() {
    const PROTOCOL_VERSION: &[u8] = &[0x15, 3, 1, 0, 2, 2, 70];
    const HANDSHAKE_FAILURE: &[u8] = &[0x15, 3, 3, 0, 2, 2, 40];
    for (bytes, class) in [
        (PROTOCOL_VERSION, "tls-too-old"),
        (HANDSHAKE_FAILURE, "tls-too-old"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), "tls-handshake"),
        (b"SSH-2.0-dropbear\r\n".as_slice(), "tls-handshake"),
        (b"".as_slice(), "connection-broken"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let _ = tcp.read(&mut [0; 4096]).await;
            let _ = tcp.write_all(bytes).await;
            let _ = tcp.shutdown().await;
            let _ = tcp.read(&mut [0; 4096]).await;
        });
        let error = driver(settings(port, Identity::factory().pin(PinOf::Key))).identify().await.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
        server.await.unwrap();
    }
}
