//! Byte orders: the worked examples, and that only the pinned order counts.

use super::*;

/// What the IPMI driver names the 16 raw bytes of *Get System GUID*.
const IPMI: &str = "ipmi";

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
pub(super) const EXAMPLE_BYTES: [(&str, [&str; 4]); 4] = [
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
