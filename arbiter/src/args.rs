//! Flags and environment of `coroner-arbiter`, checked as a set before anything starts.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Parser;
use coroner_shared::id::NodeName;

use crate::store::StoreKind;
use crate::telemetry::LogFormat;

/// One replica of Coroner's arbiter.
#[derive(Clone, Debug, Parser)]
#[command(name = "coroner-arbiter", version)]
pub struct Args {
    /// Name of the node this replica runs on.
    #[arg(long, env = "NODE_NAME")]
    pub node_name: NodeName,
    /// Address of the host that the other replicas and agents use; bound and shown.
    #[arg(long, env = "HOST_IP")]
    pub address: IpAddr,
    /// Folder of the log, the keys and the socket; belongs to this host and outlives pods.
    #[arg(long, default_value = "/var/lib/coroner-arbiter")]
    pub state: PathBuf,
    /// What keeps the log; a disk stays with what it has begun with.
    #[arg(long, value_enum, default_value = "sled")]
    pub store: StoreKind,
    /// Namespace of Coroner's objects.
    #[arg(long, env = "POD_NAMESPACE", default_value = coroner_shared::names::NAMESPACE)]
    pub namespace: String,
    /// ServiceAccount of the agents.
    #[arg(long, default_value = "coroner-agent")]
    pub agent_service_account: String,
    /// URL of the API server, where it is not the one that a pod's environment names.
    #[arg(long)]
    pub api_server: Option<String>,
    /// How logs are written.
    #[arg(long, value_enum, default_value = "human")]
    pub log_format: LogFormat,
    /// What is logged (tracing's filter).
    #[arg(long, default_value = "info,kube=off,kube_client=off,hyper=warn")]
    pub log: String,
}

impl Args {
    /// What is wrong with these values together.
    ///
    /// # Errors
    /// A sentence that names the flag, its value and what would be right.
    pub fn check(&self) -> Result<(), String> {
        if self.address.is_unspecified() || self.address.is_multicast() {
            return Err(format!(
                "--address {} is no address of one host; give the node's InternalIP",
                self.address
            ));
        }
        if !self.state.is_absolute() {
            return Err(format!("--state {} is not an absolute path", self.state.display()));
        }
        if let Some(url) = &self.api_server
            && !url.starts_with("https://")
        {
            return Err(format!(
                "--api-server {url} is not https; the API server is only spoken to encrypted"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extra: &[&str]) -> Result<(), String> {
        let base = ["coroner-arbiter", "--node-name", "n1"];
        let args = Args::try_parse_from(base.iter().chain(extra)).map_err(|e| e.to_string())?;
        args.check()
    }

    #[test]
    fn flags_are_checked_as_a_set() {
        assert_eq!(check(&["--address", "10.0.0.1"]), Ok(()));
        assert!(check(&["--address", "0.0.0.0"]).unwrap_err().contains("--address 0.0.0.0"));
        assert!(check(&["--address", "10.0.0.1", "--state", "x"]).unwrap_err().contains("--state x"));
        assert!(
            check(&["--address", "10.0.0.1", "--api-server", "http://a"]).unwrap_err().contains("not https")
        );
        assert!(check(&["--address", "ten"]).unwrap_err().contains("ten"));
        assert!(check(&[]).is_err());
    }
}
