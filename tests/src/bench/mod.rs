//! How fast, how large: rows that `hack/bench` measures. Nothing here asserts a time; a figure is worth something beside
//! another one from the same run on the same machine, so whatever has a peer is measured beside it, in turns.
//!
//! One file for each kind of row. To add one: a file with `rows`, and a line in [`KINDS`]. Why no criterion: it says how
//! one function does, run after run; these rows compare programs in turns, and say their 99th percentile.

pub mod commits;
pub mod datagrams;
pub mod deaths;
pub mod decisions;
pub mod etcd;
pub mod fleet;
pub mod footprint;
pub mod grpc;
pub mod replicas;
pub mod row;
pub mod samples;
pub mod witness;

use std::path::PathBuf;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use tokio::sync::OnceCell;

use crate::lab::site::{Site, SiteConfig, tell::Tell};
use row::Bench;

/// What was asked for.
pub struct Asked {
    /// Who hears how it goes on.
    pub tell: Tell,
    /// Folder for logs, on the disk that is measured.
    pub folder: PathBuf,
    /// etcd's program; without it there is no peer.
    pub etcd: Option<PathBuf>,
    /// Turns that each side of a comparison gets.
    pub turns: u32,
    /// Length of a turn.
    pub turn_ms: u64,
    /// Deaths of each kind.
    pub runs: usize,
    /// Minutes for which a site is watched.
    pub minutes: u32,
    /// What a site is made of.
    pub site: SiteConfig,
    /// The one site of all kinds that need one; see [`Asked::site`].
    pub up: OnceCell<Site>,
}

/// A kind of rows.
pub struct Kind {
    /// As `--only` spells it.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// Whether it needs a site: machines, a control plane, and root.
    pub lab: bool,
    /// Measures it.
    pub measure: for<'a> fn(&'a Asked, &'a mut Bench) -> LocalBoxFuture<'a, Result<()>>,
}

/// All kinds, in the order of the table.
pub const KINDS: [Kind; 7] = [
    Kind {
        name: "commits",
        about: "three replicas over loopback TLS against three members of etcd on the same disk",
        lab: false,
        measure: |asked, bench| Box::pin(async { bench.add(commits::rows(asked).await) }),
    },
    Kind {
        name: "decisions",
        about: "the verdict on one node",
        lab: false,
        measure: |_, bench| Box::pin(async { bench.add(decisions::rows()) }),
    },
    Kind {
        name: "witness",
        about: "what a replica hears each second of 5,000 nodes",
        lab: false,
        measure: |_, bench| Box::pin(async { bench.add(witness::rows()) }),
    },
    Kind {
        name: "fleet",
        about: "what else grows with the number of nodes, at 5,000",
        lab: false,
        measure: |_, bench| Box::pin(async { bench.add(fleet::rows()) }),
    },
    Kind {
        name: "datagrams",
        about: "a beacon and a status, signed and checked",
        lab: false,
        measure: |_, bench| Box::pin(async { bench.add(datagrams::rows()) }),
    },
    Kind {
        name: "deaths",
        about: "from silence to the replacement Running on a site: power cut, hang",
        lab: true,
        measure: |asked, bench| Box::pin(deaths::measure(asked, bench)),
    },
    Kind {
        name: "footprint",
        about: "what agents and replicas cost the six machines of a quiet site",
        lab: true,
        measure: |asked, bench| Box::pin(footprint::measure(asked, bench)),
    },
];

// === impl Asked ===

impl Asked {
    /// The site; brought up for whoever asks first.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn site(&self) -> Result<&Site> {
        self.up.get_or_try_init(|| Site::up(self.site.clone(), self.tell.clone())).await
    }
}
