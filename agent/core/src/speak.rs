//! What the agent says when it is due: beacons, acks, statuses, reports, answers. Part two of `Agent`.

use std::net::{IpAddr, SocketAddr};

use coroner_shared::beacon::{Ack, Beacon, Path, SignedBeacon, Status, WorkedPath};
use coroner_shared::names::PORT_PEER;
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::datagram::Message;

use crate::observers::Due;
use crate::output::{Change, HostPath, Output, ProbeNumber};
use crate::paths::{PATHS, WORKS_FOR};
use crate::peers::Act;
use crate::reports::Speaker;
use crate::{Agent, IDLE_TICK, Own, Tick};

/// Paths named in one status; the list goes on in the next. All 27 of nine subjects would double a status' length, and
/// what a replica is told of a path stays true for minutes.
const PATHS_PER_STATUS: usize = 6;
/// Strangers' probes are answered at most this often.
const STRANGER_EVERY: Span = Span::from_ms(200);

impl Agent {
    /// Acts on everything that is due.
    pub(crate) fn tick(&mut self, now: Mono, tick: Tick) -> Vec<Output> {
        let void = self.trust.tick(now, self.next_wakeup(), tick);
        self.counts.void_rounds += u64::from(void);
        self.idle_due = now + IDLE_TICK;
        let changes = self.trust.changes(now);
        if !changes.is_empty() {
            self.outbox.doubts_changed(now);
        }
        let mut outputs: Vec<Output> = changes.into_iter().map(Output::Changed).collect();
        let Some(own) = self.slice.clone() else { return outputs };
        match self.observers.tick(now, &own.timings, &mut self.chance) {
            Due::Nothing => {}
            Due::Beacon => outputs.extend(self.send_beacon(now)),
            Due::BeaconAndStatus => {
                outputs.extend(self.send_beacon(now));
                outputs.extend(self.send_status(now, &own));
                outputs.extend(self.send_acks(now, &own));
                outputs.extend(self.alone_changed(now));
            }
        }
        let acts = self.subjects.tick(now, void, &own.timings, &mut self.chance);
        self.perform(now, acts, &mut outputs);
        let (acts, answers) = self.asks.tick(now, &self.subjects, &mut self.chance);
        self.perform(now, acts, &mut outputs);
        for (to, answer) in answers {
            self.counts.asks_answered += 1;
            outputs.push(Output::Send { to: vec![to], message: Message::ProbeAnswer(answer) });
        }
        outputs.extend(self.send_reports(now, &own));
        outputs
    }

    /// A fresh beacon to whoever asked.
    pub(crate) fn reply(&mut self, now: Mono, to: SocketAddr, nonce: u64) -> Vec<Output> {
        let Some(beacon) = self.beacon(now) else { return Vec::new() };
        vec![Output::Send { to: vec![to], message: Message::ProbeReply { nonce, beacon } }]
    }

    /// Somebody whose key is not known here asks. An agent knows its own peers only, so a prober chosen by the
    /// arbiter is a stranger to it. In calm times strangers are ignored; a host that no observer or no replica seems to
    /// hear answers them, five a second at most, because theirs may be the only ears left that can prevent its end.
    pub(crate) fn stranger(&mut self, now: Mono, from: SocketAddr, nonce: u64) -> Vec<Output> {
        let cut_off = self.observers.alone(now) || self.trust.contact_ago(now) > crate::trust::CONTACT_WITHIN;
        let lately = self.stranger_answered.is_some_and(|at| now.since(at) < STRANGER_EVERY);
        if !cut_off || lately {
            return Vec::new();
        }
        self.stranger_answered = Some(now);
        self.reply(now, from, nonce)
    }

    /// This moment's beacon, signed once; `None` for a host without slice or machine id.
    fn beacon(&mut self, now: Mono) -> Option<SignedBeacon> {
        let (own, machine) = (self.slice.as_ref()?, self.birth.machine?);
        let seq = now.as_ms();
        if let Some((newest, beacon)) = &self.newest
            && *newest >= seq
        {
            return Some(beacon.clone());
        }
        let beacon =
            Beacon { node: own.node.clone(), machine, boot: self.birth.boot, seq, health: self.health };
        let signed = self.birth.sign.sign(&beacon, own.cluster).ok()?;
        self.newest = Some((seq, signed.clone()));
        Some(signed)
    }

