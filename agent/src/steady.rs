//! Keeps the kernel from taking the agent's memory away: pages locked, last in line for the OOM killer. Both need
//! rights that a container may lack; then the agent works on and says what is missing.

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MlockAllFlags, mlockall};
use tracing::{info, warn};

/// The kubelet's own value for `system-node-critical` is -997.
const OOM_SCORE: &str = "-999";
const OOM_FILE: &str = "/proc/self/oom_score_adj";

/// Does what is permitted and tells what is not.
pub(crate) fn settle() {
    match lock_memory() {
        Ok(()) => info!("memory is locked: the beacon does not wait for a swapped page"),
        Err(error) => warn!(
            %error,
            "memory could not be locked; under memory pressure beacons may come late. \
             Give the container the capability IPC_LOCK"
        ),
    }
    if let Err(error) = std::fs::write(OOM_FILE, OOM_SCORE) {
        let found = std::fs::read_to_string(OOM_FILE).unwrap_or_default();
        warn!(
            %error,
            oom_score = found.trim(),
            "the OOM score could not be set to {OOM_SCORE}; give the container SYS_RESOURCE, \
             or the priority class system-node-critical (-997)"
        );
    }
}

/// Pages are locked when they are first touched and not before: whole stacks and heaps would be several times the
/// agent's size.
fn lock_memory() -> Result<(), Errno> {
    let on_fault = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault)
}
