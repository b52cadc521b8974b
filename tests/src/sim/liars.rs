//! Compromised agents: their reports, claims and probes are false, and signed by a key that is theirs. They accuse the
//! living or deny the dead. What they cannot do is what needs another's key: a beacon of somebody else.

use std::net::SocketAddr;
use std::rc::Rc;

use coroner_shared::beacon::{Answer, Hearing, Path, ProbeAnswer, ProbeOutcome, Report, ReportBatch, Status};
use coroner_shared::id::NodeUid;
use coroner_shared::names::PORT_REPORT;
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::datagram::{Message, Sender};

use super::agents::Packet;
use super::network::End;
use super::world::World;

/// What a compromised agent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lie {
    /// About whom.
    pub(crate) about: usize,
    /// That it lives; otherwise that it is dead.
    pub(crate) lives: bool,
    /// It only keeps quiet about it: no report, no answer of its own making.
    pub(crate) quiet: bool,
    /// Since when.
    pub(crate) since: Mono,
}

/// Its reports come this often, asked for or not.
const EVERY: Span = Span::from_ms(500);
/// So long it claims to have heard nothing when it begins.
const SILENT: Span = Span::from_secs(2);

// === impl World ===

impl World {
    /// Lies on, as long as it is told to.
    pub(crate) fn lie_round(&mut self, machine: usize) {
        let Some(lie) = self.machines[machine].odd.lie else { return };
        if let Some(batch) = self.lies(machine, lie) {
            let sender = self.machines[machine].agent.as_ref().and_then(|p| p.agent.sender());
            let key = self.machines[machine].key;
            if let Some((sender @ Sender::Node(_), _)) = sender {
                let packet = Rc::new(Packet::new(sender, key, Message::Reports(batch)));
                for replica in self.site.replicas.clone() {
                    let to = SocketAddr::new(self.machines[replica].address, PORT_REPORT);
                    self.send(End::Host(machine), to, &packet);
                }
            }
        }
        self.on_machine(EVERY, machine, move |world| world.lie_round(machine));
    }

    /// What leaves in place of what the agent meant to say.
    pub(crate) fn as_it_says(&self, machine: usize, message: Message) -> Message {
        let Some(lie) = self.machines[machine].odd.lie else { return message };
        let Some(subject) = self.uid_of(lie.about) else { return message };
        match message {
            Message::Reports(batch) => match self.lies(machine, lie) {
                Some(lies) => {
                    let others = batch.reports.into_iter().filter(|r| r.subject != subject);
                    Message::Reports(ReportBatch { reports: others.chain(lies.reports).collect(), ..lies })
                }
                None => Message::Reports(batch),
            },
            Message::Status(status) => Message::Status(Status {
                hears: claims(status.hears, &subject, lie.lives),
                doubts: Vec::new(),
                ..status
            }),
            Message::ProbeAnswer(answer) if answer.subject == subject => {
                Message::ProbeAnswer(ProbeAnswer { outcomes: outcomes(lie), beacon: None, ..answer })
            }
            other @ (Message::ProbeAnswer(_)
            | Message::Beacon(_)
            | Message::Ack(_)
            | Message::Probe { .. }
            | Message::ProbeReply { .. }
            | Message::StatusAck { .. }
            | Message::ReportsAck { .. }
            | Message::AskProbe(_)) => other,
        }
    }

    /// Its reports about the one it lies about.
    fn lies(&self, machine: usize, lie: Lie) -> Option<ReportBatch> {
        let subject = self.uid_of(lie.about)?;
        let on = &self.machines[machine];
        let (boot, number) = (on.boot?, on.host_time(self.now).as_ms());
        let of = &self.machines[lie.about];
        let last = of.boot.map(|boot| (boot, of.host_time(lie.since).as_ms()));
        // Who denies a death has two ways: to report nothing, or to report an answer.
        let silent_liar = lie.quiet || (lie.lives && machine.is_multiple_of(2));
        let hearing = Hearing::Silent {
            silent: SILENT + self.now.since(lie.since),
            last: last.filter(|_| !lie.lives),
            probes: outcomes(lie),
        };
        let reports = if silent_liar { Vec::new() } else { vec![Report { subject, hearing }] };
        Some(ReportBatch { boot, number, snapshot: true, doubts: Vec::new(), reports })
    }

    fn uid_of(&self, machine: usize) -> Option<NodeUid> {
        self.api.nodes.get(&self.machines[machine].name).map(|node| node.uid.clone())
    }
}

/// Probes that were never made.
fn outcomes(lie: Lie) -> Vec<ProbeOutcome> {
    // One answer of the kernel is all that it needs.
    let answers = lie.lives && !lie.quiet;
    let answer = |path| if answers && path == Path::Ping { Answer::Answered } else { Answer::Nothing };
    let asked = Span::from_ms(150);
    let paths = [Path::Agent, Path::Kubelet, Path::Ping].into_iter();
    paths
        .map(|path| ProbeOutcome { path, answer: answer(path), asked_ago: asked, worked_ago: Some(SILENT) })
        .collect()
}

/// Whom it claims to hear.
fn claims(mut hears: Vec<NodeUid>, about: &NodeUid, lives: bool) -> Vec<NodeUid> {
    hears.retain(|node| node != about);
    if lives {
        hears.push(about.clone());
    }
    hears
}
