//! Planted bugs: what the simulator must find, so that its silence about the real code means something.
//!
//! ```text
//!   RUSTFLAGS='--cfg coroner_mutants' --+--> plant(Some(mutant)), for this thread --> planted(mutant) == true
//!   any other build --------------------+--> planted(...) is constantly false, and the branch behind it is gone
//! ```
//!
//! A cfg and not a feature: features of one crate are turned on by any other, and one build would turn them on for
//! all; a cfg comes from the compiler's command line alone. `coroner-arbiter`, `coroner-agent` and `coroner` do not
//! compile under it, and a test keeps it out of every profile, manifest and script but the simulator's.
//!
//! Where the bug is planted the code only asks `if planted(Mutant::NoVeto)`; what that breaks is said here, once.
//! `CORONER_MUTANT=no-veto` plants one in every thread of such a build, for a run of the unit tests:
//!
//! ```text
//!   RUSTFLAGS='--cfg coroner_mutants' CORONER_MUTANT=no-veto cargo test --target-dir target/mutants -p coroner-arbiter-core
//! ```
//!
//! Not planted here, since no core reads a clock: "the wall clock is used". The simulator plants it where it hands out
//! time ([`Mutant::WallClock`]).

/// The enum, its names and its texts from one list.
macro_rules! mutants {
    ($($variant:ident $name:literal $breaks:literal)*) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $(#[doc = $breaks] $variant,)*
        }

        impl Mutant {
            /// All of them, in the order of the decision they break: detection, brakes, fencing, release, return, log.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name on command lines and in results.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it breaks, in one sentence.
            pub const fn breaks(self) -> &'static str {
                match self { $(Self::$variant => $breaks,)* }
            }
        }
    };
}

mutants! {
    // --- detection: who may say what ---
    NoVeto "no-veto"
        "A proof of life that somebody else holds neither stops a verdict nor moves the failure date: the accusers alone are asked."
    HMinusOne "h-minus-one"
        "One silent observer fewer than three quarters is enough."
    SameDomainCounted "same-domain-counted"
        "The subject's own failure domain counts among the domains that accusers come from."
    DeadObservers "dead-observers"
        "Observers that are dead or unheard themselves still accuse."
    KShrinks "k-shrinks"
        "Three quarters of the observers that may accuse are enough, instead of three quarters of all."
    NeverHeardCounted "never-heard-counted"
        "An observer that never heard the subject since it was assigned may accuse it."
    PathNeverWorked "path-never-worked"
        "An observer accuses, and a probe's silence counts, over paths that never worked."
    DistrustedAccuses "distrusted-accuses"
        "A reporter that doubts itself, is outvoted by its own subjects or speaks of an unregistered boot may accuse."
    LeaderAlone "leader-alone"
        "The leader judges by what it hears itself and drops what the other replicas hear."
    FailureDateOfReporters "failure-date-of-reporters"
        "Deadlines run from the date of the counted reporters, although somebody else heard the subject later."
    LostHearing "lost-hearing"
        "Deadlines do not wait for what a replica may have heard before it restarted, or before it died with its leader."
    ProberIgnored "prober-ignored"
        "What a prober got as an answer does not count."
    ResetIsSilence "reset-is-silence"
        "A refused port counts as no answer."
    StaleBoot "stale-boot"
        "Beacons and registrations of a boot that the log has left are taken."
    ReplayVetoes "replay-vetoes"
        "A beacon that was seen before counts as a new proof of life."
    NoAmnesty "no-amnesty"
        "A replica that was paused counts its own absence as the silence of others."
    NoSnapshotOnTerm "no-snapshot-on-term"
        "An agent sends no full snapshot of its accusations to a new leader."
    NoGrace "no-grace"
        "A new leader judges at once."
    LeaseIgnored "lease-ignored"
        "A kubelet that renews its Lease is neither a sign of life nor a contradiction."
    NoMissedRenewal "no-missed-renewal"
        "A silent host whose BMC says On is condemned before its kubelet has missed a renewal."
    StoredReady "stored-ready"
        "The stored Ready=True of a Node holds back the verdict."
    PartialOff "partial-off"
        "However many members are heard by some and not by others, silence is believed."
    TwoNodeRack "two-node-rack"
        "A rack of two nodes that fell silent together does not count as correlated."
    FoundOffUnsteady "found-off-unsteady"
        "A BMC that may just have restarted is believed when it says Off."
    PoweringOffIsOff "powering-off-is-off"
        "PoweringOff is read as Off."
    // --- brakes ---
    StormOff "storm-off"
        "No number of silent members is a storm."
    StormFrees "storm-frees"
        "Members caught in a storm are free again as soon as it ends."
    FloorUp "floor-up"
        "The floor is rounded up: one machine too many may be down by our hand."
    // --- fencing ---
    IdentityOnce "identity-once"
        "The BMC's identity is read once per fencing and never again."
    WrongMember "wrong-member"
        "The first System of a BMC is taken for the node's, whatever its UUID."
    CommandBeforeAttempt "command-before-attempt"
        "The power command is sent before its attempt is committed."
    NoLastLook "no-last-look"
        "Nobody looks at state and hearing again just before a power command."
    RetryHeard "retry-heard"
        "Later attempts go to a machine that is heard."
    PauseIgnored "pause-ignored"
        "Later attempts go out during a pause."
    AcceptedIsOff "accepted-is-off"
        "Once the BMC has accepted the command every reading counts as Off."
    OneOffEnough "one-off-enough"
        "The Off over the second session needs no three Offs and no span before it."
    FourSecondsUnsteady "four-seconds-unsteady"
        "A BMC that is not steady proves Off within the spans of one that is."
    LateReply "late-reply"
        "The late answer to an earlier attempt or incident is recorded for the current one."
    DeposedResult "deposed-result"
        "What a deposed leader saw and proved is taken as if it came from the current one."
    // --- release and return ---
    NewBootIsProof "new-boot-is-proof"
        "A new boot id counts as proof that the machine is off."
    TaintBeforeProof "taint-before-proof"
        "The taint is written as soon as the node is being fenced."
    NoLastRead "no-last-read"
        "Power, beacons and Lease are not looked at again before the taint is written."
    OnIsFenced "on-is-fenced"
        "A released machine whose BMC says On is fenced again."
    TaintGoesOnReady "taint-goes-on-ready"
        "The taint is taken away as soon as the Node is Ready, whatever of the old life is left."
    ForeignTaintDropped "foreign-taint-dropped"
        "Others' taints go with ours."
    OwnCordonForeign "own-cordon-foreign"
        "What the Node was like is read again when the release is repeated: our own cordon is taken for somebody else's."
    // --- log ---
    LocalReads "local-reads"
        "A leader answers reads from its own state without asking whether it still leads."
    VoteNotSynced "vote-not-synced"
        "A vote is not on the disk before it is sent."
    WallClock "wall-clock"
        "Times are taken from a clock that jumps."
}

