//! Whom a host may believe: the file `cluster.json` of the ConfigMap `coroner-trust`, mounted by agents and replicas;
//! and who founds the group of replicas: the Secret `coroner-cluster`, which only replicas read.
//!
//! `coroner arbiter init` writes it; the leader rewrites it whenever members or their keys change. What changes later
//! reaches a registered agent with its slice, so this file is needed for the first contact only.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::{ClusterId, NodeName, ReplicaId};
use crate::keys::PublicKey;

/// Name of the file in the ConfigMap.
pub const TRUST_FILE: &str = "cluster.json";

/// Cluster id, CA and replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trust {
    /// The installation.
    pub cluster: ClusterId,
    /// The CA's certificate, PEM: signs what replicas show on TCP 7462.
    pub ca: String,
    /// All replicas.
    pub replicas: Vec<TrustedReplica>,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedReplica {
    /// Its Raft id.
    pub id: ReplicaId,
    /// The node it runs on.
    pub host: NodeName,
    /// Its address.
    pub address: IpAddr,
    /// The key of its datagrams, once it has made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PublicKey>,
}

/// Key of the Secret that holds the founders.
pub const FOUNDERS: &str = "founders.json";
/// Key of the Secret that holds the CA's certificate.
pub const CA_CERTIFICATE: &str = "ca.crt";
/// Key of the Secret that holds the CA's key.
pub const CA_KEY: &str = "ca.key";

/// Who founds the group; written once by `coroner arbiter init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Founders {
    /// The installation.
    pub cluster: ClusterId,
    /// 1 or 3 members.
    pub members: Vec<Founder>,
}

/// One founding member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Founder {
    /// Its Raft id.
    pub id: ReplicaId,
    /// The node it runs on.
    pub node: NodeName,
    /// Its address.
    pub address: IpAddr,
}

/// Key of a member's mark in the Secret: its disk has been used, so an empty one is a lost one.
pub fn mark_of(id: ReplicaId) -> String {
    format!("used-{id}")
}

/// What is wrong with a trust file.
#[derive(Debug, Error)]
pub enum TrustError {
    /// Not JSON of this form.
    #[error("{TRUST_FILE} of ConfigMap coroner-trust cannot be read: {0}")]
    Form(#[from] serde_json::Error),
    /// Nobody to talk to.
    #[error("{TRUST_FILE} names no replica; `coroner arbiter init` writes 1 or 3")]
    NoReplica,
    /// Two replicas share an id, a host or an address.
    #[error("{TRUST_FILE} names {what} twice; each replica has its own")]
    Twice {
        /// Which value.
        what: String,
    },
    /// No certificate.
    #[error("{TRUST_FILE} field `ca` is not a PEM certificate")]
    Ca,
}

impl Trust {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// [`TrustError`], naming the field.
    pub fn parse(text: &str) -> Result<Self, TrustError> {
        let trust: Self = serde_json::from_str(text)?;
        if trust.replicas.is_empty() {
            return Err(TrustError::NoReplica);
        }
        if !trust.ca.contains("-----BEGIN CERTIFICATE-----") {
            return Err(TrustError::Ca);
        }
        let mut seen = BTreeSet::new();
        for replica in &trust.replicas {
            for what in [
                format!("id {}", replica.id),
                format!("host {}", replica.host),
                format!("address {}", replica.address),
            ] {
                if !seen.insert(what.clone()) {
                    return Err(TrustError::Twice { what });
                }
            }
        }
        Ok(trust)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(replicas: &str, ca: &str) -> String {
        format!(r#"{{"cluster":"8d2c6f3a-1b4e-4c7d-9e0f-000000000001","ca":"{ca}","replicas":[{replicas}]}}"#)
    }

    #[test]
    fn a_trust_file_is_checked_as_a_whole() {
        let pem = "-----BEGIN CERTIFICATE-----";
        let one = r#"{"id":1,"host":"n1","address":"10.0.0.1"}"#;
        let two = r#"{"id":2,"host":"n2","address":"10.0.0.2"}"#;
        let same_address = r#"{"id":2,"host":"n2","address":"10.0.0.1"}"#;
        let zero = r#"{"id":0,"host":"n2","address":"10.0.0.2"}"#;
        let check = |replicas: &str, ca: &str| Trust::parse(&file(replicas, ca)).map_err(|e| e.to_string());
        assert_eq!(check(&format!("{one},{two}"), pem).unwrap().replicas.len(), 2);
        assert!(check("", pem).unwrap_err().contains("no replica"));
        assert!(check(&format!("{one},{same_address}"), pem).unwrap_err().contains("address 10.0.0.1 twice"));
        assert!(check(one, "x").unwrap_err().contains("`ca`"));
        assert!(check(zero, pem).unwrap_err().contains("start at 1"));
    }
}
