//! What must hold whatever comes in.

use super::*;

use coroner_shared::beacon::AskProbe;
use proptest::prelude::{Just, Strategy, any, prop_oneof};

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Beacon { n: u8, boot_n: u8, seq: u64 },
    Reply { n: u8, nonce: u64 },
    ReportsAck { replica: u8, back: u64 },
    Term(u64),
    Ask { number: u64, n: u8 },
    Unverified(u8),
    Slice { version: u64, peers: Vec<u8> },
    Undrained,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0_u64..2000).prop_map(Event::Pass),
        6 => (2_u8..6, 1_u8..4, 0_u64..2_000_000).prop_map(|(n, boot_n, seq)| Event::Beacon { n, boot_n, seq }),
        1 => (2_u8..6, any::<u64>()).prop_map(|(n, nonce)| Event::Reply { n, nonce }),
        2 => (1_u8..5, 0_u64..3).prop_map(|(replica, back)| Event::ReportsAck { replica, back }),
        1 => (0_u64..20).prop_map(Event::Term),
        1 => (0_u64..20, 2_u8..9).prop_map(|(number, n)| Event::Ask { number, n }),
        1 => (1_u8..9).prop_map(Event::Unverified),
        1 => (0_u64..9, proptest::collection::vec(2_u8..30, 0..20))
            .prop_map(|(version, peers)| Event::Slice { version, peers }),
        1 => Just(Event::Undrained),
    ]
}

impl Bench {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Pass(ms) => self.pause(ms),
            Event::Beacon { n, boot_n, seq } => self.beacon_from(n, boot_n, seq),
            Event::Reply { n, nonce } => {
                let beacon = beacon(n, n, self.now.as_ms());
                self.hear_agent(n, Message::ProbeReply { nonce, beacon });
            }
            Event::ReportsAck { replica, back } => {
                let newest = self.batches_to(replica).pop().map_or(0, |(_, b)| b.number);
                let number = newest.saturating_sub(back);
                self.hear_replica(replica, Message::ReportsAck { number, term: self.term });
            }
            Event::Term(term) => self.hear_replica(1, Message::StatusAck { term, slice: 1 }),
            Event::Ask { number, n } => {
                let key = peer(n).key;
                let ask = AskProbe { number, subject: uid(n), address: address(n), key };
                self.hear_replica(1, Message::AskProbe(ask));
            }
            Event::Unverified(n) => self.input(Input::Unverified { from: address(n) }),
            Event::Slice { version, peers } => self.input(Input::Slice(slice(version, &peers))),
            Event::Undrained => self.tick_drained(false),
        }
        // `tick` itself checks that the next one is due later, and `perform` that every datagram fits.
        self.tick();
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn it_never_spins_and_every_datagram_fits(events in proptest::collection::vec(event(), 1..60)) {
        let mut bench = Bench::new(&[2, 3, 4, 5]);
        bench.replicas.clear();
        for event in events {
            bench.happen(event);
        }
    }

    #[test]
    fn after_any_trouble_a_living_subject_is_heard_and_every_replica_knows(
        events in proptest::collection::vec(event(), 1..60),
    ) {
        let mut bench = Bench::new(&[2, 3]);
        for event in events {
            bench.happen(event);
        }
        // From here on everything works: hosts 2 and 3 are in their boots of the same number.
        bench.input(Input::Slice(slice(99, &[2, 3])));
        bench.now = bench.now + Span::from_secs(3000);
        bench.alive = BTreeSet::from([2, 3]);
        bench.run(10_000);
        let view = bench.agent.view(bench.now);
        proptest::prop_assert!(view.subjects.iter().all(|s| !s.silent), "{:?}", view);
        proptest::prop_assert!(view.doubts.is_empty(), "{:?}", view);
        bench.clear();
        bench.run(1000);
        let reports: Vec<_> = bench.batches_to(1).into_iter().flat_map(|(_, b)| b.reports).collect();
        proptest::prop_assert_eq!(reports, vec![]);
    }
}
