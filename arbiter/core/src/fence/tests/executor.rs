//! The executor of the tests: performs what a step says, and nothing else.

use coroner_shared::bmc::{IdentityFacts, MemberRead};
use coroner_shared::time::Mono;

use super::world::{BEGIN, World, name_of};
use crate::command::{Command, Outcome};
use crate::fence::{Fence, FenceEvent, Identified, Look, Over, Step};
use crate::identity::is_pinned;

/// Requests of the driver where everything is warm: the list of Systems, the member, its Manager; and each further
/// member.
const IDENTIFYING: u64 = 3;
/// TCP and TLS (two round trips), the service root, the log-in.
const OPENING: u64 = 4;

fn step_name(step: &Step) -> &'static str {
    match step {
        Step::LastLook => "look",
        Step::Identify(Over::First) => "identify",
        Step::Identify(Over::New) => "identify-new",
        Step::DeleteSession { .. } => "delete",
        Step::ReadPower(Over::First) => "read",
        Step::ReadPower(Over::New) => "read-new",
        Step::NewSession => "open",
        Step::Commit(command) => name_of(command),
        Step::SendForceOff { .. } => "ForceOff",
        Step::Wait { .. } => "wait",
        Step::Ended(_) => "end",
    }
}

impl World {
    /// `None` once it is over.
    pub(super) fn perform(&mut self, fence: &mut Fence, step: Step) -> Option<FenceEvent> {
        let latency = self.bmc.latency_ms;
        self.steps.push(step_name(&step));
        Some(match step {
            Step::LastLook => FenceEvent::Looked(Ok(self.look(fence))),
            Step::Identify(over) => self.identify(fence, over),
            Step::DeleteSession { uri } => {
                self.pass(fence, latency);
                self.bmc.delete(&uri);
                self.requested(fence);
                FenceEvent::Deleted
            }
            Step::ReadPower(over) => {
                self.pass(fence, latency);
                let read = self.bmc.read(self.now, over);
                if over == Over::New {
                    self.last_truly_off = !self.bmc.machines[0].on;
                }
                self.requested(fence);
                FenceEvent::Power(read)
            }
            Step::NewSession => {
                self.pass(fence, latency * OPENING);
                let opened = self.bmc.open_new(self.now);
                self.requested(fence);
                FenceEvent::Opened(opened)
            }
            Step::Commit(command) => self.commit(fence, *command),
            Step::SendForceOff { number, send_before, .. } => self.send(fence, number, send_before),
            Step::Wait { until } => {
                self.wait(fence, until.as_ms());
                FenceEvent::Woke
            }
            Step::Ended(ended) => {
                self.ended = Some(ended);
                return None;
            }
        })
    }

    fn look(&mut self, fence: &mut Fence) -> Look {
        let at = self.now;
        self.pass(fence, self.look_ms);
        let look = Look {
            at: Mono::from_ms(at),
            wanted: self.wanted,
            paused: self.paused,
            heard: self.heard.map(Mono::from_ms),
            lease_moved: self.lease.map(Mono::from_ms),
        };
        self.looks.push(look.clone());
        look
    }

    fn identify(&mut self, fence: &mut Fence, over: Over) -> FenceEvent {
        let further = self.bmc.more_members.len() as u64;
        self.pass(fence, self.bmc.latency_ms * (IDENTIFYING + further));
        let read = self.bmc.identify(self.now, over);
        if over == Over::First {
            let matches = |facts: &IdentityFacts| {
                facts.members.first().is_some_and(|member| match &member.read {
                    MemberRead::Read { uuid, .. } => {
                        uuid.as_ref().is_some_and(|uuid| is_pinned(&self.order.pin, uuid))
                    }
                    MemberRead::Unreadable { .. } => false,
                })
            };
            self.identified = read.as_ref().is_ok_and(|(facts, _)| matches(facts)).then_some(self.now);
        }
        self.requested(fence);
        FenceEvent::Identity(read.map(|(facts, login)| Identified { facts, login }))
    }

    fn commit(&mut self, fence: &mut Fence, command: Command) -> FenceEvent {
        self.pass(fence, self.commit_ms);
        let outcome = self.outcomes.get(name_of(&command)).cloned().unwrap_or(Outcome::Done);
        if outcome == Outcome::Done {
            if let Command::Attempt { number, .. } = &command {
                self.committed.insert(*number);
            }
            if let Command::AttemptAnswered { number, answer, .. } = &command {
                self.answers.insert(*number, answer.clone());
            }
        }
        self.log.push((self.now, command));
        FenceEvent::Committed(Ok(outcome))
    }

    fn send(&mut self, fence: &mut Fence, number: u32, send_before: Mono) -> FenceEvent {
        let late = self.late_ms.pop_front().unwrap_or_default();
        self.pass(fence, late);
        if Mono::from_ms(self.now) > send_before {
            return FenceEvent::TooLate;
        }
        let answer = self.bmc.force_off(self.now);
        if answer.is_some() {
            self.sent.push((number, self.now - BEGIN));
        }
        self.pass(fence, self.bmc.latency_ms);
        self.requested(fence);
        let not_sent = || FenceEvent::NotSent { why: "no route".to_owned() };
        answer.map_or_else(not_sent, FenceEvent::Answered)
    }
}
