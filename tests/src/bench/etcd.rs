//! Three members of etcd on this machine, as they are meant to run: every write synced, TLS between them. Asked
//! without TLS, over gRPC, at the member that leads: the shortest way in that it has.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::grpc::{Found, Grpc, field, find};

/// Loopback addresses that nothing else of ours uses.
const HOSTS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(127, 78, 0, 1), Ipv4Addr::new(127, 78, 0, 2), Ipv4Addr::new(127, 78, 0, 3)];
const CLIENTS: u16 = 24379;
const MEMBERS: u16 = 24380;

/// Running members; they end with this.
pub struct Etcd {
    members: Vec<Child>,
    leader: SocketAddr,
    version: String,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            // It may have ended by itself.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

// === impl Etcd ===

impl Etcd {
    /// Starts three members with their data in `folder`, and waits until one leads.
    ///
    /// # Errors
    /// A member does not start; its log is in `folder`.
    pub async fn start(program: &Path, folder: &Path) -> Result<Self> {
        let cluster = HOSTS.iter().enumerate().map(|(n, host)| format!("m{n}=https://{host}:{MEMBERS}"));
        let cluster = cluster.collect::<Vec<_>>().join(",");
        let mut etcd = Self {
            members: Vec::new(),
            leader: SocketAddr::from((HOSTS[0], CLIENTS)),
            version: String::new(),
        };
        for (n, host) in HOSTS.iter().enumerate() {
            let data = folder.join(format!("etcd-{n}"));
            fs::create_dir_all(&data)?;
            let log = File::create(folder.join(format!("etcd-{n}.log")))?;
            let (client, member) = (format!("http://{host}:{CLIENTS}"), format!("https://{host}:{MEMBERS}"));
            let started = Command::new(program)
                .args(["--name", &format!("m{n}"), "--peer-auto-tls", "--log-level", "warn"])
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &member, "--initial-advertise-peer-urls", &member])
                .args(["--initial-cluster", &cluster, "--initial-cluster-state", "new"])
                .arg("--data-dir")
                .arg(&data)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn();
            etcd.members.push(started.with_context(|| format!("start {}", program.display()))?);
        }
        let found = tokio::time::timeout(Duration::from_secs(60), etcd.find_leader()).await;
        found.with_context(|| format!("no member of etcd leads; see the logs in {}", folder.display()))??;
        Ok(etcd)
    }

    async fn find_leader(&mut self) -> Result<()> {
        loop {
            for (n, host) in HOSTS.iter().enumerate() {
                if let Some(status) = self.members.get_mut(n).map(Child::try_wait).transpose()?.flatten() {
                    bail!("member {n} of etcd has ended: {status}");
                }
                let address = SocketAddr::from((*host, CLIENTS));
                if let Ok(Some(version)) = leads(address).await {
                    (self.leader, self.version) = (address, version);
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Its name and version.
    #[must_use]
    pub fn name(&self) -> String {
        format!("etcd {}", self.version)
    }

    /// A connection to the member that leads.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn connect(&self) -> Result<Grpc> {
        Grpc::connect(self.leader).await
    }
}

/// Puts a value.
///
/// # Errors
/// etcd refuses, or does not answer.
pub async fn put(grpc: &mut Grpc, key: &str, value: &[u8]) -> Result<()> {
    grpc.call("etcdserverpb.KV/Put", &[field(1, key.as_bytes()), field(2, value)].concat()).await.map(|_| ())
}

/// The version of the member at `address`, if it leads.
async fn leads(address: SocketAddr) -> Result<Option<String>> {
    let status = Grpc::connect(address).await?.call("etcdserverpb.Maintenance/Status", &[]).await?;
    let Some(Found::Bytes(header)) = find(&status, 1)? else { bail!("a status without a header") };
    let member = find(header, 2)?;
    let version = match find(&status, 2)? {
        Some(Found::Bytes(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Found::Number(_)) | None => String::new(),
    };
    let leader = find(&status, 4)?;
    Ok((member.is_some() && member == leader).then_some(version))
}
