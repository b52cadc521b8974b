//! One kind of evidence each.

use coroner_shared::beacon::{Answer, GoodbyeKind, Path, SelfDoubt};
use coroner_shared::time::Span;

use super::{before, count};
use crate::policy::Rules;
use crate::verdict::{
    Quorum, goodbye_left, is_blind, is_correlated, is_torn, standing_answers, until_missed,
};
use crate::view::{BmcRead, ObserverView, Planned, Said, Standing, View};
use crate::words;

pub(super) fn silence(view: &View, rules: &Rules) -> String {
    let said = match &view.last_sign {
        Some(sign) => {
            let beacon =
                sign.beacon.map_or_else(String::new, |(boot, seq)| format!(", beacon {seq} of boot {boot}"));
            format!(
                "The last sign of life that anybody holds is of {} ({}{beacon}). It is heard while that is younger than {}; \
                 silent with its BMC on it is dead after {}.",
                before(sign.age),
                sign.held_by,
                rules.beacons.suspect,
                rules.silent_bmc_on
            )
        }
        None => format!("No sign of life came since these replicas started, {}.", before(view.group_age)),
    };
    match view.untold.filter(|untold| *untold < view.silence()) {
        Some(untold) => format!(
            "{said} A replica of whose hearing nothing is left may have heard it until {}; the deadline runs from there.",
            before(untold)
        ),
        None => said,
    }
}

pub(super) fn observers(view: &View, rules: &Rules) -> Vec<String> {
    let quorum = Quorum::of(view, rules);
    let domains = if quorum.topology_weak {
        format!("{} (no other failure domain has one that counts)", count(quorum.domains, "host"))
    } else {
        count(quorum.domains, "other failure domain")
    };
    let there = view.observers.len();
    let few = if there < quorum.due {
        format!(" Among {} members it should have {}.", view.members, count(quorum.due, "observer"))
    } else {
        String::new()
    };
    let mut said = vec![format!(
        "{} of its {} that may accuse are silent about it, from {domains}; {} from {} are needed.{few}",
        quorum.silent.len(),
        count(there, "observer"),
        quorum.needed,
        quorum.domains_needed
    )];
    said.extend(view.observers.iter().map(observer));
    said
}

fn observer(observer: &ObserverView) -> String {
    let (node, domain) = (&observer.node, &observer.domain);
    let says = match &observer.said {
        Said::Silent { silent } => format!("has not heard it for {silent}"),
        Said::Hears { ago } => format!("said that it hears it, {}", before(*ago)),
        Said::Nothing => "says nothing of it".to_owned(),
    };
    match standing(&observer.standing) {
        None => format!("Observer {node} ({domain}) {says}."),
        Some(why) => format!("Observer {node} ({domain}) {says}, and may not accuse: {why}."),
    }
}

fn standing(standing: &Standing) -> Option<&'static str> {
    match standing {
        Standing::Eligible => None,
        Standing::NotAlive => Some("it is not Alive itself"),
        Standing::Unheard => Some("no replica has heard it lately"),
        Standing::UnregisteredBoot => Some("it speaks of a boot that is not registered"),
        Standing::Doubts(doubt) => Some(match doubt {
            SelfDoubt::LateTick => "it was late or paused itself",
            SelfDoubt::ReceiveDrops => "it lost datagrams",
            SelfDoubt::Pressure => "it is short of CPU or memory",
            SelfDoubt::Suspended => "it was suspended",
            SelfDoubt::NoArbiter => "it had no answer of any replica",
        }),
        Standing::OutvotedBySubjects => {
            Some("others hear at least half of those it calls silent: it may be deaf")
        }
        Standing::NeverHeardIt => Some("it never heard it since it was assigned"),
        Standing::NoWorkingPath => Some("no path of it to the node worked in the 10 minutes before"),
    }
}

pub(super) fn probes(view: &View) -> Vec<String> {
    let age = view.silence();
    let asked: Vec<_> = view.probes.iter().filter(|p| p.asked_ago < age).collect();
    let answered = asked.iter().filter(|p| p.answered).count();
    let mut said = vec![format!(
        "{} asked since to probe it, {answered} of them reported.",
        if asked.len() == 1 { "1 agent was".into() } else { format!("{} were", count(asked.len(), "agent")) }
    )];
    let standing = standing_answers(view);
    if standing.is_empty() {
        said.push(
            "Nothing that it answered since stands: no agent, no ping, no TCP accept, no reset.".into(),
        );
    }
    said.extend(
        standing
            .iter()
            .map(|(who, path, answer)| format!("It answered {who} {}.", answer_in_words(*path, *answer))),
    );
    said
}

