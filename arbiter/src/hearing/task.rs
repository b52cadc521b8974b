//! The task: every 50 ms it drains what came, ticks the witness, then hands the summary to the leader or judges.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coroner_arbiter_core::judge::{Ask, Judge, JudgeOutput, Sight};
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::witness::Witness;
use coroner_arbiter_core::witness::pool::Pool;
use coroner_arbiter_replica::Role;
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::names::PORT_REPLICA;
use coroner_shared::time::Mono;
use tokio::sync::mpsc;

use super::books::{book, siblings};
use super::{ANSWER_BYTES_MAX, CALM, Desk, FromFollower, Heard, Hearing, Parts, STEP, ToFollower, WITNESS};
use crate::bounds::answer_json;
use crate::clock;
use crate::replica::Published;

struct Task {
    hearing: Hearing,
    parts: Parts,
    witness: Witness,
    judge: Option<(Judge, u64)>,
    started: Mono,
    synced: u64,
    handed_over: Mono,
    handing: Arc<Mutex<bool>>,
    asked: BTreeSet<(NodeName, u64)>,
}

/// A number for this start. Should the kernel have no chance to give, the clock tells most starts apart.
fn life(now: Mono) -> u64 {
    getrandom::u64().unwrap_or(now.as_ms())
}

pub(super) async fn run(hearing: Hearing, parts: Parts, mut inbox: mpsc::Receiver<Heard>) {
    let now = clock::now();
    let me = parts.proposer.handle().id();
    let mut task = Task {
        hearing,
        parts,
        witness: Witness::new(me, life(now), now),
        judge: None,
        started: now,
        synced: u64::MAX,
        handed_over: now,
        handing: Arc::default(),
        asked: BTreeSet::new(),
    };
    let mut every = tokio::time::interval(STEP);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            heard = inbox.recv() => match heard {
                Some(heard) => task.take(heard),
                None => return,
            },
            _ = every.tick() => {
                // What has arrived counts before time is judged: a process that was paused must not accuse.
                while let Ok(heard) = inbox.try_recv() {
                    task.take(heard);
                }
                task.step().await;
            }
        }
    }
}

impl Task {
    fn take(&mut self, heard: Heard) {
        let now = clock::now();
        match heard {
            Heard::Status { node, status, beacon, from } => {
                self.witness.beacon(now, &beacon, Some(from));
                self.witness.status(now, &node, &status, &beacon);
            }
            Heard::Reports { node, batch } => self.witness.reports(now, &node, &batch),
            Heard::Answer { node, answer } => self.witness.probe_answer(now, &node, &answer),
            Heard::Registered { node, boot } => self.witness.registered(now, &node, boot),
            Heard::ReplicaTraffic(replica) => self.witness.replica_traffic(now, replica),
        }
    }

    async fn step(&mut self) {
        let now = clock::now();
        let published = self.hearing.published.borrow().clone();
        if published.applied != self.synced {
            self.witness.sync(now, &published.state);
            self.synced = published.applied;
        }
        let tick = self.witness.tick(now);
        if tick.step_down {
            tracing::warn!(gap = %tick.gap, "this process was asleep; it gives up leading, if it did");
            self.parts.proposer.handle().step_down().await;
        }
        match published.role {
            Role::Leader => self.lead(now, &published).await,
            Role::Follower { leader } => {
                self.judge = None;
                {
                    let mut desk = self.hearing.desk();
                    // Whoever leads no more knows no more than its own.
                    if desk.pool.is_some() {
                        *desk = Desk::default();
                    }
                }
                if let Some(leader) = leader {
                    self.follow(now, &published.state, leader);
                }
            }
        }
    }

