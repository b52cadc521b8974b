//! Which policy speaks for a node: none, one, or a conflict that names all.

use super::{Selected, enforcing, policy_for, rules_for};
use crate::apply::tests::world::{World, name, policy};
use crate::command::Command;
use crate::policy::{Mode, Policy, Rules};

fn of(name: &str, label: Option<(&str, &str)>, mode: Mode) -> Policy {
    let mut policy = policy(mode);
    policy.name = name.to_owned();
    policy.rules = Rules::CONSERVATIVE;
    policy.node_selector = label.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    policy
}

#[test]
fn a_node_goes_by_the_one_policy_whose_labels_it_carries() {
    let mut w = World::new(3);
    w.done(Command::PolicyGone { name: "all".to_owned() });
    let pool = |pool: &'static str| {
        move |f: &mut crate::command::NodeFacts| {
            f.labels.insert("pool".to_owned(), pool.to_owned());
        }
    };
    w.change(1, pool("gpu"));
    w.change(2, pool("cpu"));
    assert_eq!(policy_for(&w.state, &name(1)), Selected::None);
    assert_eq!(rules_for(&w.state, &name(1)), Rules::BALANCED);
    let gpu = of("gpu", Some(("pool", "gpu")), Mode::Enforce);
    w.done(Command::PolicySet(Box::new(gpu.clone())));
    assert_eq!(policy_for(&w.state, &name(1)), Selected::One(&gpu));
    assert_eq!(policy_for(&w.state, &name(2)), Selected::None, "another value");
    assert_eq!(policy_for(&w.state, &name(3)), Selected::None, "no such label");
    assert_eq!(rules_for(&w.state, &name(1)), Rules::CONSERVATIVE);
    assert!(enforcing(&w.state, &name(1)).is_some());
    w.done(Command::PolicySet(Box::new(of("all", None, Mode::Observe))));
    w.done(Command::PolicySet(Box::new(of("zone", Some(("pool", "gpu")), Mode::Enforce))));
    let names = ["all", "gpu", "zone"].map(str::to_owned).to_vec();
    assert_eq!(policy_for(&w.state, &name(1)), Selected::Conflict(names));
    assert!(enforcing(&w.state, &name(1)).is_none());
    assert_eq!(rules_for(&w.state, &name(1)), Rules::BALANCED, "neither speaks for it");
    assert!(enforcing(&w.state, &name(2)).is_none(), "one policy, in Observe");
    assert_eq!(policy_for(&w.state, &name(99)), Selected::None);
}
