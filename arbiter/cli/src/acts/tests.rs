//! When nobody is asked to vouch for anything.

use coroner_shared::api::NodeSummary;
use coroner_shared::id::NodeName;

use super::{Verb, pointless};

fn summary(phase: &str) -> NodeSummary {
    NodeSummary {
        node: NodeName::new("n1").unwrap(),
        phase: phase.to_owned(),
        reason: None,
        age: coroner_shared::time::Span::ZERO,
        next: String::new(),
        advice: None,
        incident: None,
        uid: None,
        boot: Some("01010101-0101-0101-0101-010101010101".parse().unwrap()),
        machine: None,
        domain: "r1".to_owned(),
        mode: "Enforce".to_owned(),
        policy: None,
        heard_ago: None,
        bmc: None,
        findings: Vec::new(),
    }
}

fn held() -> NodeSummary {
    NodeSummary { incident: Some(serde_json::from_str("\"n1-00000001\"").unwrap()), ..summary("Held") }
}

#[test]
fn a_confirmation_of_what_nobody_holds_is_refused_before_anybody_vouches() {
    let said = pointless(Verb::ConfirmOff, &summary("Alive")).unwrap();
    for part in
        ["n1 is Alive", "no incident is open", "`coroner explain n1`", "`coroner fence n1 --reason WHY`"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let bootless = NodeSummary { boot: None, ..held() };
    assert!(
        pointless(Verb::ConfirmOff, &bootless).is_some_and(|said| said.contains("no boot of it is known"))
    );
    assert!(pointless(Verb::Return, &summary("Alive")).is_some_and(|said| said.contains("no return to end")));
    for verb in [Verb::ConfirmOff, Verb::Return, Verb::Fence, Verb::Repin, Verb::ClearHeld] {
        assert_eq!(pointless(verb, &held()), None);
    }
    for verb in [Verb::Fence, Verb::Repin, Verb::ClearHeld] {
        assert_eq!(
            pointless(verb, &summary("Alive")),
            None,
            "what of these is refused is the leader's to say"
        );
    }
}