    async fn lead(&mut self, now: Mono, published: &Published) {
        let me = self.parts.proposer.handle().id();
        if self.judge.as_ref().is_none_or(|(_, term)| *term != published.term) {
            self.judge = Some((Judge::new(now), published.term));
            *self.hearing.desk() = Desk { pool: Some(Pool::new(me)), ..Desk::default() };
        }
        let own = self.witness.summary(now, &published.state);
        let output = {
            let mut desk = self.hearing.desk();
            let own_bmc = self.parts.bmcs.views(&desk.suspects, now);
            let bmc = book(own_bmc, &desk.followers, now);
            let leases = self.hearing.leases.borrow().book(now);
            let group_age = desk
                .followers
                .values()
                .map(|said| said.uptime + now.since(said.at))
                .fold(now.since(self.started), Ord::max);
            let siblings = siblings(&self.parts.bmcs, &published.state, &desk.suspects, now);
            let (Some(pool), Some((judge, term))) = (desk.pool.as_mut(), self.judge.as_mut()) else { return };
            pool.absorb(now, own);
            pool.tick(now);
            let sight = Sight {
                state: &published.state,
                pool,
                bmc: &bmc,
                siblings: &siblings,
                leases: &leases,
                me,
                term: *term,
                quorum: has_quorum(published),
                group_age,
            };
            let output = judge.step(now, &sight);
            desk.settled = output.settled;
            desk.settles_in = output.settles_in;
            desk.judged.clone_from(&output.judged);
            desk.findings.clone_from(&output.findings);
            desk.suspects = output.read_bmc.iter().map(|w| (w.node.clone(), w.failure_date)).collect();
            desk.asks.clone_from(&output.ask_probes);
            self.parts.bmcs.want(&desk.suspects);
            output
        };
        self.perform(published, output).await;
    }

    async fn perform(&mut self, published: &Published, output: JudgeOutput) {
        if let Some(why) = output.step_down {
            tracing::warn!(?why, "another replica hears more; this one gives up leading");
            self.parts.proposer.handle().step_down().await;
        }
        self.ask(&published.state, &output.ask_probes);
        for command in output.commands {
            let proposer = self.parts.proposer.clone();
            tokio::spawn(async move {
                if let Err(error) = proposer.here(command).await {
                    tracing::debug!(%error, "a proposal of the judge has no outcome");
                }
            });
        }
    }

    /// Sends the probes that are asked for, each once.
    fn ask(&mut self, state: &State, asks: &[Ask]) {
        for Ask { prober, ask } in asks {
            let Some(member) = state.nodes.get(prober).and_then(|n| n.member.as_ref()) else { continue };
            if self.asked.insert((prober.clone(), ask.number)) {
                let _ = self.parts.asks.try_send((member.address, ask.clone()));
            }
        }
        while self.asked.len() > 4096 {
            self.asked.pop_first();
        }
    }

    /// Hands the summary to the leader: at every step while anything is urgent, else four times a second.
    fn follow(&mut self, now: Mono, state: &Arc<State>, leader: ReplicaId) {
        let summary = self.witness.summary(now, state);
        let urgent = summary.is_urgent(state);
        let busy = std::mem::replace(&mut *lock(&self.handing), true);
        if busy || !(urgent || now.since(self.handed_over) >= CALM) {
            if !busy {
                *lock(&self.handing) = false;
            }
            return;
        }
        self.handed_over = now;
        let Some(address) = self.parts.proposer.peers().get(&leader).copied() else { return };
        let url = format!("https://{}{WITNESS}", SocketAddr::new(address, PORT_REPLICA));
        let wanted = self.hearing.desk().suspects.clone();
        let said = FromFollower {
            summary,
            bmc: self.parts.bmcs.views(&wanted, now),
            uptime: now.since(self.started),
        };
        let (client, bmcs, handing) =
            (self.parts.proposer.client().clone(), self.parts.bmcs.clone(), Arc::clone(&self.handing));
        let (asks, state, desk) =
            (self.parts.asks.clone(), Arc::clone(state), Arc::clone(&self.hearing.desk));
        tokio::spawn(async move {
            let sent = client.post(url).timeout(Duration::from_secs(1)).json(&said).send().await;
            if let Ok(answer) = sent
                && let Ok(answer) = answer_json::<ToFollower>(answer, ANSWER_BYTES_MAX).await
            {
                let now = clock::now();
                let suspects: BTreeMap<NodeName, Mono> =
                    answer.suspects.into_iter().map(|(node, ago)| (node, now.back(ago))).collect();
                bmcs.want(&suspects);
                lock(&desk).suspects = suspects;
                for Ask { prober, ask } in answer.asks {
                    if let Some(member) = state.nodes.get(&prober).and_then(|n| n.member.as_ref()) {
                        let _ = asks.try_send((member.address, ask));
                    }
                }
            }
            *lock(&handing) = false;
        });
    }
}

// === helpers ===

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_quorum(published: &Published) -> bool {
    let members = published.state.replicas.len().max(1);
    published.active.is_some_and(|active| active > members / 2)
}
