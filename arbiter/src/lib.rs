//! One replica of the arbiter: everything around the core that does IO. It contains no decision.
//!
//! ```text
//!   agents --UDP--> datagrams --+                             +--> executor --> bmc_pool, k8s::release, k8s::publish
//!   agents --TLS--> ingress ----+--> hearing (witness, judge) |         ^
//!   replicas -TLS-> ingress ----+         | commands          | jobs    | commands
//!   people ---TLS-> people -------------> v                   |         v
//!   Kubernetes ---> k8s::watch ------> propose ----------> replica (raft, state, disk)
//! ```
//!
//! Files in reading order: [`args`], [`run`], [`birth`] and [`pki`] (who a replica is), [`replica`], [`begun`] and
//! [`store`] with [`store_sled`] and [`store_redb`] (the one owner of the log, and its disk), [`transport`] and
//! [`serve`], [`datagrams`], [`ingress`] and [`hearing`] (what is heard),
//! [`propose`], [`executor`], [`bmc_pool`], [`bmc_open`] and [`bmc_guard`], [`k8s`], [`shown`], [`people`] and [`telemetry`].

#[cfg(coroner_mutants)]
compile_error!("coroner_mutants plants bugs for the simulator: coroner-arbiter is not built with them");

pub mod args;
pub mod begun;
pub mod birth;
pub mod bmc_guard;
pub mod bmc_open;
pub mod bmc_pool;
pub mod bounds;
pub mod clock;
pub mod datagrams;
pub mod executor;
pub mod hearing;
pub mod ingress;
pub mod k8s;
pub mod people;
pub mod pki;
pub mod propose;
pub mod replica;
pub mod reviews;
pub mod run;
pub mod serve;
pub mod shown;
pub mod store;
pub mod store_redb;
pub mod store_sled;
mod store_tide;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod transport;
