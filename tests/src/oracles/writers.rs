//! No double run: no instant at which one workload writes from two machines, or in two lives of one.

use super::Record;
use crate::lab::writer::overlaps;

pub(super) fn judge(record: &Record) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    for (volume, stamps) in &record.writes {
        for overlap in overlaps(stamps) {
            let ((first, first_boot), (second, second_boot)) = (&overlap.first, &overlap.second);
            let ms = (overlap.to - overlap.from) / 1_000_000;
            found.push((
                overlap.from,
                format!(
                    "{} writes to volume {volume} from {first} (boot {first_boot}) and {second} (boot {second_boot}) at once, for {ms} ms, {} stamps",
                    overlap.workload, overlap.stamps
                ),
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::fixture::{calm, stamp};

    #[test]
    fn two_machines_that_write_at_once_are_found() {
        let mut record = calm();
        let old = [stamp(2, "w-0", "n1", "n1-a"), stamp(5, "w-0", "n1", "n1-a")];
        record.writes.insert("default-w-0".into(), [&old[..], &[stamp(6, "w-0", "n2", "n2-a")]].concat());
        assert!(judge(&record).is_empty(), "a hand-over");
        record.writes.insert("default-w-1".into(), [&old[..], &[stamp(4, "w-0", "n2", "n2-a")]].concat());
        let found = judge(&record);
        assert_eq!(found.len(), 1);
        assert!(found[0].1.contains("n1 (boot n1-a) and n2 (boot n2-a)"), "{found:?}");
    }
}