// === impl Mutant ===

impl Mutant {
    /// The mutant of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
    }
}

/// Whether this bug is planted here and now. Constantly `false` unless the compiler was told `--cfg coroner_mutants`.
#[cfg(not(coroner_mutants))]
#[inline(always)]
pub const fn planted(_: Mutant) -> bool {
    false
}

#[cfg(coroner_mutants)]
pub use self::bed::{Asked, asked, plant, planted};

#[cfg(coroner_mutants)]
mod bed {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use super::Mutant;

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = Cell::new(everywhere());
        static ASKED: Cell<u64> = const { Cell::new(0) };
    }

    const _: () = assert!(Mutant::ALL.len() <= 64, "one bit each");

    /// Bugs that were asked for: a run that never asks for one goes the same way with it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Asked(u64);

    impl Asked {
        /// Whether this one was.
        pub fn has(self, mutant: Mutant) -> bool {
            self.0 & bit(mutant) != 0
        }
    }

    /// What the calling thread has asked for since it was last asked here.
    pub fn asked() -> Asked {
        Asked(ASKED.replace(0))
    }

    const fn bit(mutant: Mutant) -> u64 {
        1 << mutant as u64
    }

    /// Plants this bug for the calling thread, in place of any other; `None`: none.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }

    /// Whether this bug is planted in the calling thread.
    pub fn planted(mutant: Mutant) -> bool {
        ASKED.set(ASKED.get() | bit(mutant));
        PLANTED.get() == Some(mutant)
    }

    /// The bug that a run of the unit tests is about: each test has a thread of its own, and nobody comes before it.
    fn everywhere() -> Option<Mutant> {
        static NAMED: OnceLock<Option<Mutant>> = OnceLock::new();
        *NAMED.get_or_init(|| {
            #[expect(clippy::disallowed_methods, reason = "no shipped build has this module")]
            let name = std::env::var("CORONER_MUTANT").ok().filter(|name| !name.is_empty())?;
            let known = Mutant::named(&name);
            assert!(
                known.is_some(),
                "CORONER_MUTANT is {name:?}, and that is no mutant of shared/src/mutant.rs"
            );
            known
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mutant_has_a_name_of_its_own_and_says_what_it_breaks() {
        let names: BTreeSet<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        assert_eq!(names.len(), Mutant::ALL.len());
        for mutant in Mutant::ALL.iter().copied() {
            assert_eq!(Mutant::named(mutant.name()), Some(mutant));
            assert!(mutant.name().chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", mutant.name());
            assert!(mutant.breaks().ends_with('.') && mutant.breaks().len() < 140, "{}", mutant.name());
        }
        assert_eq!(Mutant::named("no-such-bug"), None);
    }

    #[cfg(not(coroner_mutants))]
    #[test]
    fn nothing_is_planted_in_an_ordinary_build() {
        assert!(Mutant::ALL.iter().all(|mutant| !planted(*mutant)));
    }

    #[cfg(coroner_mutants)]
    #[test]
    fn one_bug_at_a_time_is_planted_and_in_one_thread_only() {
        for mutant in Mutant::ALL.iter().copied() {
            plant(Some(mutant));
            assert!(Mutant::ALL.iter().all(|other| planted(*other) == (*other == mutant)));
        }
        let elsewhere = std::thread::spawn(|| planted(Mutant::WallClock));
        assert!(!elsewhere.join().unwrap_or(true), "planted here, not there");
        plant(None);
        assert!(Mutant::ALL.iter().all(|mutant| !planted(*mutant)));
    }

    #[cfg(coroner_mutants)]
    #[test]
    fn what_was_asked_for_is_known_once() {
        let _ = asked();
        assert!(!planted(Mutant::NoVeto));
        let known = asked();
        assert!(Mutant::ALL.iter().all(|mutant| known.has(*mutant) == (*mutant == Mutant::NoVeto)));
        assert!(!asked().has(Mutant::NoVeto));
    }
}
