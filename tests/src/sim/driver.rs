//! One session with a BMC, as the arbiter's driver keeps it: logs in where needed, once more after a refused token.
//! Mirrors what `arbiter/bmc` promises, not how it speaks.

use coroner_shared::bmc::{CommandAnswer, Continuity, IdentityFacts, Login, PowerReading};
use coroner_shared::time::{Mono, Span};

use super::bmc::{Line, MEMBER, Op, Reply};
use super::life::By;
use super::network::{End, Flow};
use super::truth::Fact;
use super::world::{Shared, World};

/// A call without an answer is given up after this.
const WITHIN: Span = Span::from_secs(5);

/// A driver.
pub(crate) struct Driver {
    index: usize,
    bmc: usize,
    /// Number that the driver counts, and the BMC's own.
    session: Option<(u64, u64)>,
    connection: Option<u64>,
    login: Option<Login>,
    /// What the member's body said last: a command goes to no other.
    uuid: Option<String>,
    /// Whether the System that counts is the other one.
    other: bool,
}

/// Why a call gave nothing.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) why: String,
    /// Nothing came back at all.
    pub(crate) no_answer: bool,
}

/// Why a command was not sent.
#[derive(Clone, Debug)]
pub(crate) enum NotSent {
    /// It might have left no more.
    TooLate,
    /// Something before it failed.
    Failed(Failed),
}

// === impl Driver ===

impl Driver {
    pub(crate) fn new(index: usize, bmc: usize) -> Self {
        Self { index, bmc, session: None, connection: None, login: None, uuid: None, other: false }
    }

    /// Power is read and commanded of this member.
    pub(crate) fn at(&mut self, member: &str) {
        self.other = member != MEMBER;
    }

    fn of_member(&self, op: Op) -> Op {
        if self.other { Op::Next(Box::new(op)) } else { op }
    }

    pub(crate) fn login(&self) -> Option<Login> {
        self.login.clone()
    }

    pub(crate) async fn identify(&mut self, shared: &Shared) -> Result<IdentityFacts, Failed> {
        let reply = self.ask(shared, Op::Identify).await?;
        if let Reply::Identity(facts) = reply { Ok(facts) } else { Err(unclear(&reply)) }
    }

    pub(crate) async fn power_state(&mut self, shared: &Shared) -> Result<PowerReading, Failed> {
        let asked = shared.reactor.now();
        let reply = self.ask(shared, self.of_member(Op::Power)).await?;
        let Reply::Power { power, uuid, reset_time } = reply else { return Err(unclear(&reply)) };
        self.uuid.clone_from(&uuid);
        let session = self.session.map(|(number, _)| number);
        let continuity = Continuity { session, connection: self.connection, reset_time };
        let took = shared.reactor.now().since(asked);
        Ok(PowerReading { power, uuid, took, continuity })
    }

    /// A further session, connected and logged in.
    pub(crate) async fn fresh_session(&mut self, shared: &Shared) -> Result<(), Failed> {
        self.forget();
        self.log_in(shared).await
    }

    /// Sends a power command, if it may still leave once everything is connected; `Err`: it certainly was not sent.
    pub(crate) async fn command(
        &mut self,
        shared: &Shared,
        op: Op,
        may_leave: &dyn Fn() -> bool,
        limit: Span,
    ) -> Result<CommandAnswer, NotSent> {
        if self.login.is_none() {
            // Over a new session the member is read once more: it must be the same.
            let before = self.uuid.clone();
            self.power_state(shared).await.map_err(NotSent::Failed)?;
            if self.uuid != before {
                let why = "the member is another one".to_owned();
                return Err(NotSent::Failed(Failed { why, no_answer: false }));
            }
        }
        if !may_leave() {
            return Err(NotSent::TooLate);
        }
        let op = self.of_member(op);
        let session = self.session.map(|(_, own)| own);
        let unknown = |why: &str| CommandAnswer::Unknown { why: why.to_owned() };
        Ok(match shared.reactor.within(limit, call(shared, self.index, self.bmc, session, op)).await {
            None => {
                self.connection = None;
                unknown("no answer in time")
            }
            Some(Reply::Accepted) => CommandAnswer::Accepted,
            Some(Reply::Refused(why)) => CommandAnswer::Refused { why: why.to_owned() },
            Some(Reply::Unauthorized) => {
                self.forget();
                CommandAnswer::Refused { why: "401".to_owned() }
            }
            Some(Reply::Session(_) | Reply::Identity(_) | Reply::Power { .. } | Reply::Error(_)) => {
                unknown("500")
            }
        })
    }

