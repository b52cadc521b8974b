//! What the hosts do: beacons, silence noticed and reported, probes answered; and what an impostor may do.

use super::*;

impl World {
    pub(super) fn beat(&mut self, i: usize) {
        let now = self.now;
        if self.hosts[i].kubelet && now >= self.hosts[i].renewed + 10_000 {
            self.hosts[i].renewed = now;
        }
        if !self.hosts[i].agent || now < self.hosts[i].next_beat {
            return;
        }
        self.hosts[i].next_beat = now + T;
        self.hosts[i].beats += 1;
        let signed = self.signed(i);
        let captured = self.captured.entry(i).or_default();
        captured.push(signed.clone());
        if captured.len() > 4 {
            captured.remove(0);
        }
        for o in self.state.observers.of(&name(i)).to_vec() {
            let o = index_of(&o);
            if self.hosts[o].agent && !self.hosts[o].deaf && self.linked(i, o) {
                let was = self.hosts[o].silent.remove(&i);
                let heard = Heard { boot: self.hosts[i].boot, seq: now, at: now, beacon: signed.clone() };
                self.hosts[o].heard.insert(i, heard);
                if was {
                    let hearing = Hearing::Heard { beacon: signed.clone(), ago: Span::ZERO };
                    self.says(o, i, hearing);
                }
            }
        }
        if self.hosts[i].beats.is_multiple_of(4) {
            self.status(i, &signed);
        }
    }

    pub(super) fn signed(&self, i: usize) -> SignedBeacon {
        let host = &self.hosts[i];
        let beacon = Beacon {
            node: host.uid.clone(),
            machine: machine(i),
            boot: host.boot,
            seq: self.now,
            health: host.health,
        };
        sign(&beacon)
    }

    pub(super) fn status(&mut self, i: usize, signed: &SignedBeacon) {
        let now = self.now;
        let hears = self.hosts[i].heard.iter().filter(|(_, h)| now - h.at <= S);
        let hears: Vec<NodeUid> = hears.map(|(s, _)| self.hosts[*s].uid.clone()).collect();
        let subjects = self.state.observers.subjects_of(&name(i)).to_vec();
        let worked = subjects.iter().map(|s| WorkedPath {
            subject: self.hosts[index_of(s)].uid.clone(),
            path: Path::Kubelet,
            ago: Span::from_secs(30),
        });
        let status = Status {
            beacon: signed.clone(),
            slice: self.state.membership,
            hears,
            doubts: self.hosts[i].doubts.clone(),
            worked: worked.collect(),
        };
        let proven = Proven::trusted(signed.claims().unwrap());
        for r in 0..self.reps.len() {
            if self.replica_hears(r, i) {
                self.reps[r].witness.beacon(at(now), &proven, Some(address(i)));
                self.reps[r].witness.status(at(now), &self.hosts[i].uid, &status, &proven);
            }
        }
    }

    /// Notices silence as an agent does: S without a beacon, then two probes.
    pub(super) fn observe(&mut self, o: usize) {
        if !self.hosts[o].agent || self.hosts[o].mute {
            return;
        }
        let now = self.now;
        for s in self.state.observers.subjects_of(&name(o)).to_vec() {
            let s = index_of(&s);
            let since = self.hosts[o].heard.get(&s).map_or(self.started, |h| h.at);
            if now - since > S + PROBED && !self.hosts[o].silent.contains(&s) {
                let hearing = Hearing::Silent {
                    silent: Span::from_ms(now - since),
                    last: self.hosts[o].heard.get(&s).map(|h| (h.boot, h.seq)),
                    probes: self.probe(o, s, 100),
                };
                self.hosts[o].silent.insert(s);
                self.says(o, s, hearing);
            }
        }
    }

    /// What a probe sent `ago` milliseconds ago found.
    pub(super) fn probe(&self, from: usize, to: usize, ago: u64) -> Vec<ProbeOutcome> {
        let there = self.linked(from, to) && self.linked(to, from);
        let (kubelet, ping) = match (there, self.hosts[to].kubelet, self.hosts[to].kernel) {
            (true, true, _) => (Answer::Accepted, Answer::Answered),
            (true, false, true) => (Answer::Reset, Answer::Answered),
            (true, false, false) | (false, _, _) => (Answer::Nothing, Answer::Nothing),
        };
        let outcome = |path, answer| ProbeOutcome {
            path,
            answer,
            asked_ago: Span::from_ms(ago),
            worked_ago: Some(Span::from_secs(30)),
        };
        vec![outcome(Path::Kubelet, kubelet), outcome(Path::Ping, ping)]
    }