fn answer_in_words(path: Path, answer: Answer) -> String {
    let on = match path {
        Path::Agent => "on the agent's port",
        Path::Kubelet => "on the kubelet's port",
        Path::Ping => "with a ping",
    };
    match answer {
        Answer::Answered => format!("{on}: a reply"),
        Answer::Accepted => format!("{on}: accepted"),
        Answer::Reset => format!("{on}: refused, so its kernel lives"),
        Answer::Nothing => format!("{on}: nothing"),
        Answer::NotSent => format!("{on}: not sent"),
    }
}

pub(super) fn power(view: &View, rules: &Rules) -> Vec<String> {
    if view.bmc.is_empty() {
        return vec!["No BMC is bound to it.".into()];
    }
    let mut said: Vec<String> = view
        .bmc
        .iter()
        .map(|b| {
            let read = match &b.read {
                BmcRead::Off { reads, over } => format!("read Off {} in a row over {over}", times(*reads)),
                BmcRead::On => "read On".to_owned(),
                BmcRead::Silent { since } => format!("has had no answer of the BMC for {since}"),
                BmcRead::Unclear { what, since } => {
                    format!("has had neither On nor Off for {since}: {}", words::bmc_unclear(what))
                }
                BmcRead::NotRead => "has not read the BMC since".to_owned(),
            };
            let steady = if b.steady { "steady" } else { "not steady: Off must last 30 s" };
            let old = if b.age > rules.bmc_silent { ", too old to count" } else { "" };
            let when = if b.age == Span::MAX { String::new() } else { format!(", {}", before(b.age)) };
            format!("Replica {} {read} ({steady}{when}{old}).", b.replica)
        })
        .collect();
    match view.sibling_answers {
        Some(true) => said.push("Another BMC on its network answers.".into()),
        Some(false) => said.push("No other BMC on its network answers.".into()),
        None => {}
    }
    said
}

fn times(n: u32) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

pub(super) fn kubelet(view: &View) -> String {
    let lease = &view.lease;
    let api = if lease.readable { "" } else { " The API server cannot be read now." };
    let due = until_missed(view).map_or_else(String::new, |left| {
        format!(" It has not missed a renewal yet, so it may live; that is {left} away.")
    });
    match lease.changed_ago {
        Some(ago) => format!(
            "Its kubelet last renewed its Lease {}, and usually does every {}.{due}{api}",
            before(ago),
            lease.interval
        ),
        None => format!(
            "Its kubelet has not renewed its Lease while it was watched, for {}.{due}{api}",
            lease.watched_for
        ),
    }
}

pub(super) fn fleet(view: &View) -> Vec<String> {
    let fleet = &view.fleet;
    let mut said = vec![format!(
        "Of {} other members that are Alive or held as ArbiterBlind, {} are silent without anybody saying why{}, and {} are heard by some only{}.",
        fleet.others_alive,
        fleet.unexplained,
        if is_blind(fleet) { " (too many, or no quorum)" } else { "" },
        fleet.partial,
        if is_torn(fleet) { " (too many)" } else { "" },
    )];
    if fleet.domain_silent > 1 || fleet.correlated_for.is_some() {
        said.push(format!(
            "{} of the {} nodes of {} fell silent within 5 s of each other{}.",
            fleet.domain_silent,
            fleet.domain_members,
            view.domain,
            if is_correlated(fleet) { ": a correlated set" } else { "" },
        ));
    }
    if view.duplicate {
        said.push("Two boot ids or addresses use its identity at once.".into());
    }
    if view.own_host {
        said.push(format!("It is the host of replica {}, which took this view.", view.leader));
    }
    said
}

pub(super) fn goodbye(view: &View, rules: &Rules) -> Option<String> {
    let Planned { kind, ago, seq: _ } = view.goodbye?;
    let what = match kind {
        GoodbyeKind::AgentRestart => "a restart of its agent",
        GoodbyeKind::Reboot => "a reboot",
        GoodbyeKind::Shutdown => "a shutdown",
    };
    let stands = match goodbye_left(view, rules) {
        Some((_, left)) => format!("it stands for another {left}"),
        None => "it is over".to_owned(),
    };
    Some(format!("It announced {what}, {}; {stands}.", before(ago)))
}
