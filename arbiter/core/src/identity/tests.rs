//! Field cases and worked examples of identity, as rows. Values are invented; each row was seen at least once.

use super::*;
use coroner_shared::bmc::MemberRead;

const P: &str = "00112233-4455-6677-8899-aabbccddeeff";
const P_SWAPPED: &str = "33221100-5544-7766-8899-aabbccddeeff";
const OTHER: &str = "7a3c9e10-b2d4-11ee-8c4f-021122334455";
const ONE: &str = "/redfish/v1/Systems/1";
const TWO: &str = "/redfish/v1/Systems/2";
/// What the IPMI driver names the 16 raw bytes of *Get System GUID*.
const IPMI: &str = "ipmi";

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

fn with_serial(uuid: &str, serial: &str) -> IdentityFacts {
    let read = MemberRead::Read { uuid: Some(uuid.to_owned()), serial: Some(serial.to_owned()) };
    facts(&[MemberFacts { path: ONE.to_owned(), read }])
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

/// Canonical value; then text as in the field: id, upper case, swap; then the two texts that tools make of IPMI bytes.
const EXAMPLES: [(&str, [&str; 5]); 4] = [
    (
        P,
        [
            "00112233-4455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-AABBCCDDEEFF",
            "33221100-5544-7766-8899-aabbccddeeff",
            "ffeeddcc-bbaa-9988-7766-554433221100",
            "ccddeeff-aabb-8899-7766-554433221100",
        ],
    ),
    (
        "33323150-3534-5a43-3230-303130414243",
        [
            "33323150-3534-5a43-3230-303130414243",
            "33323150-3534-5A43-3230-303130414243",
            "50313233-3435-435a-3230-303130414243",
            "43424130-3130-3032-435a-343550313233",
            "30414243-3031-3230-435a-343550313233",
        ],
    ),
    (
        "4c4c4544-0041-4210-8043-b1c04f323334",
        [
            "4c4c4544-0041-4210-8043-b1c04f323334",
            "4C4C4544-0041-4210-8043-B1C04F323334",
            "44454c4c-4100-1042-8043-b1c04f323334",
            "3433324f-c0b1-4380-1042-410044454c4c",
            "4f323334-b1c0-8043-1042-410044454c4c",
        ],
    ),
    (
        OTHER,
        [
            "7a3c9e10-b2d4-11ee-8c4f-021122334455",
            "7A3C9E10-B2D4-11EE-8C4F-021122334455",
            "109e3c7a-d4b2-ee11-8c4f-021122334455",
            "55443322-1102-4f8c-ee11-d4b2109e3c7a",
            "22334455-0211-8c4f-ee11-d4b2109e3c7a",
        ],
    ),
];

/// The same four values as 16 bytes: as they stand, wire, reversed, reversed wire.
const EXAMPLE_BYTES: [(&str, [&str; 4]); 4] = [
    (
        P,
        [
            "00112233-4455-6677-8899-aabbccddeeff",
            "33221100-5544-7766-8899-aabbccddeeff",
            "ffeeddcc-bbaa-9988-7766-554433221100",
            "ffeeddcc-bbaa-9988-6677-445500112233",
        ],
    ),
    (
        "33323150-3534-5a43-3230-303130414243",
        [
            "33323150-3534-5a43-3230-303130414243",
            "50313233-3435-435a-3230-303130414243",
            "43424130-3130-3032-435a-343550313233",
            "43424130-3130-3032-5a43-353433323150",
        ],
    ),
    (
        "4c4c4544-0041-4210-8043-b1c04f323334",
        [
            "4c4c4544-0041-4210-8043-b1c04f323334",
            "44454c4c-4100-1042-8043-b1c04f323334",
            "3433324f-c0b1-4380-1042-410044454c4c",
            "3433324f-c0b1-4380-4210-00414c4c4544",
        ],
    ),
    (
        OTHER,
        [
            "7a3c9e10-b2d4-11ee-8c4f-021122334455",
            "109e3c7a-d4b2-ee11-8c4f-021122334455",
            "55443322-1102-4f8c-ee11-d4b2109e3c7a",
            "55443322-1102-4f8c-11ee-b2d47a3c9e10",
        ],
    ),
];

#[test]
fn examples_1_to_4_as_text_pin_id_or_swap_and_nothing_else() {
    for (machine, [same, upper, swapped, dumped, mixed]) in EXAMPLES {
        for (text, want) in [(same, Transform::Rfc), (upper, Transform::Rfc), (swapped, Transform::Wire)] {
            let pin = enrolled(machine, &one(text)).unwrap();
            assert_eq!((pin.transform, pin.member.as_str(), pin.machine), (want, ONE, id(machine)), "{text}");
            assert_eq!(kind(&checked(&pin, &one(text))), "Match", "{text}");
        }
        for text in [dumped, mixed] {
            assert_eq!(
                refusal(&enrolled(machine, &one(text))),
                "NoMatch",
                "{text}: the bytes must be read raw"
            );
        }
    }
}

#[test]
fn examples_1_to_4_as_bytes_pin_whichever_order_the_bmc_sends() {
    for (machine, forms) in EXAMPLE_BYTES {
        for (form, want) in forms.iter().zip(Transform::ALL) {
            let facts = facts(&[given(IPMI, form)]);
            let pin = enrolled(machine, &facts).unwrap();
            assert_eq!(pin.transform, want, "{form}");
            assert_eq!(kind(&checked(&pin, &facts)), "Match", "{form}");
        }
    }
}

#[test]
fn only_the_pinned_order_counts_at_fence_time() {
    for (_, forms) in EXAMPLE_BYTES.iter().take(1) {
        for pinned in Transform::ALL {
            for (form, order) in forms.iter().zip(Transform::ALL) {
                let verdict = checked(&pin(pinned), &one(form));
                let want = if order == pinned { "Match" } else { "Ambiguous" };
                assert_eq!(kind(&verdict), want, "pinned {pinned}, given {form}: {verdict}");
            }
        }
    }
}

#[test]
fn example_5_swapped_twins_are_fenceable_through_nobody() {
    // The reference calls this Ambiguous; the page has one rule for every value that the fleet holds twice, under
    // whatever order: NoIdentity. Both refuse.
    let (p, q) = (name("p"), name("q"));
    let fleet = BTreeMap::from([(p.clone(), id(P)), (q.clone(), id(P_SWAPPED))]);
    for (node, uuid) in [(&p, P), (&q, P_SWAPPED)] {
        let side = NodeSide { node, machine: Ok(id(uuid)), system_uuid: uuid };
        for bmc in [P, P_SWAPPED] {
            assert_eq!(refusal(&enrol(&side, &one(bmc), &fleet)), "NotUnique", "{node} {bmc}");
            let pinned = Pin { machine: id(uuid), ..pin(Transform::Rfc) };
            let verdict = check(&pinned, &side, &one(bmc), &fleet);
            assert_eq!(kind(&verdict), "NoIdentity", "{node} {bmc}: a twin joined after enrolment");
        }
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
fn the_member_is_chosen_by_uuid_and_never_by_position_or_name() {
    // bmc A41, A43, A44, A46; rem A03, A04: four members in every rotation, with names that mean nothing.
    let mut members = vec![
        given("/redfish/v1/Systems/System.Embedded.1", OTHER),
        given("/redfish/v1/Systems/Self/", P),
        given("/redfish/v1/Systems/1", "4c4c4544-0041-4210-8043-b1c04f323334"),
        without("/redfish/v1/Systems/witness"),
    ];
    for turn in 0..4 {
        members.rotate_left(1);
        let pin = enrolled(P, &facts(&members)).unwrap();
        assert_eq!(pin.member, "/redfish/v1/Systems/Self/", "turn {turn}");
        members.reverse();
        let verdict = checked(&pin, &facts(&members));
        assert_eq!(kind(&verdict), "Match", "turn {turn}: {verdict}");
    }
}

#[test]
fn other_members_refuse_only_when_they_are_readable_and_the_same() {
    let rfc = pin(Transform::Rfc);
    let rows: &[(&str, Vec<MemberFacts>, &str)] = &[
        ("rem A03: two members with one UUID", vec![given(ONE, P), given(TWO, P)], "Ambiguous"),
        ("the second in another order", vec![given(TWO, P_SWAPPED), given(ONE, P)], "Ambiguous"),
        ("bmc A34: the other one is empty", vec![given(ONE, P), given(TWO, "")], "Match"),
        ("503 for a member that is off", vec![unreadable(TWO), given(ONE, P)], "Match"),
        ("the same link twice", vec![given(ONE, P), given(ONE, P)], "Ambiguous"),
        ("the pinned one cannot be read", vec![unreadable(ONE), given(TWO, OTHER)], "NoIdentity"),
        (
            "the pinned one cannot be read, another has its UUID",
            vec![unreadable(ONE), given(TWO, P)],
            "NoIdentity",
        ),
        ("it moved to another member", vec![given(ONE, OTHER), given(TWO, P)], "Mismatch"),
        ("the pinned link is gone, the UUID is elsewhere", vec![given(TWO, P)], "Ambiguous"),
        ("the pinned link is gone", vec![given(TWO, OTHER)], "Mismatch"),
        ("the pinned link is gone, others say nothing", vec![unreadable(TWO)], "NoIdentity"),
        ("bmc C22: links are compared byte for byte", vec![given("/redfish/v1/Systems/1/", P)], "Ambiguous"),
    ];
    for (case, members, want) in rows {
        let verdict = checked(&rfc, &facts(members));
        assert_eq!(kind(&verdict), *want, "{case}: {verdict}");
    }
    let noted = checked(&rfc, &facts(&[given(ONE, P), unreadable(TWO)]));
    assert!(noted.to_string().contains("Systems/2: could not be read: HTTP 503"), "{noted}");
    assert_eq!(refusal(&enrolled(P, &facts(&[given(ONE, P), given(TWO, P_SWAPPED)]))), "TwoMatches");
    assert_eq!(refusal(&enrolled(P, &facts(&[given(ONE, OTHER), given(TWO, OTHER)]))), "NoMatch");
}

#[test]
fn a_uuid_that_spells_a_serial_number_must_spell_the_one_beside_it() {
    // bmc.md, 13 and 14: HPE's UUID is product and serial number; a profile moved to other hardware contradicts it.
    const HPE: &str = "33323150-3534-5a43-3230-303130414243";
    const HPE_SWAPPED: &str = "50313233-3435-435a-3230-303130414243";
    let rows = [
        (HPE, "CZ20010ABC", "Pin"),
        (HPE, "cz20010abc", "Pin"),
        (HPE, "CZ20010ABD", "SerialContradicts"),
        // An SMBIOS of before 2.6 on both sides.
        (HPE_SWAPPED, "CZ20010ABC", "Pin"),
        (HPE_SWAPPED, "CZ99999999", "SerialContradicts"),
        // Nothing to compare: no serial, one that nobody wrote, one of another form.
        (HPE, "To be filled by O.E.M.", "Pin"),
        (HPE, "S1", "Pin"),
        // And a UUID that spells nothing.
        (P, "CZ20010ABD", "Pin"),
    ];
    for (uuid, serial, want) in rows {
        assert_eq!(refusal(&enrolled(uuid, &with_serial(uuid, serial))), want, "{uuid} {serial}");
    }
    // At any later time too, whether or not a serial number was pinned.
    let mut pinned = enrolled(HPE, &one(HPE)).unwrap();
    assert_eq!(pinned.serial, None);
    assert_eq!(kind(&checked(&pinned, &with_serial(HPE, "CZ20010ABC"))), "Match");
    let refused = checked(&pinned, &with_serial(HPE, "CZ20010ABD"));
    assert_eq!(kind(&refused), "Ambiguous");
    assert!(
        refused.to_string().contains("CZ20010ABD") && refused.to_string().contains("20010ABC"),
        "{refused}"
    );
    // It never permits: the right serial under another machine's UUID.
    pinned.machine = id(OTHER);
    assert_eq!(kind(&checked(&pinned, &with_serial(HPE, "CZ20010ABC"))), "Mismatch");
}

#[test]
fn secondary_facts_refuse_and_never_permit() {
    let mut pinned = enrolled(P, &with_serial(P, "CZ20010ABC")).unwrap();
    assert_eq!(pinned.serial.as_deref(), Some("CZ20010ABC"));
    pinned.manager = Some("m-1".to_owned());
    pinned.tls_key = Some("aa".to_owned());
    let seen = |serial: &str, manager: Option<&str>, key: Option<&str>| IdentityFacts {
        manager_uuid: manager.map(str::to_owned),
        tls_key_sha256: key.map(str::to_owned),
        ..with_serial(P, serial)
    };
    let rows: &[(&str, IdentityFacts, &str)] = &[
        ("all the same", seen("CZ20010ABC", Some("m-1"), Some("aa")), "Match"),
        ("bmc A37, A38: another serial", seen("CZ20010ABD", Some("m-1"), Some("aa")), "Ambiguous"),
        ("bmc A37, A38: another manager", seen("CZ20010ABC", Some("m-2"), Some("aa")), "Ambiguous"),
        ("bmc D23: another key", seen("CZ20010ABC", Some("m-1"), Some("bb")), "Ambiguous"),
        ("a pinned key is not shown", seen("CZ20010ABC", Some("m-1"), None), "Ambiguous"),
        ("no manager given", seen("CZ20010ABC", None, Some("aa")), "Match"),
        (
            "bmc A31: a placeholder serial is absent",
            seen("To be filled by O.E.M.", Some("m-1"), Some("aa")),
            "Match",
        ),
        ("bmc A31: blanks", seen("  ", Some("m-1"), Some("aa")), "Match"),
        (
            "serials do not stand in for a UUID",
            IdentityFacts { ..with_serial(OTHER, "CZ20010ABC") },
            "Mismatch",
        ),
    ];
    for (case, facts, want) in rows {
        let verdict = checked(&pinned, facts);
        assert_eq!(kind(&verdict), *want, "{case}: {verdict}");
    }
    for nobody in ["Default string", "0123456789", "To be filled by O.E.M.", "00000000", " "] {
        assert_eq!(enrolled(P, &with_serial(P, nobody)).unwrap().serial, None, "{nobody:?}");
    }
    // What was not pinned cannot refuse later.
    assert_eq!(kind(&checked(&pin(Transform::Rfc), &seen("new", Some("m-9"), Some("cc")))), "Match");
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

proptest::proptest! {
    #[test]
    fn match_means_that_the_pinned_member_gives_exactly_the_pinned_machine(
        bytes: [u8; 16],
        order in 0_usize..4,
        pinned in 0_usize..4,
    ) {
        proptest::prop_assume!(MachineId::from_bytes(bytes).is_ok());
        let machine = MachineId::from_bytes(bytes).unwrap();
        let sent = MachineId::from_bytes(Transform::ALL[order].unapply(bytes)).unwrap();
        let pinned = Pin { machine, ..pin(Transform::ALL[pinned]) };
        let verdict = checked(&pinned, &one(&sent.to_string()));
        let equal = pinned.transform.apply(sent.bytes()) == bytes;
        proptest::prop_assert_eq!(verdict.is_match(), equal, "{}", verdict);
    }

    #[test]
    fn any_text_of_a_bmc_gets_an_answer(texts in proptest::collection::vec("\\PC{0,60}", 0..4)) {
        let members: Vec<_> = texts.iter().enumerate().map(|(i, t)| given(&format!("/m/{i}"), t)).collect();
        proptest::prop_assert!(!checked(&pin(Transform::Rfc), &facts(&members)).is_match());
        let _ = enrolled(P, &facts(&members));
    }
}
