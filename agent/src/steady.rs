//! Keeps the kernel from taking the agent's memory away: pages locked, last in line for the OOM killer. Both need
//! rights that a container may lack; then the agent works on and says what is missing.

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MlockAllFlags, mlockall};
use tracing::{info, warn};

/// Below everything but what the kernel never kills.
const OOM_SCORE: &str = "-999";
/// What the kubelet gives to `system-node-critical` and to pods whose requests equal their limits: good enough.
const OOM_SCORE_OF_CRITICAL: i32 = -997;
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
        let score = found.trim().parse::<i32>().unwrap_or(0);
        if score > OOM_SCORE_OF_CRITICAL {
            warn!(
                %error,
                oom_score = score,
                "the kernel may kill this agent when memory runs out. Give its pod the priority class \
                 system-node-critical, or requests equal to limits, or the container the capability SYS_RESOURCE"
            );
        }
    }
}

/// Pages are locked when they are first touched and not before: whole stacks and heaps would be several times the
/// agent's size.
fn lock_memory() -> Result<(), Errno> {
    let on_fault = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault)
}
