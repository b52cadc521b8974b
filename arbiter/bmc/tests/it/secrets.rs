//! A BMC that repeats every secret in every place it can; none may come out again.

use coroner_bmc::{Bmc, BmcError, Secret};
use coroner_shared::bmc::CommandAnswer;

use crate::identity::PASSWORD;
use crate::machine::*;
use crate::server::Reply;

const BASIC: &str = "Y29yb25lcjpjYW5hcnktUGFzc3cwcmQ=";

fn clean(what: &str, text: &str) {
    for secret in [PASSWORD, "canary", BASIC] {
        assert!(!text.contains(secret), "{what}: {text}");
    }
}

fn clean_error(what: &str, error: &BmcError) {
    clean(what, &error.to_string());
    clean(what, &error.full());
    clean(what, &format!("{error:?}"));
}

#[tokio::test]
async fn errors_answers_and_debug_hold_no_secret_whatever_the_bmc_repeats() {
    let echo = format!("{PASSWORD}.canary-token-1.{BASIC}");
    let body = format!(r#"{{"error":{{"code":"{echo}","message":"{echo}"}}}}"#);
    let replies = [
        Reply::json(400, &[("Location", &echo)], &body),
        Reply::json(401, &[("WWW-Authenticate", &echo)], &body),
        Reply::json(500, &[("Retry-After", &echo)], &body),
        Reply::json(200, &[], &format!("{{{echo}")),
        Reply::json(200, &[], &format!(r#"{{"@odata.id":"{echo}","PowerState":"{echo}","UUID":"{echo}"}}"#)),
        Reply::json(
            200,
            &[],
            &format!(
                r#"{{"@odata.id":"{MEMBER}","PowerState":"{echo}","UUID":"{echo}","SerialNumber":"{echo}"}}"#
            ),
        ),
        Reply::json(
            200,
            &[],
            &format!(r#"{{"Members":[{{"@odata.id":"/{echo}"}},{{"@odata.id":"https://{echo}/x"}}]}}"#),
        ),
        Reply::redirect(302, &format!("https://{echo}/")),
        Reply::redirect(302, &format!("/{echo}")),
        Reply::redirect(302, &echo),
        Reply::raw(format!("HTTP/1.1 200 OK\r\nContent-Type: {echo}\r\nContent-Length: 2\r\n\r\n{{}}")),
        Reply::raw(format!("HTTP/1.1 {echo}\r\n\r\n")),
        Reply::raw(format!("{echo}\r\n\r\n")),
    ];
    for path in [ROOT, SESSIONS, SYSTEMS, MEMBER, MANAGER, RESET] {
        for reply in &replies {
            let what = format!("{path}: {}", String::from_utf8_lossy(&reply.bytes));
            let given = reply.clone();
            let mut bench = bench(move |_, r| (r.path == path).then(|| given.clone())).await;
            match bench.bmc.identify().await {
                Ok(facts) => clean(&what, &format!("{facts:?}")),
                Err(error) => clean_error(&what, &error),
            }
            match bench.bmc.power_state(MEMBER).await {
                Ok(reading) => clean(&what, &format!("{reading:?}")),
                Err(error) => clean_error(&what, &error),
            }
            match bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await {
                Ok(CommandAnswer::Accepted) => {}
                Ok(answer) => clean(&what, &format!("{answer:?}")),
                Err(error) => clean_error(&what, &error),
            }
            clean(&what, &format!("{:?}", bench.bmc));
            if let Err(error) = bench.bmc.close().await {
                clean_error(&what, &error);
            }
        }
    }
}

#[tokio::test]
async fn a_password_of_any_characters_arrives_as_it_is() {
    let odd = "q\"\\/\u{e9}\u{1f512} '&<>%00";
    let mut bench = bench_with(
        |s| s.password = Secret::new(odd.to_owned()),
        move |_, r| {
            r.is("POST", SESSIONS).then(|| {
                let expected =
                    "{\"UserName\":\"coroner\",\"Password\":\"q\\\"\\\\/\u{e9}\u{1f512} '&<>%00\"}";
                Reply::status(if r.body == expected { 500 } else { 501 })
            })
        },
    )
    .await;
    let error = bench.bmc.identify().await.unwrap_err();
    assert!(error.to_string().contains("HTTP 500"), "{error}");
}