    pub(crate) async fn delete_session(&mut self, shared: &Shared, uri: &str) {
        let Some(number) = uri.rsplit('/').next().and_then(|n| n.parse().ok()) else { return };
        // Gone, or not deletable: the attempt's own deadline has cut its socket anyway.
        let _ = self.ask(shared, Op::Delete(number)).await;
    }

    pub(crate) async fn close(&mut self, shared: &Shared) {
        if let Some((_, own)) = self.session {
            let out = call(shared, self.index, self.bmc, Some(own), Op::LogOut);
            // Best effort: a session left behind dies by its own time-out.
            let _ = shared.reactor.within(WITHIN, out).await;
        }
        self.forget();
    }

    fn forget(&mut self) {
        (self.session, self.connection, self.login) = (None, None, None);
    }

    async fn log_in(&mut self, shared: &Shared) -> Result<(), Failed> {
        let number = |shared: &Shared| {
            let mut world = shared.world.borrow_mut();
            world.next_session += 1;
            world.next_session
        };
        if self.connection.is_none() {
            self.connection = Some(number(shared));
        }
        if shared.world.borrow().bmcs[self.bmc].traits.basic {
            self.login = Some(Login::Basic);
            return Ok(());
        }
        let answer = shared.reactor.within(WITHIN, call(shared, self.index, self.bmc, None, Op::LogIn)).await;
        match answer {
            Some(Reply::Session(own)) => {
                self.session = Some((number(shared), own));
                self.login = Some(Login::Session(format!("/redfish/v1/SessionService/Sessions/{own}")));
                Ok(())
            }
            Some(other) => Err(unclear(&other)),
            None => {
                self.forget();
                Err(Failed { why: "no answer to the log-in".to_owned(), no_answer: true })
            }
        }
    }

    async fn ask(&mut self, shared: &Shared, op: Op) -> Result<Reply, Failed> {
        for _ in 0..2 {
            if self.login.is_none() {
                self.log_in(shared).await?;
            }
            let session = self.session.map(|(_, own)| own);
            let call = call(shared, self.index, self.bmc, session, op.clone());
            match shared.reactor.within(WITHIN, call).await {
                // The token is none any more: once anew.
                Some(Reply::Unauthorized) => self.forget(),
                Some(Reply::Error(why)) => return Err(Failed { why: why.to_owned(), no_answer: false }),
                Some(reply) => return Ok(reply),
                None => {
                    self.connection = None;
                    return Err(Failed { why: "no answer".to_owned(), no_answer: true });
                }
            }
        }
        Err(Failed { why: "the log-in is refused".to_owned(), no_answer: false })
    }
}

fn unclear(reply: &Reply) -> Failed {
    Failed { why: format!("{reply:?}"), no_answer: false }
}

