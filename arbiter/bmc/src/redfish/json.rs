//! From the bytes of an answer to a JSON document, with limits. Nothing here panics or grows beyond the body, which
//! is itself bounded.

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::printable;

/// Redfish documents nest about ten deep. serde_json by itself stops at 128.
const DEPTH_MAX: usize = 64;

/// Why a body is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadBody {
    /// Nested too deep.
    TooDeep,
    /// Not JSON, or not of this shape.
    Malformed(String),
}

/// Reads a body into `T`. The media type must be JSON; a missing one is tolerated where the body begins like an object.
pub(crate) fn parse<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, BadBody> {
    let malformed = |why: &str| BadBody::Malformed(why.to_owned());
    if headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(malformed("compressed although not asked for"));
    }
    match headers.get(CONTENT_TYPE).map(|media| media.to_str().unwrap_or("(not text)")) {
        Some(media) if is_json(media) => {}
        Some(media) => return Err(BadBody::Malformed(format!("media type {}", printable(media)))),
        None if body.trim_ascii_start().starts_with(b"{") => {}
        None => return Err(malformed("no media type and no object")),
    }
    if deeper_than(body, DEPTH_MAX) {
        return Err(BadBody::TooDeep);
    }
    // The error's text may repeat pieces of the body, so only its kind and place are told.
    serde_json::from_slice(body).map_err(|e| {
        let kind = match e.classify() {
            serde_json::error::Category::Io => "unreadable",
            serde_json::error::Category::Syntax => "not JSON",
            serde_json::error::Category::Data => "JSON of another shape",
            serde_json::error::Category::Eof => "cut off",
        };
        BadBody::Malformed(format!("{kind}, line {} column {}", e.line(), e.column()))
    })
}

/// The id of the first message of a Redfish error (DSP0266, error responses), in whatever shape it comes; advisory.
/// Ids are registry names such as `Base.1.8.GeneralError`, so nothing but their alphabet passes.
pub(crate) fn message_id(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let document: Value = parse(headers, body).ok()?;
    let error = document.get("error").unwrap_or(&document);
    let info = error.get("@Message.ExtendedInfo").map(|info| info.get(0).unwrap_or(info));
    let id = info
        .and_then(|info| info.get("MessageId").or_else(|| info.get("MessageID")))
        .or_else(|| error.get("code"))
        .and_then(Value::as_str)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (!id.is_empty() && id.len() <= 100 && id.chars().all(plain)).then(|| id.to_owned())
}

// === helpers ===

fn is_json(media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Counts brackets outside of strings. On text that is not JSON the answer means nothing, but it comes.
fn deeper_than(body: &[u8], limit: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn typed(media: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media))])
    }

    fn read(headers: &HeaderMap, body: &str) -> Result<Value, BadBody> {
        parse(headers, body.as_bytes())
    }

    #[test]
    fn only_json_is_read_as_json() {
        for media in [
            "application/json",
            "application/json;odata.metadata=minimal;charset=utf-8",
            "APPLICATION/JSON",
            "application/problem+json",
        ] {
            assert!(read(&typed(media), "{}").is_ok(), "{media}");
        }
        for media in ["text/html", "text/json", "application/jsonx", ""] {
            assert!(read(&typed(media), r#"{"PowerState":"Off"}"#).is_err(), "{media}");
        }
        assert!(read(&HeaderMap::new(), " {}").is_ok());
        assert!(read(&HeaderMap::new(), "<html>Off</html>").is_err());
        assert!(read(&HeaderMap::new(), "").is_err());
        let mut packed = typed("application/json");
        packed.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(read(&packed, "{}").is_err());
    }

    #[test]
    fn sixty_four_levels_pass_and_sixty_five_do_not() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        let json = typed("application/json");
        assert!(read(&json, &nested(64)).is_ok());
        assert_eq!(read(&json, &nested(65)), Err(BadBody::TooDeep));
        assert_eq!(read(&json, &"[".repeat(1024 * 1024)), Err(BadBody::TooDeep));
        assert!(
            read(&json, &format!(r#"["{}\"{}"]"#, "[".repeat(99), "{".repeat(99))).is_ok(),
            "in a string"
        );
    }

    #[test]
    fn errors_do_not_repeat_the_body() {
        let error = parse::<Vec<u8>>(&typed("application/json"), br#"["hunter2"]"#).unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }

    #[test]
    fn a_message_id_is_found_in_every_shape_seen_in_the_field() {
        let json = typed("application/json");
        for (body, id) in [
            (
                r#"{"error":{"@Message.ExtendedInfo":[{"MessageId":"IDRAC.2.8.PSU501"}]}}"#,
                Some("IDRAC.2.8.PSU501"),
            ),
            (r#"{"error":{"@Message.ExtendedInfo":{"MessageId":"Base.1.0.X"}}}"#, Some("Base.1.0.X")),
            (r#"{"@Message.ExtendedInfo":[{"MessageID":"iLO.0.10.Y"}]}"#, Some("iLO.0.10.Y")),
            (r#"{"error":{"code":"Base.1.0.GeneralError"}}"#, Some("Base.1.0.GeneralError")),
            (r#"{"error":{"@Message.ExtendedInfo":[]}}"#, None),
            (r#"{"error":{"code":"power is off"}}"#, None),
            (r#"{"error":{"code":7}}"#, None),
            (r#"{"error":"#, None),
            ("", None),
        ] {
            assert_eq!(message_id(&json, body.as_bytes()).as_deref(), id, "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..400), text in "[\\[\\]{}\":,a0\\\\ ]{0,200}") {
            for body in [body.as_slice(), text.as_bytes()] {
                for headers in [HeaderMap::new(), typed("application/json")] {
                    let _ = parse::<Value>(&headers, body);
                    let _ = message_id(&headers, body);
                }
            }
        }
    }
}
