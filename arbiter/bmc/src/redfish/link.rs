//! Links that a BMC gives: only those to itself are followed, and they are used byte for byte. (Some services answer
//! 404 with a slash at the end, others without, so nothing is ever normalised.)

use hyper::http::uri::PathAndQuery;

use crate::config::Address;

/// Longest link that is used; real ones are below 100.
pub(crate) const BYTES_MAX: usize = 512;

/// Why a link is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadLink {
    /// It leads to another scheme, host or port.
    CrossOrigin,
    /// It is no path that could be requested.
    NotAPath,
}

/// The path (and query) of a link on this very origin: path-absolute, or a whole `https` URL of the same host and port.
pub(crate) fn same_origin(origin: &Address, link: &str) -> Result<String, BadLink> {
    if link.is_empty() || link.len() > BYTES_MAX || !link.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(BadLink::NotAPath);
    }
    if link.starts_with("//") {
        return Err(BadLink::CrossOrigin);
    }
    let path = match link.split_once("://") {
        _ if link.starts_with('/') => link,
        Some((scheme, rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let same = scheme.eq_ignore_ascii_case("https")
                && Address::from_authority(authority).is_some_and(|address| address == *origin);
            if !same {
                return Err(BadLink::CrossOrigin);
            }
            path
        }
        None => return Err(BadLink::NotAPath),
    };
    match path.parse::<PathAndQuery>() {
        Ok(parsed) if path.starts_with('/') && parsed.as_str() == path => Ok(path.to_owned()),
        Ok(_) | Err(_) => Err(BadLink::NotAPath),
    }
}

/// Whether two links name one resource: the same bytes, but for one slash at the end.
pub(crate) fn same_resource(a: &str, b: &str) -> bool {
    a.strip_suffix('/').unwrap_or(a) == b.strip_suffix('/').unwrap_or(b)
}

/// Whether `path` lies below `member`, such as its actions do.
pub(crate) fn is_below(member: &str, path: &str) -> bool {
    let parent = member.strip_suffix('/').unwrap_or(member);
    let rest = path.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/'));
    rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.split(['/', '?']).any(|step| step == ".." || step == ".")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_links_to_the_same_origin_are_followed() {
        let origin = Address::parse("bmc.example:8443").unwrap();
        for (link, path) in [
            ("/redfish/v1", "/redfish/v1"),
            ("/redfish/v1/", "/redfish/v1/"),
            ("/redfish/v1/Systems?$skip=50", "/redfish/v1/Systems?$skip=50"),
            ("https://bmc.example:8443/redfish/v1", "/redfish/v1"),
            ("HTTPS://BMC.example:8443/x", "/x"),
        ] {
            assert_eq!(same_origin(&origin, link).as_deref(), Ok(path), "{link}");
        }
        for link in [
            "//evil.example/redfish/v1",
            "http://bmc.example:8443/x",
            "https://bmc.example/x",
            "https://bmc.example:8443@evil.example/x",
            "https://evil.example/x",
            "https://u:p@bmc.example:8443/x",
            "ftp://bmc.example:8443/x",
        ] {
            assert_eq!(same_origin(&origin, link), Err(BadLink::CrossOrigin), "{link}");
        }
        for link in ["", "redfish/v1", "/a b", "/a\r\nX: y", "/x#y", "/\u{e9}", &"/x".repeat(300)] {
            assert_eq!(same_origin(&origin, link), Err(BadLink::NotAPath), "{link:?}");
        }
    }

    #[test]
    fn an_action_lies_below_its_own_member_only() {
        assert!(is_below("/redfish/v1/Systems/1", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"));
        assert!(is_below("/redfish/v1/Systems/1/", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset/"));
        for other in [
            "/redfish/v1/Systems/10/Actions/ComputerSystem.Reset",
            "/redfish/v1/Systems/2/Actions/ComputerSystem.Reset",
            "/redfish/v1/Systems/1/../2/Actions/ComputerSystem.Reset",
            "/redfish/v1/Systems/1",
            "/redfish/v1/Systems/1/",
        ] {
            assert!(!is_below("/redfish/v1/Systems/1", other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_path_of_its_own_or_a_refusal(text in ".{0,80}", path in "[ -~]{0,40}") {
            let origin = Address::parse("bmc.example").unwrap();
            for link in [text, path.clone(), format!("/{path}"), format!("https://bmc.example{path}")] {
                if let Ok(found) = same_origin(&origin, &link) {
                    prop_assert!(found.starts_with('/') && link.ends_with(&found));
                }
            }
        }
    }
}
