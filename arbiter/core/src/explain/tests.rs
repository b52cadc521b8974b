//! What a person reads.

use crate::apply::tests::world::{World, name};
use crate::phase::{EvidenceClass, HeldReason};
use crate::policy::Rules;
use crate::verdict::tests::{dead_host, ms};
use crate::verdict::verdict;
use crate::view::{BmcRead, Said, Standing, Verdict, View};

use super::explain;

fn explained(change: impl FnOnce(&mut View)) -> String {
    let mut view = dead_host();
    change(&mut view);
    explain(&view, &verdict(&view, &Rules::BALANCED), &Rules::BALANCED).join("\n")
}

#[test]
fn a_dead_host_is_explained_from_end_to_end() {
    let text = explained(|v| {
        v.observers.truncate(3);
        v.observers[1].said = Said::Hears { ago: ms(9000) };
        v.observers[2].standing = Standing::OutvotedBySubjects;
        v.observers[0].domain = "r1".into();
        v.bmc.truncate(1);
        v.bmc[0].read = BmcRead::Off { reads: 2, over: ms(500) };
    });
    let expected = "\
victim counts as dead: its machine is off (class FoundOff).
The last sign of life that anybody holds is of 10.00s before (replica 2, beacon 5 of boot \
01010101-0101-0101-0101-010101010101). It is heard while that is younger than 1.25s; silent with its BMC on it is dead \
after 8.00s.
1 of its 3 observers that may accuse are silent about it, from 1 other failure domain; 6 from 1 are needed. \
Among 20 members it should have 8 observers.
Observer o0 (r1) has not heard it for 10.00s.
Observer o1 (r0) said that it hears it, 9.00s before.
Observer o2 (r1) has not heard it for 10.00s, and may not accuse: others hear at least half of those it calls silent: it \
may be deaf.
3 agents were asked since to probe it, 3 of them reported.
Nothing that it answered since stands: no agent, no ping, no TCP accept, no reset.
Replica 1 read Off 2 times in a row over 500ms (steady, 300ms before).
Another BMC on its network answers.
Its kubelet last renewed its Lease 20.00s before, and usually does every 10.00s.
Of 19 other members that are Alive or held as ArbiterBlind, 0 are silent without anybody saying why, and 0 are heard by some only.
Judged again on this record, the verdict is the same.";
    assert_eq!(text, expected);
}

#[test]
fn hearing_that_is_lost_is_said_where_it_moves_the_deadline() {
    let text = explained(|v| v.untold = Some(ms(2000)));
    assert!(
        text.contains(
            "A replica of whose hearing nothing is left may have heard it until 2.00s before; the deadline runs from there."
        ),
        "{text}"
    );
    assert!(text.starts_with("victim is not decided: its deadline is 6.00s away."), "{text}");
    let text = explained(|v| v.untold = Some(ms(10_000)));
    assert!(!text.contains("nothing is left"), "{text}");
}

#[test]
fn every_refusal_says_what_would_change_it_or_what_it_is() {
    for (change, words) in [
        ((|v| v.fleet.partial = 19) as fn(&mut View), "heard by some and not by others"),
        (|v| v.lease.changed_ago = Some(ms(1)), "has missed no renewal since"),
        (|v| v.members = 2, "two nodes can never judge each other"),
        (|v| v.observers.clear(), "too few observers"),
        (|v| v.bmc.clear(), "no BMC is bound to it"),
        (|v| v.lease.readable = false, "the API server cannot be read"),
        (|v| v.duplicate = true, "two machines use its identity"),
        (|v| v.fleet.unexplained = 9, "the arbiter may be cut off"),
        (|v| v.probes.clear(), "have not come back"),
        (|v| v.own_host = true, "does not judge the host it runs on"),
        (|v| v.lease.changed_ago = Some(ms(10_500)), "is 500ms away"),
        (|v| v.lease.changed_ago = Some(ms(1000)), "may live; that is 10.00s away"),
    ] {
        let text = explained(change);
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
        assert!(text.ends_with("the verdict is the same."));
    }
}

#[test]
fn a_record_that_was_changed_says_so() {
    let view = dead_host();
    for decided in [Verdict::Dead(EvidenceClass::FoundOff), Verdict::Held(HeldReason::BmcSilent)] {
        let said = explain(&view, &decided, &Rules::BALANCED);
        assert!(said.last().is_some_and(|s| s.contains("ANOTHER")), "{said:?}");
    }
}

#[test]
fn a_node_that_nobody_suspects_is_not_called_heard_unless_it_is() {
    let mut w = World::new(5);
    let said = |w: &World, heard: Option<u64>, leads| {
        let mut summary = crate::status::node(&w.state, &name(1)).unwrap();
        summary.heard_ago = heard.map(ms);
        super::unsuspected(&summary, leads).join(" ")
    };
    assert_eq!(
        said(&w, Some(900), true),
        "Nothing speaks against it: the last sign of life of it came 900ms ago."
    );
    assert!(said(&w, None, true).contains("Nobody has heard it"));
    assert!(said(&w, None, false).contains("known on the leader"));
    w.boot_without_agent(1);
    assert!(said(&w, Some(900), true).ends_with("of any boot of it came 900ms ago."), "of the one before");
    let text = said(&w, None, true);
    for part in
        ["n1 is Unregistered", &w.boot(1).to_string(), "not judged", "coroner fence", "Nobody has heard it"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}
