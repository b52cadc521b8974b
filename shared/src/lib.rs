//! The words that both sides of Coroner use. No IO, no clock, no randomness, no decision.
//!
//! Modules in reading order:
//!
//! * [`time`]: monotonic instants and spans, arithmetic only.
//! * [`id`]: names and numbers of nodes, machines, boots, replicas, incidents.
//! * [`machine_id`]: the SMBIOS UUID, its strict parser and the named byte orders.
//! * [`hex`]: strict hexadecimal text.
//! * [`keys`]: public keys, signatures, and what is signed.
//! * [`beacon`]: beacons, reports, probes: what agents say and what replicas ask.
//! * [`slice`]: what the arbiter tells an agent about its peers.
//! * [`bmc`]: raw facts read from a BMC, before anybody judges them.
//! * [`health`]: the health summary a beacon carries.
//! * [`api`]: the JSON of the people's port.
//! * [`wire`]: versioned datagrams and HTTP bodies, with their limits.
//! * [`trust`]: whom a host may believe.
//! * [`rate`]: how often something may happen.
//! * [`names`]: API group, taint, annotations, ports, metric names: spelt once.
//! * [`mutant`]: planted bugs, which no shipped build can contain.
//!
//! # Glossary
//!
//! One word, one meaning, in code, logs, metrics, resources and documents.
//!
//! | word | meaning |
//! |---|---|
//! | node | a Kubernetes Node object and the host behind it |
//! | machine | the physical computer, known by its SMBIOS UUID |
//! | replica | one member of the arbiter's Raft group |
//! | peer | another agent, seen from an agent |
//! | observer, subject | who listens, who is listened to |
//! | beacon | a signed "I am alive" of an agent |
//! | proof of life | a registration, a replica's own traffic for its host, or a beacon newer than any seen before |
//! | silence | the expected beacon did not come: an observation, never a verdict |
//! | report | an observer's statement about a subject: silent for so long, or heard |
//! | incarnation | which life of a node: Node UID, machine id and boot id |
//! | verdict | Pending, Dead or Held, each with its reason |
//! | intent, attempt | the committed permission to send power commands; one committed sending |
//! | proof | committed readings that the right machine is off, or a person's bound confirmation |
//! | release, return | letting Kubernetes restart the workloads; the way back |
//! | refusal | a decision not to act, with its named reason; not an error |

pub mod api;
pub mod beacon;
pub mod bmc;
pub mod health;
pub mod hex;
pub mod id;
pub mod keys;
pub mod machine_id;
pub mod mutant;
pub mod names;
pub mod rate;
pub mod slice;
mod text;
pub mod time;
pub mod trust;
pub mod wire;
