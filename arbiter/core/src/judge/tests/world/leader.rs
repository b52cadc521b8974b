//! What the replicas do: elections, reading BMCs, the leader's desk, and the log in place of a real one.

use super::*;

impl World {
    /// 1.5 s after the leader's host stopped, the next replica that runs and reaches a majority leads.
    pub(super) fn elect(&mut self) {
        let led = self.reaches_majority(self.leader);
        match (led, self.leaderless) {
            (true, _) => self.leaderless = None,
            (false, None) => self.leaderless = Some(self.now),
            (false, Some(since)) if self.now >= since + 1500 => {
                if let Some(next) = (0..self.reps.len()).find(|r| self.reaches_majority(*r)) {
                    self.leader = next;
                    self.new_leader();
                }
            }
            (false, Some(_)) => {}
        }
    }

    /// The leader begins a new term with an empty desk.
    pub(crate) fn new_leader(&mut self) {
        self.term += 1;
        self.judge = Judge::new(at(self.now));
        self.pool = Pool::new(self.reps[self.leader].id);
        self.last = JudgeOutput::default();
        self.led_since = self.now;
        self.leaderless = None;
    }

    pub(super) fn reaches_majority(&self, r: usize) -> bool {
        let host = self.reps[r].host;
        let there = self.reps.iter().filter(|other| {
            self.hosts[other.host].replica && self.linked(host, other.host) && self.linked(other.host, host)
        });
        self.hosts[host].replica && there.count() * 2 > self.reps.len()
    }

    pub(super) fn read_bmcs(&mut self, wanted: &[(NodeName, Mono)]) {
        let now = self.now;
        for rep in &mut self.reps {
            if !self.hosts[rep.host].replica {
                continue;
            }
            for (node, _) in wanted {
                let reads = rep.reads.entry(node.clone()).or_default();
                if reads.last().is_none_or(|(at, _)| now >= at + 500) {
                    reads.push((now, self.hosts[index_of(node)].bmc));
                }
            }
        }
    }

    pub(super) fn bmc_book(&self, wanted: &[(NodeName, Mono)]) -> BmcBook {
        let mut book = BmcBook::new();
        for (node, failed) in wanted {
            for rep in self.reps.iter().filter(|r| self.hosts[r.host].replica) {
                let reads = rep.reads.get(node).map(Vec::as_slice).unwrap_or_default();
                let view =
                    bmc_view(rep.id, reads, failed.as_ms(), self.now, self.hosts[index_of(node)].steady);
                book.entry(node.clone()).or_default().push(view);
            }
        }
        book
    }

    pub(super) fn lead(&mut self) {
        let now = at(self.now);
        for r in 0..self.reps.len() {
            let to = self.reps[self.leader].host;
            let from = self.reps[r].host;
            if !self.hosts[from].replica || !self.linked(from, to) {
                continue;
            }
            let urgent = !self.last.judged.is_empty() && self.now >= self.reps[r].handed + 100;
            if r == self.leader || urgent || self.now >= self.reps[r].handed + 250 {
                self.reps[r].handed = self.now;
                let summary = self.reps[r].witness.summary(now, &self.state);
                self.pool.absorb(now, summary);
            }
        }
        let mut wanted: Vec<(NodeName, Mono)> =
            self.last.read_bmc.iter().map(|w| (w.node.clone(), w.failure_date)).collect();
        for i in &self.always_read {
            if !wanted.iter().any(|(n, _)| *n == name(*i)) {
                wanted.push((name(*i), at(0)));
            }
        }
        self.read_bmcs(&wanted);
        let bmc = self.bmc_book(&wanted);
        let siblings = self
            .hosts
            .iter()
            .map(|h| (h.name.clone(), self.hosts.iter().any(|o| o.name != h.name && o.bmc != Bmc::Gone)));
        let siblings = siblings.collect();
        let leases = self.leases();
        let sight = Sight {
            state: &self.state,
            pool: &self.pool,
            bmc: &bmc,
            siblings: &siblings,
            leases: &leases,
            me: self.reps[self.leader].id,
            term: self.term,
            quorum: self.reaches_majority(self.leader),
            group_age: self.group_age + Span::from_ms(self.now - self.started),
        };
        let output = self.judge.step(now, &sight);
        for ask in &output.ask_probes {
            self.ask(&ask.prober, &ask.ask);
        }
        self.commands.extend(output.commands.iter().map(|c| (self.now, c.clone())));
        if self.applies {
            let quiet = at(self.now).since(self.state.now);
            if crate::jobs::tick_after(&self.state).is_some_and(|after| quiet >= after) {
                self.commit(Command::Tick);
            }
            for command in output.commands.clone() {
                self.commit(command);
            }
        }
        self.last = output;
    }

    pub(super) fn leases(&self) -> LeaseBook {
        let seen = |h: &Host| LeaseSeen {
            changed: (h.renewed > self.watched).then_some(at(h.renewed)),
            interval: Span::from_secs(10),
        };
        LeaseBook {
            readable: self.api,
            watched_since: Some(at(self.watched)),
            leases: self.hosts.iter().map(|h| (h.name.clone(), seen(h))).collect(),
        }
    }

    /// Applies a command as an entry of the log.
    pub(crate) fn commit(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let span = at(self.now).since(self.state.now);
        let leader = self.reps[self.leader].id;
        let entry = Entry { span, leader, term: self.term, key: format!("k{}", self.index), command };
        let outcome = apply(&mut self.state, self.index, &entry);
        for rep in &mut self.reps {
            rep.witness.sync(at(self.now), &self.state);
        }
        outcome
    }

    /// A replica restarts and has heard nobody.
    pub(crate) fn forget(&mut self, r: usize) {
        let mut witness = Witness::new(self.reps[r].id, self.now, at(self.now));
        witness.sync(at(self.now), &self.state);
        self.reps[r].witness = witness;
    }
}

// === helpers ===

fn bmc_view(replica: ReplicaId, reads: &[(u64, Bmc)], failed: u64, now: u64, steady: bool) -> BmcView {
    let since: Vec<&(u64, Bmc)> = reads.iter().filter(|(at, _)| *at > failed).collect();
    let Some((newest, what)) = since.last() else {
        return BmcView { replica, read: BmcRead::NotRead, steady, age: Span::MAX };
    };
    let run: Vec<u64> = since.iter().rev().take_while(|(_, b)| b == what).map(|(at, _)| *at).collect();
    let first = run.last().copied().unwrap_or(*newest);
    let read = match what {
        Bmc::On => BmcRead::On,
        Bmc::Off => {
            BmcRead::Off { reads: u32::try_from(run.len()).unwrap(), over: Span::from_ms(newest - first) }
        }
        Bmc::Gone => BmcRead::Silent { since: Span::from_ms(now - first) },
        Bmc::Odd => BmcRead::Unclear { what: "odd".into(), since: Span::from_ms(now - first) },
    };
    BmcView { replica, read, steady, age: Span::from_ms(now - newest) }
}
