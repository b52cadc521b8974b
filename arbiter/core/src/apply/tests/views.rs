//! Views as a leader would take them: of a node that is silent for everybody, with whatever its BMC says.

use coroner_shared::beacon::{Answer, Path, ProbeOutcome};
use coroner_shared::id::NodeName;
use coroner_shared::time::Span;

use super::world::{World, name, replica, secs};
use crate::view::{
    BmcRead, BmcView, FleetView, LeaseView, ObserverView, ProbeView, Said, Sign, Standing, View,
};

/// How long the node of a [`World::view`] has been silent: past the deadline of E2.
pub(crate) const SILENT: Span = Span::from_secs(12);

impl World {
    /// Node `n` as everybody but its BMC sees it: dead for 12 s.
    pub(crate) fn view(&self, n: u32) -> View {
        let members = self.state.members();
        let others: Vec<NodeName> =
            self.state.nodes.keys().filter(|other| **other != name(n)).cloned().collect();
        let nothing = |path| ProbeOutcome {
            path,
            answer: Answer::Nothing,
            asked_ago: secs(2),
            worked_ago: Some(secs(70)),
        };
        let probes = vec![nothing(Path::Agent), nothing(Path::Kubelet), nothing(Path::Ping)];
        let observers = others.iter().take(8).map(|other| ObserverView {
            node: other.clone(),
            domain: self.state.nodes[other].domain.clone(),
            standing: Standing::Eligible,
            said: Said::Silent { silent: SILENT },
            probes: probes.clone(),
        });
        let asked = others.iter().rev().take(3).map(|other| ProbeView {
            prober: other.clone(),
            asked_ago: secs(3),
            outcomes: probes.clone(),
            answered: true,
        });
        View {
            node: name(n),
            incarnation: self.life(n),
            leader: replica(1),
            term: 3,
            own_host: false,
            members,
            last_sign: Some(Sign { age: SILENT, held_by: "n2".to_owned(), beacon: Some((self.boot(n), 7)) }),
            group_age: secs(3600),
            observers: observers.collect(),
            domain: self.node(n).domain.clone(),
            probes: asked.collect(),
            bmc: vec![],
            sibling_answers: Some(true),
            lease: LeaseView {
                readable: true,
                changed_ago: Some(secs(13)),
                watched_for: secs(3600),
                interval: secs(10),
            },
            fleet: FleetView {
                others_alive: members - 1,
                unexplained: 0,
                partial: 0,
                quorum: true,
                domain_members: 1,
                domain_silent: 1,
                correlated_for: None,
                storm_members: 1,
                storm_domains: 1,
            },
            goodbye: None,
            untold: None,
            duplicate: false,
        }
    }
}

impl View {
    fn bmc_says(mut self, read: &BmcRead) -> Self {
        let of =
            |id| BmcView { replica: replica(id), read: read.clone(), steady: true, age: Span::from_ms(200) };
        self.bmc = vec![of(1), of(2), of(3)];
        self
    }

    /// Its BMC says Off.
    pub(crate) fn off(self) -> Self {
        self.bmc_says(&BmcRead::Off { reads: 4, over: secs(2) })
    }

    /// Its BMC says On.
    pub(crate) fn on(self) -> Self {
        self.bmc_says(&BmcRead::On)
    }

    /// Its BMC has been silent since.
    pub(crate) fn bmc_silent(self) -> Self {
        self.bmc_says(&BmcRead::Silent { since: secs(10) })
    }

    /// Its BMC says something else.
    pub(crate) fn unclear(self, what: &str) -> Self {
        self.bmc_says(&BmcRead::Unclear { what: what.to_owned(), since: secs(10) })
    }

    /// Its kernel answers every prober, and nothing else does.
    pub(crate) fn answers(mut self) -> Self {
        for probe in self.probes.iter_mut().flat_map(|p| &mut p.outcomes) {
            probe.answer = Answer::Answered;
        }
        self.on()
    }

    /// It was heard just now.
    pub(crate) fn alive(mut self) -> Self {
        if let Some(sign) = &mut self.last_sign {
            sign.age = Span::from_ms(100);
        }
        for observer in &mut self.observers {
            observer.said = Said::Hears { ago: Span::from_ms(100) };
        }
        self.lease.changed_ago = Some(secs(1));
        self.on()
    }

    /// Many others fell silent with it.
    pub(crate) fn in_a_storm(mut self, members: u32) -> Self {
        self.fleet.storm_members = members;
        self.fleet.storm_domains = members;
        self
    }
}
