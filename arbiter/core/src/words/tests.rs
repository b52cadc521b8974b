//! What people are told of a BMC that belongs to another machine.

use super::{LAST_READ_ADVICE, MISMATCH, STALLED_ADVICE, answers_for, bmc_advice, bmc_unclear};
use crate::apply::tests::world::{World, machine, name};
use crate::identity::IdentityVerdict;
use crate::phase::HeldReason;

/// The texts that the record can hold of such a BMC, each made by who writes it.
fn of_another() -> Vec<String> {
    let answers = answers_for("4c4c4544-0000", machine(1));
    let mismatch = IdentityVerdict::Mismatch { want: "a".to_owned(), got: "b".to_owned() }.to_string();
    let reading = format!("{MISMATCH}pinned is a, a reading speaks of b");
    vec![format!("the BMC {answers}"), answers, mismatch, reading]
}

#[test]
fn nobody_is_told_to_look_at_a_machine_through_the_bmc_of_another() {
    for what in of_another() {
        for why in [HeldReason::BmcUnclear(what.clone()), HeldReason::Identity(what.clone())] {
            let advice = super::hold_advice(&why);
            for part in ["another machine's", "address in its MachineBinding", "`coroner repin`"] {
                assert!(advice.contains(part), "{why:?}: {advice}");
            }
        }
        for usual in [STALLED_ADVICE, LAST_READ_ADVICE] {
            assert_ne!(bmc_advice(&what, usual), usual, "{what}");
        }
        assert!(bmc_unclear(&what).starts_with("its BMC is another machine's ("), "{what}");
    }
    // A BMC of its own that says something odd, also about somebody else's words.
    for what in ["power state PoweringOff", "HTTP 503", "power state answers for \"x\""] {
        assert_eq!(bmc_advice(what, STALLED_ADVICE), STALLED_ADVICE);
        assert!(bmc_unclear(what).starts_with("its BMC gives no power state"), "{what}");
    }
}

#[test]
fn pages_and_status_of_a_swapped_bmc_say_so() {
    for what in of_another() {
        let mut w = World::new(5);
        w.done(crate::command::Command::Judge(Box::new(w.view(1).unclear(&what))));
        let said = crate::status::node(&w.state, &name(1)).unwrap();
        assert!(said.advice.is_some_and(|a| a.contains("another machine's")), "{what}");
        let pages = crate::pages::standing(&w.state, &name(1), w.node(1));
        let text = &pages.iter().find(|p| p.reason == "HeldBmcUnclear").unwrap().text;
        assert!(text.contains("Correct the address") && !text.contains("Look at"), "{text}");
    }
}
