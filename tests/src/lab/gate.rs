//! Stands between the lab's threads and the lab while it goes away: whoever changes something passes it first.

use std::sync::{
    PoisonError, RwLock, RwLockReadGuard, TryLockError,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Result, ensure};

/// Open until the lab goes away.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closing: AtomicBool,
    inside: RwLock<()>,
}

// === impl Gate ===

impl Gate {
    /// Held while something is changed.
    ///
    /// # Errors
    /// When the lab is going away.
    pub(super) fn pass(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let inside = self.inside.read().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        Ok(inside)
    }

    /// For whoever is inside for long.
    ///
    /// # Errors
    /// When the lab is going away.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(!self.closing.load(Ordering::SeqCst), "the lab is going away");
        Ok(())
    }

    /// Lets nobody in any more. Returns whether everybody has left.
    pub(super) fn close(&self) -> bool {
        self.closing.store(true, Ordering::SeqCst);
        !matches!(self.inside.try_write(), Err(TryLockError::WouldBlock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_a_closed_gate_and_it_waits_for_those_inside() {
        let gate = Gate::default();
        let inside = gate.pass().unwrap();
        assert!(!gate.close());
        assert!(gate.check().is_err());
        drop(inside);
        assert!(gate.close());
        assert!(gate.pass().is_err());
    }
}
