//! Somebody who records datagrams and sends them again, from another machine: signed by the right key, and old.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use coroner_shared::time::Span;
use coroner_shared::wire::datagram::Message;

use super::agents::Packet;
use super::machine::machine_at;
use super::world::World;

/// Datagrams they keep.
const KEPT: usize = 200;
/// Between two of theirs.
const EVERY: Span = Span::from_ms(150);

// === impl World ===

impl World {
    /// From now on that machine's beacons are recorded.
    pub(crate) fn record_from(&mut self, machine: usize) {
        self.recorded = Some((machine, VecDeque::new()));
        self.records = true;
    }

    pub(crate) fn record(&mut self, machine: usize, packet: &Rc<Packet>, to: &[SocketAddr]) {
        let on = self.records;
        let Some((of, kept)) = self.recorded.as_mut().filter(|(of, _)| on && *of == machine) else { return };
        debug_assert_eq!(*of, machine);
        if matches!(packet.message, Message::Beacon(_) | Message::Status(_)) {
            for address in to {
                kept.push_back((*address, Rc::clone(packet)));
            }
            while kept.len() > KEPT {
                kept.pop_front();
            }
        }
    }

    /// What is recorded is all there is.
    pub(crate) const fn record_no_more(&mut self) {
        self.records = false;
    }

    /// Sends what was recorded again, oldest first and over and over, for so long.
    pub(crate) fn replay(&mut self, from: usize, left: Span) {
        let Some((_, kept)) = self.recorded.as_mut() else { return };
        let Some((to, packet)) = kept.pop_front() else { return };
        kept.push_back((to, Rc::clone(&packet)));
        let old = Packet { replayed: true, ..Packet::clone(&packet) };
        if let Some(target) = machine_at(to.ip()).filter(|m| *m < self.machines.len()) {
            self.on_machine(Span::from_ms(1), target, move |world| {
                if to.port() == coroner_shared::names::PORT_PEER {
                    world.agent_receives(target, from, &old, false);
                } else {
                    world.replica_receives(target, from, &old);
                }
            });
        }
        if left > EVERY {
            self.after(EVERY, move |world| world.replay(from, left.saturating_sub(EVERY)));
        }
    }
}