/// One request on its way to a BMC and back.
async fn call(shared: &Shared, index: usize, bmc: usize, session: Option<u64>, op: Op) -> Reply {
    let slot = shared.reactor.slot();
    let answer = slot.clone();
    {
        let mut world = shared.world.borrow_mut();
        let (host, sent) = (world.site.replicas[index], world.now);
        if let Some(there) = world.network.stream(End::Host(host), End::Bmc(bmc), Flow::Bmc) {
            world.after(there, move |world| {
                if !world.bmcs[bmc].answers(world.now) {
                    return;
                }
                let (low, high) = world.bmcs[bmc].traits.takes;
                let takes = world.draws.bmcs.span(low, high);
                let restarts = world.bmcs[bmc].restarts;
                let reply = world.bmc_takes(bmc, index, session, &op, sent);
                world.after(takes, move |world| {
                    let alive = world.bmcs[bmc].answers(world.now) && world.bmcs[bmc].restarts == restarts;
                    let back = world.network.stream(End::Bmc(bmc), End::Host(host), Flow::Bmc);
                    if let (true, Some(back)) = (alive, back) {
                        world.on_machine(back, host, move |_| answer.fill(reply));
                    }
                });
            });
        }
    }
    slot.take().await
}

// === impl World ===

impl World {
    /// What a BMC does with a request.
    fn bmc_takes(
        &mut self,
        index: usize,
        replica: usize,
        session: Option<u64>,
        op: &Op,
        sent: Mono,
    ) -> Reply {
        let now = self.now;
        let errors = self.bmcs[index].traits.errors;
        let fails = self.draws.bmcs.percent(errors);
        let bmc = &mut self.bmcs[index];
        if *op == Op::LogIn {
            return bmc.log_in();
        }
        if !bmc.admits(session) {
            return Reply::Unauthorized;
        }
        let (op, next) = match op {
            Op::Next(op) => (op.as_ref(), bmc.traits.neighbour),
            op @ (Op::LogIn
            | Op::Identify
            | Op::Power
            | Op::ForceOff
            | Op::On
            | Op::Delete(_)
            | Op::LogOut) => (op, None),
        };
        if fails && *op != Op::ForceOff {
            return Reply::Error("500");
        }
        match op {
            Op::Identify => Reply::Identity(bmc.identity()),
            Op::Power => {
                let other = next.and_then(|machine| self.bmcs.iter().find(|b| b.machine == machine));
                other.unwrap_or(&self.bmcs[index]).power_reply(now)
            }
            Op::Delete(other) => {
                bmc.sessions.remove(other);
                Reply::Accepted
            }
            Op::LogOut => {
                bmc.sessions.retain(|s| Some(*s) != session);
                Reply::Accepted
            }
            Op::LogIn | Op::ForceOff | Op::On | Op::Next(_) => {
                let machine = next.unwrap_or(self.bmcs[index].machine);
                self.power_command((index, machine), replica, op, fails, sent)
            }
        }
    }

    fn power_command(
        &mut self,
        (bmc, machine): (usize, usize),
        replica: usize,
        op: &Op,
        fails: bool,
        sent: Mono,
    ) -> Reply {
        let what = if *op == Op::ForceOff { "ForceOff" } else { "On" };
        let line = Line { at: self.now, machine, what: what.to_owned() };
        self.ledger.push(line);
        let (name, id) = (self.machines[machine].name.clone(), self.replicas[replica].id);
        self.say(&format!("{what} from replica {id} reaches the BMC of {name}"));
        let off = *op == Op::ForceOff;
        self.tell(&Fact::Command { machine, replica, off, sent });
        let traits = self.bmcs[bmc].traits.clone();
        if off && traits.refuses_when_off && !self.machines[machine].has_power() {
            return Reply::Refused("409 already off");
        }
        if off && traits.refuses_when_on && self.machines[machine].has_power() {
            return Reply::Refused("400 ForceOff is not allowed");
        }
        if !traits.ignores {
            if off {
                self.bmcs[bmc].powering_off = Some(self.now + traits.off_takes);
                self.after(traits.off_takes, move |world| world.power_off(machine, By::Us));
            } else {
                self.after(traits.off_takes, move |world| world.power_on(machine, By::Us));
            }
        }
        if fails { Reply::Error("500 after it was done") } else { Reply::Accepted }
    }
}