    pub(super) fn says(&mut self, o: usize, s: usize, hearing: Hearing) {
        self.hosts[o].number += 1;
        let number = self.hosts[o].number;
        let report = Report { subject: self.hosts[s].uid.clone(), hearing };
        for rep in &mut self.reps {
            let owed = rep.owed.entry(o).or_default();
            owed.0 = number;
            owed.1.retain(|r| r.subject != report.subject);
            owed.1.push(report.clone());
        }
    }

    /// All that an observer calls silent, told again every 30 s.
    pub(super) fn repeat(&mut self, o: usize) {
        if !self.hosts[o].agent || !self.now.is_multiple_of(30_000) {
            return;
        }
        for s in self.hosts[o].silent.clone() {
            let heard = self.hosts[o].heard.get(&s);
            let hearing = Hearing::Silent {
                silent: Span::from_ms(self.now - heard.map_or(self.started, |h| h.at)),
                last: heard.map(|h| (h.boot, h.seq)),
                probes: Vec::new(),
            };
            self.says(o, s, hearing);
        }
    }

    /// Reports reach every replica that can be reached, the others later.
    pub(super) fn deliver(&mut self) {
        for r in 0..self.reps.len() {
            for (o, (number, reports)) in std::mem::take(&mut self.reps[r].owed) {
                if !self.hosts[o].agent {
                    continue;
                }
                if !self.replica_hears(r, o) {
                    self.reps[r].owed.insert(o, (number, reports));
                    continue;
                }
                let batch = ReportBatch {
                    boot: self.hosts[o].boot,
                    number,
                    snapshot: false,
                    doubts: self.hosts[o].doubts.clone(),
                    reports,
                };
                let checked = CheckedBatch::trusted(&batch);
                self.reps[r].witness.reports(at(self.now), &self.hosts[o].uid, &checked);
            }
        }
    }

    pub(super) fn answer_probes(&mut self) {
        let now = self.now;
        let due: Vec<_> = {
            let (due, later) =
                std::mem::take(&mut self.answers).into_iter().partition(|(at, _, _)| *at <= now);
            self.answers = later;
            due
        };
        for (_, prober, answer) in due {
            for r in 0..self.reps.len() {
                if self.hosts[prober].agent && self.replica_hears(r, prober) {
                    let checked = CheckedAnswer::trusted(&answer);
                    self.reps[r].witness.probe_answer(at(now), &self.hosts[prober].uid, &checked);
                }
            }
        }
    }

    /// Another machine with this host's key speaks to the replicas.
    pub(crate) fn impostor(&mut self, i: usize, boot: BootId) {
        let beacon = Beacon {
            node: self.hosts[i].uid.clone(),
            machine: machine(i),
            boot,
            seq: self.now,
            health: HealthSummary::GOOD,
        };
        for rep in &mut self.reps {
            rep.witness.beacon(at(self.now), &Proven::trusted(beacon.clone()), None);
        }
    }

    /// The beacons of the last second.
    pub(crate) fn captured(&self, i: usize) -> Vec<SignedBeacon> {
        self.captured[&i].clone()
    }

    /// Somebody sends an old beacon again, to replicas and observers.
    pub(crate) fn replay(&mut self, i: usize, beacon: &SignedBeacon) {
        let proven = Proven::trusted(beacon.claims().unwrap());
        for rep in &mut self.reps {
            rep.witness.beacon(at(self.now), &proven, None);
        }
        for o in self.state.observers.of(&name(i)).to_vec() {
            self.says(index_of(&o), i, Hearing::Heard { beacon: beacon.clone(), ago: Span::ZERO });
        }
    }

    pub(super) fn ask(&mut self, prober: &NodeName, ask: &AskProbe) {
        self.asked += 1;
        let (from, to) = (index_of(prober), self.index_of_uid(&ask.subject));
        let to_agent = self.linked(self.reps[self.leader].host, from);
        if !self.hosts[from].agent || !to_agent {
            return;
        }
        let mut outcomes = self.probe(from, to, 300);
        let held = self.hosts[from].heard.get(&to);
        outcomes.push(ProbeOutcome {
            path: Path::Agent,
            answer: Answer::Nothing,
            asked_ago: Span::from_ms(300),
            worked_ago: held.map(|h| Span::from_ms(self.now + 300 - h.at)),
        });
        let beacon = held.map(|h| h.beacon.clone());
        let answer = ProbeAnswer { number: ask.number, subject: ask.subject.clone(), outcomes, beacon };
        self.answers.push((self.now + 300, from, answer));
    }
}

// === helpers ===

fn sign(beacon: &Beacon) -> SignedBeacon {
    // The signature is not looked at here; one key for all keeps it cheap.
    thread_local! {
        static KEY: SecretKey = SecretKey::from_seed(&[1; 32]);
    }
    let template = KEY.with(|key| SignedBeacon::sign(beacon, key, CLUSTER).unwrap());
    SignedBeacon { signature: [0; 64], ..template }
}
