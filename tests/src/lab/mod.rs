//! The lab: a real Kubernetes cluster on one machine, whose machines can lose power.
//!
//! ```text
//! Lab::up ─ starts ─> coroner-lab serve   owns everything below, answers on lab.sock     <─ LabClient, BMC emulator
//!   hub                    spine, racks, control plane (hack/control-plane), cuts by nft
//!   machines               namespaces with a real containerd and kubelet; power is their control group
//!   BMC network            the only bridge to the BMCs; replicas' machines have a second link to it
//! ```
//!
//! Needs root, and the programs that `check_host` names. Nothing is left when it goes away, however it ends; what
//! SIGKILL of everybody at once leaves, `coroner-lab down` removes.

pub mod attacher;
pub mod bmcs;
pub mod cgroup;
pub mod client;
pub mod cluster;
pub mod cuts;
pub mod emulator;
pub mod end;
pub mod images;
pub mod machine;
pub mod net;
pub mod node;
pub mod plan;
pub mod protocol;
pub mod site;
pub mod sushy;
pub mod teardown;
pub mod traffic;
pub mod truth;
pub mod usage;

mod build;
mod cli;
mod gate;
mod handle;
mod server;
mod shell;
mod slot;

pub use self::{
    build::check_host,
    cli::Cli,
    client::LabClient,
    cuts::{Cut, Direction, Target},
    handle::{Lab, down, ensure_free},
    plan::{LabConfig, MachinePlan, Names, Plan},
    protocol::{MachineState, Power},
};

/// The workload of the lab's pods: a crate of its own, so that its image is built without everything else here.
pub use coroner_lab_writer as writer;
