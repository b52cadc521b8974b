//! Field cases and worked examples of identity, as rows. Values are invented; each row was seen at least once.

mod members;
mod orders;

use coroner_shared::bmc::MemberRead;

use super::*;
use orders::EXAMPLE_BYTES;

const P: &str = "00112233-4455-6677-8899-aabbccddeeff";

const P_SWAPPED: &str = "33221100-5544-7766-8899-aabbccddeeff";

const OTHER: &str = "7a3c9e10-b2d4-11ee-8c4f-021122334455";

const ONE: &str = "/redfish/v1/Systems/1";

const TWO: &str = "/redfish/v1/Systems/2";

fn id(text: &str) -> MachineId {
    text.parse().unwrap()
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn given(path: &str, uuid: &str) -> MemberFacts {
    let read = MemberRead::Read { uuid: Some(uuid.to_owned()), serial: None };
    MemberFacts { path: path.to_owned(), read }
}

fn without(path: &str) -> MemberFacts {
    MemberFacts { path: path.to_owned(), read: MemberRead::Read { uuid: None, serial: None } }
}

fn unreadable(path: &str) -> MemberFacts {
    MemberFacts { path: path.to_owned(), read: MemberRead::Unreadable { why: "HTTP 503".to_owned() } }
}

fn facts(members: &[MemberFacts]) -> IdentityFacts {
    IdentityFacts { members: members.to_vec(), manager_uuid: None, tls_key_sha256: None }
}

fn one(uuid: &str) -> IdentityFacts {
    facts(&[given(ONE, uuid)])
}

fn pin(transform: Transform) -> Pin {
    Pin {
        machine: id(P),
        transform,
        system_transform: Transform::Rfc,
        member: ONE.to_owned(),
        serial: None,
        manager: None,
        tls_key: None,
    }
}

/// Enrols a node whose agent and kubelet agree.
fn enrolled(machine: &str, facts: &IdentityFacts) -> Result<Pin, NotEnrolled> {
    let node = name("n1");
    enrol(&NodeSide { node: &node, machine: Ok(id(machine)), system_uuid: machine }, facts, &BTreeMap::new())
}

/// Checks with a node side that is as it was pinned.
fn checked(pin: &Pin, facts: &IdentityFacts) -> IdentityVerdict {
    let node = name("n1");
    let system =
        MachineId::from_bytes(pin.system_transform.unapply(pin.machine.bytes())).unwrap().to_string();
    check(
        pin,
        &NodeSide { node: &node, machine: Ok(pin.machine), system_uuid: &system },
        facts,
        &BTreeMap::new(),
    )
}

fn kind(verdict: &IdentityVerdict) -> &'static str {
    match verdict {
        IdentityVerdict::Match { .. } => "Match",
        IdentityVerdict::Mismatch { .. } => "Mismatch",
        IdentityVerdict::Ambiguous { .. } => "Ambiguous",
        IdentityVerdict::NoIdentity { .. } => "NoIdentity",
    }
}

fn refusal(result: &Result<Pin, NotEnrolled>) -> &'static str {
    match result {
        Ok(_) => "Pin",
        Err(NotEnrolled::NodeWithout { .. }) => "NodeWithout",
        Err(NotEnrolled::SystemUuid { .. }) => "SystemUuid",
        Err(NotEnrolled::NodeDisagrees { .. }) => "NodeDisagrees",
        Err(NotEnrolled::NotUnique { .. }) => "NotUnique",
        Err(NotEnrolled::NoUsableMember { .. }) => "NoUsableMember",
        Err(NotEnrolled::NoMatch { .. }) => "NoMatch",
        Err(NotEnrolled::TwoMatches { .. }) => "TwoMatches",
        Err(NotEnrolled::SerialContradicts { .. }) => "SerialContradicts",
    }
}

#[test]
fn example_6_and_every_placeholder_identify_nothing_on_either_side() {
    for shared in [
        "00020003-0004-0005-0006-000700080009",
        "03000200-0400-0500-0006-000700080009",
        "01020304-0506-0708-090a-0b0c0d0e0f10",
        "04030201-0605-0807-090a-0b0c0d0e0f10",
        "100f0e0d-0c0b-0a09-0807-060504030201",
        "00000000-0000-0000-0807-060504030201",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "{FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF}",
    ] {
        assert_eq!(refusal(&enrolled(P, &one(shared))), "NoUsableMember", "{shared}");
        assert_eq!(kind(&checked(&pin(Transform::Rfc), &one(shared))), "NoIdentity", "{shared}");
        let node = name("n1");
        let side = NodeSide { node: &node, machine: Ok(id(P)), system_uuid: shared };
        assert_eq!(refusal(&enrol(&side, &one(P), &BTreeMap::new())), "SystemUuid", "{shared}");
    }
}

