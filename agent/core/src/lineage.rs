//! The order of one subject's beacons: which is newer, and which boot is over.
//!
//! ```text
//!   (boot, seq) --> judge --> Newer | NewBoot | Old | LeftGoesOn
//! ```
//!
//! A beacon counts only if it is newer than any before it, and a boot once left never comes back: who drips old
//! beacons gains nothing. But an agent that has just started knows no past, and an old beacon replayed to it could
//! displace the living boot. So when a left boot seems to go on, the subject is asked with a fresh number, and the
//! boot in a signed answer to it is the living one, whatever was believed before.
//! What a change of boot means for the node is not judged here but by the arbiter, whose log knows all boots.

use coroner_shared::id::BootId;

/// Left boots remembered per subject. More than a crash loop makes within an agent's memory of it.
const LEFT_MAX: usize = 8;

/// What one beacon is, compared with those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A later moment of the boot known.
    Newer,
    /// Another boot, not seen before, or the first at all.
    NewBoot,
    /// Not later than what is known.
    Old,
    /// Later than all that was heard of a boot thought to be over.
    LeftGoesOn,
}

/// Boots of one subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    current: Option<(BootId, u64)>,
    left: Vec<(BootId, u64)>,
}

impl Lineage {
    /// What this beacon is. Changes nothing.
    pub(crate) fn judge(&self, boot: BootId, seq: u64) -> Claim {
        if let Some((current, newest)) = self.current
            && current == boot
        {
            return if seq > newest { Claim::Newer } else { Claim::Old };
        }
        match self.left.iter().find(|(b, _)| *b == boot) {
            None => Claim::NewBoot,
            Some((_, newest)) if seq > *newest => Claim::LeftGoesOn,
            Some(_) => Claim::Old,
        }
    }

    /// This boot is the living one, at this moment; what it displaces is left.
    pub(crate) fn take(&mut self, boot: BootId, seq: u64) {
        if let Some((current, newest)) = self.current.replace((boot, seq))
            && current != boot
        {
            if self.left.len() >= LEFT_MAX {
                self.left.remove(0);
            }
            self.left.push((current, newest));
        }
        self.left.retain(|(b, _)| *b != boot);
    }

    /// The newest beacon known.
    pub(crate) const fn newest(&self) -> Option<(BootId, u64)> {
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: BootId = BootId::from_bytes([1; 16]);
    const B: BootId = BootId::from_bytes([2; 16]);

    #[test]
    fn newer_means_newer_and_a_left_boot_stays_left() {
        let mut lineage = Lineage::default();
        for (boot, seq, expected) in [
            (A, 100, Claim::NewBoot),
            (A, 100, Claim::Old),
            (A, 99, Claim::Old),
            (A, 101, Claim::Newer),
            (B, 5, Claim::NewBoot),
            (A, 101, Claim::Old),
            (A, 102, Claim::LeftGoesOn),
            (B, 6, Claim::Newer),
        ] {
            let claim = lineage.judge(boot, seq);
            assert_eq!(claim, expected, "{boot} {seq}");
            if matches!(claim, Claim::Newer | Claim::NewBoot) {
                lineage.take(boot, seq);
            }
        }
        assert_eq!(lineage.newest(), Some((B, 6)));
    }

    #[test]
    fn a_boot_proven_alive_is_the_current_one_again() {
        let mut lineage = Lineage::default();
        lineage.take(A, 100);
        lineage.take(B, 900);
        lineage.take(A, 350);
        assert_eq!(lineage.judge(A, 351), Claim::Newer);
        assert_eq!(lineage.judge(B, 900), Claim::Old);
    }

    #[test]
    fn memory_of_left_boots_is_bounded() {
        let mut lineage = Lineage::default();
        for n in 0..50 {
            lineage.take(BootId::from_bytes([n; 16]), 1);
        }
        assert_eq!(lineage.left.len(), LEFT_MAX);
    }
}