    fn send_beacon(&mut self, now: Mono) -> Option<Output> {
        let to = self.observers.addresses();
        if to.is_empty() {
            return None;
        }
        let beacon = self.beacon(now)?;
        self.counts.beacons_sent += 1;
        Some(Output::Send { to, message: Message::Beacon(beacon) })
    }

    fn send_status(&mut self, now: Mono, own: &Own) -> Option<Output> {
        let to = self.outbox.addresses();
        if to.is_empty() {
            return None;
        }
        let beacon = self.beacon(now)?;
        let heard = self.subjects.iter().filter(|s| s.hears(now, own.timings.suspect));
        let hears = heard.map(|s| s.peer.node.clone()).collect();
        let doubts = self.trust.doubts(now);
        let worked = self.worked(now);
        let status = Status { beacon, slice: own.version, hears, doubts, worked };
        Some(Output::Send { to, message: Message::Status(status) })
    }

    /// The next few paths that answered lately, going round.
    fn worked(&mut self, now: Mono) -> Vec<WorkedPath> {
        let paths = self.subjects.iter().flat_map(|subject| {
            PATHS.into_iter().filter_map(move |path| {
                let ago = subject.paths.log(path).worked_ago(now).filter(|ago| *ago <= WORKS_FOR)?;
                Some(WorkedPath { subject: subject.peer.node.clone(), path, ago })
            })
        });
        let all: Vec<WorkedPath> = paths.collect();
        let start = if all.is_empty() { 0 } else { self.paths_told % all.len() };
        self.paths_told = start + PATHS_PER_STATUS;
        let (after, before) = (all.iter().skip(start), all.iter().take(start));
        after.chain(before).take(PATHS_PER_STATUS).cloned().collect()
    }

    /// "I hear you" to every subject that is heard.
    fn send_acks(&self, now: Mono, own: &Own) -> Vec<Output> {
        let arbiter_contact = self.trust.contact_ago(now);
        let heard = self.subjects.iter().filter(|s| s.hears(now, own.timings.suspect));
        heard
            .filter_map(|subject| {
                let last = subject.last()?;
                let ack = Ack { seq: last.seq, held: now.since(last.at), arbiter_contact };
                let to = vec![SocketAddr::new(subject.peer.address, PORT_PEER)];
                Some(Output::Send { to, message: Message::Ack(ack) })
            })
            .collect()
    }

    fn send_reports(&mut self, now: Mono, own: &Own) -> Vec<Output> {
        let doubts = self.trust.doubts(now);
        let speaker = Speaker {
            now,
            node: &own.node,
            boot: self.birth.boot,
            doubts: &doubts,
            subjects: &self.subjects,
        };
        let batches = self.outbox.tick(&speaker, own.timings.snapshot);
        self.counts.reports_sent += batches.len() as u64;
        let send = |(to, batch)| Output::Send { to: vec![to], message: Message::Reports(batch) };
        batches.into_iter().map(send).collect()
    }

    fn alone_changed(&mut self, now: Mono) -> Option<Output> {
        let alone = self.observers.alone(now);
        let changed = alone != self.alone;
        self.alone = alone;
        changed.then_some(Output::Changed(if alone { Change::Alone } else { Change::NotAlone }))
    }

    fn perform(&mut self, now: Mono, acts: Vec<Act>, outputs: &mut Vec<Output>) {
        for act in acts {
            match act {
                Act::Probe { path, number, address } => {
                    self.counts.probes_sent += 1;
                    outputs.push(match path {
                        Path::Agent => probe(address, number),
                        Path::Kubelet => Output::Probe { number, path: HostPath::Kubelet, address },
                        Path::Ping => Output::Probe { number, path: HostPath::Ping, address },
                    });
                }
                Act::FellSilent { subject, change } => {
                    self.counts.silences += 1;
                    self.outbox.silent(now, subject);
                    outputs.push(Output::Changed(change));
                }
            }
        }
    }
}

// === helpers ===

/// Asks another host's agent whether it is there.
pub(crate) fn probe(address: IpAddr, number: ProbeNumber) -> Output {
    let message = Message::Probe { nonce: number.0 };
    Output::Send { to: vec![SocketAddr::new(address, PORT_PEER)], message }
}
