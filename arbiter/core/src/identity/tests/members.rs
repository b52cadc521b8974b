//! Which member of a BMC is the machine, and what the facts beside its UUID may say.

use super::*;

fn with_serial(uuid: &str, serial: &str) -> IdentityFacts {
    let read = MemberRead::Read { uuid: Some(uuid.to_owned()), serial: Some(serial.to_owned()) };
    facts(&[MemberFacts { path: ONE.to_owned(), read }])
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
