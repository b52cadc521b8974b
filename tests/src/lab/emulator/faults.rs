//! From an answer and a fault to what goes over the wire: pure, so that each fault is tested without a connection.

use std::time::Duration;

use serde_json::Value;

use super::knobs::Fault;
use super::redfish::Answer;
use super::resources;

const HTML: &str = "<!DOCTYPE html><html><body><h1>Please log in</h1><p>Power is Off. {\"PowerState\": \"Off\"}</p></body></html>";

/// How an answer travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// In one piece.
    #[default]
    Whole,
    /// A byte at a time with this pause.
    Drip(Duration),
    /// Its first half, then the connection ends.
    Truncated,
    /// Again and again without end, and without a length.
    Endless,
    /// Not at all; the connection stays.
    Never,
    /// Not at all; the connection is reset.
    Reset,
}

/// What goes over the wire.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The status.
    pub status: u16,
    /// All headers but the length.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How it travels.
    pub delivery: Delivery,
    /// How long it is held back.
    pub delay: Duration,
    /// The `PowerState` in it.
    pub shown: Option<Value>,
}

/// Whether a fault takes the place of the answer, so that the request is not carried out for it.
#[must_use]
pub fn replaces(fault: &Fault) -> bool {
    match fault {
        Fault::Delay(_) | Fault::Drip(_) | Fault::Truncated | Fault::Patch(_) => false,
        Fault::Status { .. }
        | Fault::Redirect { .. }
        | Fault::Hang
        | Fault::Reset
        | Fault::Huge(_)
        | Fault::Endless
        | Fault::Deep(_)
        | Fault::InvalidJson
        | Fault::Html => true,
    }
}

/// What is sent for this answer, with this fault, to a request for this path; `drip_ms` is for every answer.
#[must_use]
pub fn output(answer: Answer, fault: Option<Fault>, path: &str, drip_ms: u64) -> Output {
    let drip = |ms: u64| if ms == 0 { Delivery::Whole } else { Delivery::Drip(Duration::from_millis(ms)) };
    let right = |answer: Answer, delivery| {
        let Answer { status, headers, body, .. } = answer;
        json(status, headers, body.as_ref(), delivery)
    };
    let instead = |delivery| Output { delivery, ..Output::default() };
    let Some(fault) = fault else { return right(answer, drip(drip_ms)) };
    match fault {
        Fault::Status { code, body, headers } => {
            let body = body.unwrap_or_else(|| resources::error("GeneralError", "A fault was asked for."));
            json(code, headers, Some(&body), drip(drip_ms))
        }
        Fault::Redirect { code, to } => {
            let location = to.replace("{path}", path);
            json(code, vec![("Location".to_owned(), location)], None, drip(drip_ms))
        }
        Fault::Hang => instead(Delivery::Never),
        Fault::Reset => instead(Delivery::Reset),
        Fault::Delay(ms) => Output { delay: Duration::from_millis(ms), ..right(answer, drip(drip_ms)) },
        Fault::Drip(ms) => right(answer, drip(ms)),
        Fault::Truncated => right(answer, Delivery::Truncated),
        Fault::Huge(bytes) => {
            raw(format!("{{\"PowerState\":\"Off\",\"Padding\":\"{}\"}}", "x".repeat(bytes)))
        }
        Fault::Endless => {
            Output { delivery: Delivery::Endless, ..raw("\"PowerState\":\"Off\",".repeat(1024)) }
        }
        Fault::Deep(depth) => raw(format!("{}{}", "[".repeat(depth), "]".repeat(depth))),
        Fault::InvalidJson => raw("{\"PowerState\": \"Off\", \"UUID\": ".to_owned()),
        Fault::Html => {
            let headers = vec![("Content-Type".to_owned(), "text/html; charset=utf-8".to_owned())];
            Output { status: 200, headers, body: HTML.into(), ..Output::default() }
        }
        Fault::Patch(fields) => {
            let mut answer = answer;
            if let Some(Value::Object(body)) = &mut answer.body {
                for (name, value) in fields {
                    if value.is_null() {
                        body.remove(&name);
                    } else {
                        body.insert(name, value);
                    }
                }
            }
            right(answer, drip(drip_ms))
        }
    }
}

fn json(status: u16, headers: Vec<(String, String)>, body: Option<&Value>, delivery: Delivery) -> Output {
    let mut headers = headers;
    if body.is_some() {
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    let shown = body.and_then(|body| body.get("PowerState")).cloned();
    let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
    Output { status, headers, body, delivery, delay: Duration::ZERO, shown }
}

fn raw(text: String) -> Output {
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    Output { status: 200, headers, body: text.into_bytes(), ..Output::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Answer {
        Answer { status: 200, body: Some(json!({"PowerState": "On", "UUID": "u"})), ..Answer::default() }
    }

    #[test]
    fn each_fault_changes_what_it_says_and_nothing_else() {
        let text = |fault: Value| {
            let fault = serde_json::from_value(fault).unwrap();
            let out = output(answer(), Some(fault), "/p", 0);
            (out.status, String::from_utf8(out.body).unwrap(), out.delivery)
        };
        let right = answer().body.unwrap().to_string();
        assert_eq!(text(json!({"delay": 5})), (200, right.clone(), Delivery::Whole));
        assert_eq!(text(json!({"drip": 5})), (200, right.clone(), Delivery::Drip(Duration::from_millis(5))));
        assert_eq!(text(json!("truncated")), (200, right, Delivery::Truncated));
        assert_eq!(text(json!("hang")).2, Delivery::Never);
        assert_eq!(text(json!("reset")).2, Delivery::Reset);
        assert_eq!(text(json!({"status": {"code": 503}})).0, 503);
        assert_eq!(
            text(json!({"huge": 1000})).1.len(),
            1000 + "{\"PowerState\":\"Off\",\"Padding\":\"\"}".len()
        );
        assert_eq!(text(json!({"deep": 3})).1, "[[[]]]");
        assert_eq!(
            text(json!({"patch": {"UUID": null, "PowerState": "Reset"}})).1,
            "{\"PowerState\":\"Reset\"}"
        );
        assert!(serde_json::from_str::<Value>(&text(json!("invalid_json")).1).is_err());
        assert!(text(json!("html")).1.contains("Off"));
    }

    #[test]
    fn the_ledger_learns_what_was_shown_not_what_is_true() {
        let fault = Fault::Patch(serde_json::Map::from_iter([("PowerState".to_owned(), json!("Off"))]));
        assert_eq!(output(answer(), Some(fault), "/p", 0).shown, Some(json!("Off")));
        assert_eq!(output(answer(), None, "/p", 0).shown, Some(json!("On")));
        assert_eq!(output(answer(), Some(Fault::Hang), "/p", 0).shown, None);
    }

    #[test]
    fn a_redirect_can_name_the_path_that_was_asked_for() {
        let fault = Fault::Redirect { code: 308, to: "{path}/".to_owned() };
        let out = output(Answer::default(), Some(fault), "/redfish/v1", 0);
        assert_eq!(out.headers, [("Location".to_owned(), "/redfish/v1/".to_owned())]);
    }
}