#[test]
fn field_cases_of_one_member() {
    let rfc = pin(Transform::Rfc);
    let wire = pin(Transform::Wire);
    let rows: &[(&str, &Pin, &str, &str)] = &[
        ("bmc A01: old firmware, pinned swap", &wire, P_SWAPPED, "Match"),
        ("bmc A01: after the upgrade, pinned id", &rfc, P, "Match"),
        ("bmc A01: upgraded, but pinned swap", &wire, P, "Ambiguous"),
        ("bmc A02: pinned id, equal only after a swap", &rfc, P_SWAPPED, "Ambiguous"),
        ("bmc A19, rem A15: upper case", &rfc, "00112233-4455-6677-8899-AABBCCDDEEFF", "Match"),
        ("bmc A52: braces", &rfc, "{00112233-4455-6677-8899-aabbccddeeff}", "Match"),
        ("bmc A52: urn", &rfc, "urn:uuid:00112233-4455-6677-8899-aabbccddeeff", "Match"),
        ("bmc A52: newline and NUL", &rfc, " 00112233-4455-6677-8899-aabbccddeeff\n\0", "Match"),
        ("bmc A52: full-width hyphens", &rfc, "00112233\u{ff0d}4455-6677-8899-aabbccddeeff", "NoIdentity"),
        ("bmc A52: 0x", &rfc, "0x00112233-4455-6677-8899-aabbccddeeff", "NoIdentity"),
        // rem A15 would accept it; the page's parser takes 32 digits only from a source declared to use that form.
        ("rem A15, bmc A50: no hyphens", &rfc, "00112233445566778899aabbccddeeff", "NoIdentity"),
        ("bmc A50: 31 digits", &rfc, "0011223344556677889aabbccddeeff", "NoIdentity"),
        ("bmc A32, A34, rem A14: empty", &rfc, "", "NoIdentity"),
        ("bmc A32: blanks", &rfc, "   ", "NoIdentity"),
        (
            "bmc A17: serial-style",
            &rfc,
            "VMware-00 11 22 33 44 55 66 77-88 99 aa bb cc dd ee ff",
            "NoIdentity",
        ),
        ("text placeholders", &rfc, "Not Settable", "NoIdentity"),
        ("bmc A35: one byte differs", &rfc, "00112233-4455-6677-8899-aabbccddeefe", "Mismatch"),
        ("bmc A40, A47, rem A07, bmc D23: another board", &rfc, OTHER, "Mismatch"),
    ];
    for (case, pin, bmc, want) in rows {
        let verdict = checked(pin, &one(bmc));
        assert_eq!(kind(&verdict), *want, "{case}: {verdict}");
    }
    for none in [without(ONE), unreadable(ONE)] {
        assert_eq!(kind(&checked(&rfc, &facts(std::slice::from_ref(&none)))), "NoIdentity", "{none:?}");
        assert_eq!(refusal(&enrolled(P, &facts(&[none]))), "NoUsableMember");
    }
    assert_eq!(kind(&checked(&rfc, &facts(&[]))), "NoIdentity", "an empty collection");
}

#[test]
fn real_but_odd_looking_values_are_identities() {
    // bmc A28: ASCII of product and serial is real; no filter on how random a value looks.
    for odd in ["30333330-3333-3030-3333-303330333033", "4c4c4544-0000-0000-0000-000000000001"] {
        assert_eq!(refusal(&enrolled(odd, &one(odd))), "Pin", "{odd}");
    }
}

