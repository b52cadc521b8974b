//! What every store must do.

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::snapshot as state_bytes;
use coroner_arbiter_core::state::State;
use coroner_arbiter_replica::store::{Base, VALUE_BYTES_MAX};
use coroner_arbiter_replica::{Batch, Bootstrap, Loaded, Replica, ReplicaConfig, StoreError};
use coroner_shared::id::ReplicaId;
use coroner_shared::time::Mono;

use crate::bench::{Bench, a_life, entries, entry, hard, snapshot};

pub(crate) fn an_empty_disk_holds_nothing_also_after_it_was_opened_before(mut bench: Bench) {
    for _ in 0..3 {
        assert_eq!(bench.load(), None);
        bench.reopen();
    }
}

pub(crate) fn what_is_written_is_there_after_the_next_opening(mut bench: Bench) {
    let written = a_life(&mut bench);
    assert_eq!(written.entries.len(), 30);
    for _ in 0..3 {
        bench.reopen();
        assert_eq!(bench.load().unwrap(), written);
    }
    // A hard state alone: a vote is nothing else.
    bench.write(&Batch { hard_state: Some(&hard(9, 2, 59)), ..Batch::default() });
    bench.reopen();
    assert_eq!(bench.load().unwrap(), Loaded { hard_state: hard(9, 2, 59), ..written });
}

pub(crate) fn new_entries_replace_everything_from_their_first_index_on(mut bench: Bench) {
    let first = entries(1, 10, 1);
    bench.write(&Batch { hard_state: Some(&hard(1, 1, 3)), entries: &first, ..Batch::default() });
    let second = entries(5, 6, 2);
    bench.write(&Batch { hard_state: Some(&hard(2, 2, 4)), entries: &second, ..Batch::default() });
    bench.reopen();
    let expected = [&first[..4], &second[..]].concat();
    assert_eq!(bench.load().unwrap().entries, expected);
    let all_anew = entries(1, 1, 3);
    bench.write(&Batch { hard_state: Some(&hard(3, 2, 1)), entries: &all_anew, ..Batch::default() });
    bench.reopen();
    assert_eq!(bench.load().unwrap().entries, all_anew);
}

pub(crate) fn a_snapshot_of_our_own_drops_the_entries_up_to_its_base(mut bench: Bench) {
    let all = entries(1, 20, 1);
    bench.write(&Batch { hard_state: Some(&hard(1, 1, 20)), entries: &all, ..Batch::default() });
    let made = snapshot(18, 1, 1_000);
    let base = Base { index: 12, term: 1 };
    bench.write(&Batch { hard_state: Some(&hard(1, 1, 20)), made: Some((&made, base)), ..Batch::default() });
    bench.reopen();
    let log = bench.load().unwrap();
    assert_eq!((&log.snapshot, log.base), (&made, base));
    assert_eq!(log.entries, all[12..]);
    // New entries and a snapshot that drops some of them, in one batch.
    let more = entries(21, 30, 1);
    let newer = snapshot(25, 1, 1_000);
    let base = Base { index: 23, term: 1 };
    let hard_state = hard(1, 1, 30);
    let batch =
        Batch { hard_state: Some(&hard_state), entries: &more, made: Some((&newer, base)), received: None };
    bench.write(&batch);
    bench.reopen();
    let log = bench.load().unwrap();
    assert_eq!((log.snapshot, log.base, log.entries), (newer, base, entries(24, 30, 1)));
}

pub(crate) fn a_snapshot_from_the_leader_replaces_everything(mut bench: Bench) {
    a_life(&mut bench);
    let received = snapshot(500, 4, 3_000);
    bench.write(&Batch { hard_state: Some(&hard(4, 0, 500)), received: Some(&received), ..Batch::default() });
    bench.reopen();
    let expected = Loaded {
        hard_state: hard(4, 0, 500),
        snapshot: received,
        base: Base { index: 500, term: 4 },
        entries: Vec::new(),
    };
    assert_eq!(bench.load().unwrap(), expected);
    // One that comes with entries behind it.
    let (received, behind) = (snapshot(700, 4, 10), entries(701, 703, 5));
    let hard_state = hard(5, 0, 701);
    bench.write(&Batch {
        hard_state: Some(&hard_state),
        entries: &behind,
        received: Some(&received),
        made: None,
    });
    bench.reopen();
    let log = bench.load().unwrap();
    assert_eq!((log.snapshot, log.base.index, log.entries), (received, 700, behind));
}

pub(crate) fn a_snapshot_larger_than_a_piece_is_kept_whole_and_replaced_whole(mut bench: Bench) {
    let all = entries(1, 20, 1);
    bench.write(&Batch { hard_state: Some(&hard(1, 1, 20)), entries: &all, ..Batch::default() });
    // Growing and shrinking, around the size of a piece, without one, and large.
    for (index, bytes) in [(3, 65_530), (4, 0), (5, 3_000_000), (6, 64 * 1024), (7, 1), (8, 131_072)] {
        let made = snapshot(index, 1, bytes);
        let base = Base { index: index - 1, term: 1 };
        bench.write(&Batch {
            hard_state: Some(&hard(1, 1, 20)),
            made: Some((&made, base)),
            ..Batch::default()
        });
        assert_eq!(bench.load().unwrap().snapshot, made, "{bytes} bytes");
        bench.reopen();
        assert_eq!(bench.load().unwrap().snapshot, made, "{bytes} bytes, opened anew");
    }
}

