//! The BMC's side of an identity: what one member gave, and what speaks against it.

use coroner_shared::bmc::{IdentityFacts, MemberFacts, MemberRead};
use coroner_shared::machine_id::{MachineId, NoIdentity, Transform};
use coroner_shared::mutant::{Mutant, planted};

use super::{IdentityVerdict, TEXT_ORDERS, first_order};
use crate::policy::Pin;

/// Where commands to a machine go: to the member that has its UUID.
pub(super) fn pinned_path(member: &MemberFacts, facts: &IdentityFacts) -> String {
    let first = facts.members.first().filter(|_| planted(Mutant::WrongMember));
    first.unwrap_or(member).path.clone()
}

/// Byte orders that a member may be pinned under. Redfish links begin with a slash and give text; any other path is
/// the driver's name for 16 raw bytes (IPMI, *Get System GUID*).
pub(super) fn orders_of(path: &str) -> &'static [Transform] {
    if path.starts_with('/') { &TEXT_ORDERS } else { &Transform::ALL }
}

/// The UUID of a member, as given and parsed; or why there is none.
pub(super) fn uuid_of(member: &MemberFacts) -> Result<(&str, MachineId), String> {
    match &member.read {
        MemberRead::Unreadable { why } => Err(format!("could not be read: {why}")),
        MemberRead::Read { uuid: None, .. } => Err(NoIdentity::Missing.to_string()),
        MemberRead::Read { uuid: Some(given), .. } => {
            given.parse().map(|uuid| (given.as_str(), uuid)).map_err(|why: NoIdentity| why.to_string())
        }
    }
}

/// A serial number that somebody really wrote.
pub(super) fn serial_of(member: &MemberFacts) -> Option<&str> {
    const NOBODY_WROTE: [&str; 9] = [
        "to be filled by o.e.m.",
        "default string",
        "system serial number",
        "not specified",
        "not available",
        "none",
        "n/a",
        "0123456789",
        "123456789",
    ];
    match &member.read {
        MemberRead::Unreadable { .. } => None,
        MemberRead::Read { serial, .. } => {
            let serial = serial.as_deref()?.trim_matches(|c: char| c.is_whitespace() || c == '\0');
            let constant = serial.chars().all(|c| c == '0') || serial.chars().all(|c| c == ' ' || c == '.');
            (!constant && !NOBODY_WROTE.contains(&serial.to_ascii_lowercase().as_str())).then_some(serial)
        }
    }
}

/// What a UUID that spells words says against the serial number beside it. HPE writes product number (6 characters)
/// and serial number (10) into it, in SMBIOS memory order; a profile that was moved to other hardware changes one of the
/// two. The last eight characters stand in the same place in either order of the first three fields.
pub(super) fn spelling_refuses(machine: MachineId, member: &MemberFacts) -> Option<String> {
    const SERIAL_CHARS: usize = 10;
    let bytes = machine.bytes();
    let spelt = std::str::from_utf8(bytes.get(8..)?).ok()?;
    let serial = serial_of(member)?;
    let is_word = |text: &[u8]| text.iter().all(u8::is_ascii_alphanumeric);
    let speaks_of_serials = is_word(&bytes) && serial.len() == SERIAL_CHARS && is_word(serial.as_bytes());
    let same = serial.to_ascii_uppercase().ends_with(&spelt.to_ascii_uppercase());
    (speaks_of_serials && !same).then(|| {
        format!(
            "UUID {machine} spells a serial number that ends in {spelt:?}, {} gives {serial:?}",
            member.path
        )
    })
}

/// One member with what it gave, for people.
pub(super) fn describe(member: &MemberFacts) -> String {
    match uuid_of(member) {
        Ok((given, _)) => format!("{} gives {given}", member.path),
        Err(why) => format!("{}: {why}", member.path),
    }
}

/// The pinned member's UUID is not the pinned one: another machine's, or this one's in a byte order never pinned.
pub(super) fn not_the_pinned(
    pin: &Pin,
    member: &MemberFacts,
    given: &str,
    uuid: MachineId,
) -> IdentityVerdict {
    match first_order(&Transform::ALL, uuid, pin.machine) {
        Some(other) => IdentityVerdict::Ambiguous {
            why: format!(
                "{} gives {given}, pinned is {} in byte order {}: equal only in byte order {other}",
                member.path, pin.machine, pin.transform
            ),
        },
        None => IdentityVerdict::Mismatch {
            want: format!("{} at {} in byte order {}", pin.machine, pin.member, pin.transform),
            got: format!("{given} at {}", member.path),
        },
    }
}

/// The pinned member is not listed, or listed twice.
pub(super) fn pinned_member_lost(pin: &Pin, facts: &IdentityFacts) -> IdentityVerdict {
    let seen = facts.members.iter().map(describe).collect::<Vec<_>>().join("; ");
    let matches_elsewhere = facts.members.iter().any(|member| is_machine(pin, member));
    let somebody = facts.members.iter().any(|member| uuid_of(member).is_ok());
    match (matches_elsewhere, somebody) {
        (true, _) => IdentityVerdict::Ambiguous {
            why: format!("{} was pinned at {}, the BMC lists: {seen}", pin.machine, pin.member),
        },
        (false, true) => {
            IdentityVerdict::Mismatch { want: format!("{} at {}", pin.machine, pin.member), got: seen }
        }
        (false, false) => IdentityVerdict::NoIdentity {
            why: format!("{} is not listed; the BMC lists: {seen}", pin.member),
        },
    }
}

/// Whether a member has the pinned machine's UUID in any byte order.
pub(super) fn is_machine(pin: &Pin, member: &MemberFacts) -> bool {
    uuid_of(member).is_ok_and(|(_, uuid)| first_order(&Transform::ALL, uuid, pin.machine).is_some())
}

/// Another member that has the machine's UUID.
pub(super) fn second_match<'a>(pin: &Pin, facts: &'a IdentityFacts) -> Option<&'a str> {
    facts
        .members
        .iter()
        .find(|member| member.path != pin.member && is_machine(pin, member))
        .map(|member| member.path.as_str())
}

/// A secondary fact that changed. What was never pinned cannot refuse; a serial or manager that is not given now says
/// nothing (some BMCs drop both while the machine is off), but a key that was pinned must be shown.
pub(super) fn secondary_refuses(pin: &Pin, member: &MemberFacts, facts: &IdentityFacts) -> Option<String> {
    let changed = |name: &str, pinned: &Option<String>, now: Option<&str>| match (pinned, now) {
        (Some(then), Some(now)) if then != now => Some(format!("{name} is {now:?}, pinned is {then:?}")),
        (None, _) | (_, None) | (Some(_), Some(_)) => None,
    };
    changed("serial number", &pin.serial, serial_of(member))
        .or_else(|| changed("manager UUID", &pin.manager, facts.manager_uuid.as_deref()))
        .or_else(|| match (&pin.tls_key, facts.tls_key_sha256.as_deref()) {
            (Some(then), None) => Some(format!("no TLS key was shown, pinned is {then}")),
            (pinned, now) => changed("TLS key", pinned, now),
        })
}