#[test]
fn the_nodes_side_is_three_fold() {
    let node = name("n1");
    let pinned = pin(Transform::Rfc);
    let swapped_guest = Pin { system_transform: Transform::Wire, ..pinned.clone() };
    type Row<'a> = (&'a str, &'a Pin, Result<MachineId, &'a str>, &'a str, &'a str);
    let rows: &[Row<'_>] = &[
        ("as pinned", &pinned, Ok(id(P)), P, "Match"),
        ("bmc A19, rem A15: upper case", &pinned, Ok(id(P)), "00112233-4455-6677-8899-AABBCCDDEEFF", "Match"),
        ("bmc A11, A16: swapped since enrolment", &swapped_guest, Ok(id(P)), P_SWAPPED, "Match"),
        ("bmc A13, A56: swapped now", &pinned, Ok(id(P)), P_SWAPPED, "Ambiguous"),
        ("bmc A13, A56: no longer swapped", &swapped_guest, Ok(id(P)), P, "Ambiguous"),
        ("the kubelet names another machine", &pinned, Ok(id(P)), OTHER, "Ambiguous"),
        ("the kubelet names none", &pinned, Ok(id(P)), "", "Ambiguous"),
        ("rem A07: the agent names another machine", &pinned, Ok(id(OTHER)), P, "Mismatch"),
        ("bmc A56: the agent reads the other order", &pinned, Ok(id(P_SWAPPED)), P, "Ambiguous"),
        ("the agent reads none any more", &pinned, Err("file is gone"), P, "NoIdentity"),
    ];
    for (case, pin, machine, system_uuid, want) in rows {
        let side = NodeSide { node: &node, machine: *machine, system_uuid };
        let verdict = check(pin, &side, &one(P), &BTreeMap::new());
        assert_eq!(kind(&verdict), *want, "{case}: {verdict}");
    }
    let enrolments: &[(&str, Result<MachineId, &str>, &str, &str)] = &[
        ("bmc A22: a device-tree serial", Ok(id(P)), "IBM,0210ABCDE", "SystemUuid"),
        ("bmc A22: nothing", Ok(id(P)), "", "SystemUuid"),
        ("no SMBIOS", Err("no such file"), P, "NodeWithout"),
        ("they disagree", Ok(id(P)), OTHER, "NodeDisagrees"),
        ("they agree only reversed", Ok(id(P)), "ffeeddcc-bbaa-9988-7766-554433221100", "NodeDisagrees"),
        ("rem A11, bmc A16: swapped by the hypervisor", Ok(id(P)), P_SWAPPED, "Pin"),
    ];
    for (case, machine, system_uuid, want) in enrolments {
        let side = NodeSide { node: &node, machine: *machine, system_uuid };
        assert_eq!(refusal(&enrol(&side, &one(P), &BTreeMap::new())), *want, "{case}");
    }
}

#[test]
fn a_uuid_on_two_nodes_disables_both() {
    // bmc A20, A25, A29; rem A12: an equal value; bmc rule 9: also in any other order.
    let (a, b) = (name("a"), name("b"));
    for theirs in EXAMPLE_BYTES[0].1 {
        let fleet = BTreeMap::from([(a.clone(), id(P)), (b.clone(), id(theirs))]);
        for (node, own) in [(&a, P), (&b, theirs)] {
            let side = NodeSide { node, machine: Ok(id(own)), system_uuid: own };
            assert_eq!(refusal(&enrol(&side, &one(own), &fleet)), "NotUnique", "{node} {theirs}");
            let verdict = check(&Pin { machine: id(own), ..pin(Transform::Rfc) }, &side, &one(own), &fleet);
            assert_eq!(kind(&verdict), "NoIdentity", "{node} {theirs}");
            assert!(verdict.to_string().contains(theirs), "shows both values: {verdict}");
        }
    }
    // Its own entry is no twin.
    let fleet = BTreeMap::from([(a.clone(), id(P)), (b, id(OTHER))]);
    let side = NodeSide { node: &a, machine: Ok(id(P)), system_uuid: P };
    assert_eq!(kind(&check(&pin(Transform::Rfc), &side, &one(P), &fleet)), "Match");
}

#[test]
fn verification_never_pins_anew() {
    let node = name("n1");
    let side = NodeSide { node: &node, machine: Ok(id(P)), system_uuid: P };
    let none = BTreeMap::new();
    let first = verify(None, &side, &one(P_SWAPPED), &none).unwrap();
    assert_eq!(first.transform, Transform::Wire);
    // bmc A01: the firmware was upgraded. Right, but not what is pinned: a person makes the binding anew.
    assert!(verify(Some(&first), &side, &one(P), &none).unwrap_err().starts_with("Ambiguous"));
    assert_eq!(verify(Some(&first), &side, &one(P_SWAPPED), &none), Ok(first));
}

#[test]
fn refusals_show_both_values() {
    let rows = [
        checked(&pin(Transform::Rfc), &one(OTHER)).to_string(),
        checked(&pin(Transform::Rfc), &one(P_SWAPPED)).to_string(),
        enrolled(P, &one(OTHER)).unwrap_err().to_string(),
    ];
    let found = [OTHER, P_SWAPPED, OTHER];
    for (text, found) in rows.iter().zip(found) {
        assert!(text.contains(P) && text.contains(found), "{text}");
    }
}