pub(crate) fn a_log_from_which_raft_cannot_start_is_an_error(mut bench: Bench) {
    let damaged = |bench: &mut Bench, batch: &Batch<'_>, says: &str| {
        bench.write(batch);
        match bench.log().load() {
            Err(StoreError::Damaged { what, .. }) => assert!(what.contains(says), "{what}"),
            other => panic!("{says}: {other:?}"),
        }
    };
    let made = snapshot(8, 1, 10);
    let first = entries(1, 10, 1);
    bench.write(&Batch { hard_state: Some(&hard(1, 1, 8)), entries: &first, ..Batch::default() });
    let base = Base { index: 5, term: 1 };
    bench.write(&Batch { hard_state: Some(&hard(1, 1, 8)), made: Some((&made, base)), ..Batch::default() });
    let good = hard(1, 1, 9);
    damaged(
        &mut bench,
        &Batch { hard_state: Some(&hard(1, 1, 7)), ..Batch::default() },
        "7 entries are committed",
    );
    damaged(
        &mut bench,
        &Batch { hard_state: Some(&hard(1, 1, 11)), ..Batch::default() },
        "11 entries are committed",
    );
    damaged(&mut bench, &Batch { hard_state: Some(&hard(0, 1, 9)), ..Batch::default() }, "the term is 0");
    bench.write(&Batch { hard_state: Some(&good), ..Batch::default() });
    assert!(bench.load().is_some());
    damaged(&mut bench, &Batch { entries: &entries(12, 13, 1), ..Batch::default() }, "entry 11 is missing");
}

pub(crate) fn an_entry_that_is_too_large_is_refused_and_nothing_of_its_batch_is_written(mut bench: Bench) {
    let before = a_life(&mut bench);
    let batch = [entry(71, 2, 10), entry(72, 2, VALUE_BYTES_MAX)];
    let refused =
        bench.log().write(&Batch { hard_state: Some(&hard(3, 3, 60)), entries: &batch, ..Batch::default() });
    match refused {
        Err(StoreError::TooLarge { bytes, max }) => assert!(bytes > max && max == VALUE_BYTES_MAX),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.load().unwrap(), before);
    // The largest that fits; 20 bytes are raft's own.
    let largest = [entry(71, 2, VALUE_BYTES_MAX - 20)];
    bench.write(&Batch { entries: &largest, ..Batch::default() });
    bench.reopen();
    assert_eq!(bench.load().unwrap().entries.last(), Some(&largest[0]));
}

pub(crate) fn any_sequence_of_batches_leaves_what_the_model_says(mut bench: Bench) {
    let mut seed = 7_u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let mut model = Loaded::default();
    for step in 0..150 {
        let last = model.entries.last().map_or(model.base.index, |e| e.index);
        let at = model.snapshot.get_metadata().index;
        let mut term = model.hard_state.term;
        let (mut new, mut received, mut made) = (Vec::new(), None, None);
        match below(10) {
            0..6 => {
                // Appended, or in place of what is not committed.
                term += below(2);
                let from = last + 1 - below(last - model.hard_state.commit + 1);
                new = (from..=from + below(8))
                    .map(|i| entry(i, term, usize::try_from(below(3_000)).unwrap()))
                    .collect();
            }
            6 if last > at => {
                let index = at + 1 + below(last - at);
                let of =
                    |i: u64| model.entries.iter().find(|e| e.index == i).map_or(model.base.term, |e| e.term);
                let base = model.base.index + below(index - model.base.index + 1);
                let size = usize::try_from(below(150_000)).unwrap();
                made = Some((snapshot(index, of(index), size), Base { index: base, term: of(base) }));
            }
            7 if below(4) == 0 => received = Some(snapshot(last + 1 + below(50), term, 70_000)),
            _ => term += 1,
        }
        let end = new.last().map_or(last, |e| e.index);
        let snapped =
            received.as_ref().or(made.as_ref().map(|(s, _)| s)).map_or(at, |s| s.get_metadata().index);
        let end = if received.is_some() { snapped } else { end };
        let low = snapped.max(model.hard_state.commit);
        let hard_state = hard(term, below(4), low + below(end.saturating_sub(low) + 1));
        let batch = Batch {
            hard_state: Some(&hard_state),
            entries: &new,
            received: received.as_ref(),
            made: made.as_ref().map(|(s, b)| (s, *b)),
        };
        bench.write(&batch);
        model.take(&batch);
        assert_eq!(model.check(), Ok(()), "step {step}: the test itself is wrong");
        if below(5) == 0 {
            bench.reopen();
        }
        assert_eq!(bench.load().unwrap(), model, "step {step}");
    }
}

pub(crate) fn a_replica_finds_its_state_again(mut bench: Bench) {
    let id = ReplicaId::new(1).unwrap();
    let config = ReplicaConfig { election_ticks: (10, 11), snapshot_every: 40, ..ReplicaConfig::new(id) };
    let bootstrap = Bootstrap { members: vec![id], state: State::default() };
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    let mut before: Option<String> = None;
    for life in 0..4 {
        let mut replica = Replica::open(config, bench.take(), &bootstrap, &logger).unwrap();
        for _ in 0..12 {
            replica.tick();
            replica.turn().unwrap();
        }
        let hash = state_bytes::hash(replica.state()).unwrap();
        assert!(before.is_none_or(|before| before == hash), "life {life}");
        for n in 0..50 {
            let why = format!("{life} {n}");
            let command = Command::Pause { node: None, who: "test".to_owned(), why: why.clone() };
            replica.propose(Mono::from_ms(n), why, command).unwrap();
            replica.turn().unwrap();
        }
        before = Some(state_bytes::hash(replica.state()).unwrap());
        drop(replica);
        bench.reopen();
    }
}
