//! The way back: a node whose machine runs again must become what it was before, byte for byte, and its incident must
//! end.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::{
    lab::site::{Site, tell::Look},
    oracles::traces,
};

/// Boot, Ready for a while, a margin: a minute on a busy host; the lab's policy shortens what it may.
const PATIENCE: Duration = Duration::from_secs(180);

/// A node on its way back.
#[derive(Clone, Debug)]
pub struct Return {
    /// The node.
    pub node: String,
    /// As it was before anything happened.
    pub before: Value,
    /// The life that ended; `None` where the same life goes on.
    pub old_boot: Option<String>,
}

// === impl Return ===

impl Return {
    /// Remembers a node as it is now.
    ///
    /// # Errors
    /// When the API server does not give it.
    pub async fn of(site: &Site, node: &str) -> Result<Self> {
        let before = site.node_object(node).await?;
        Ok(Self { node: node.to_owned(), before, old_boot: Some(site.boot_id(node).await?) })
    }

    /// The same life goes on: nothing of it ended.
    #[must_use]
    pub fn same_life(mut self) -> Self {
        self.old_boot = None;
        self
    }

    /// Waits until the node is back after the scenario `played`, and compares.
    ///
    /// # Errors
    /// When it does not come back, or is not what it was.
    pub async fn wait(&self, site: &Site, played: &str) -> Result<()> {
        let Self { node, before, old_boot } = self;
        let what = format!("{node} back in service");
        site.tell
            .until(&what, PATIENCE, async || {
                Ok(self.missing(site).await?.map_or(Look::There(()), Look::Missing))
            })
            .await?;
        let after = site.node_object(node).await?;
        let differences = traces::differences(before, &after);
        ensure!(differences.is_empty(), "{node} came back, but its {}", differences.join("; its "));
        let life = if old_boot.is_some() { "with a new boot id and " } else { "" };
        site.tell.note(&format!("{node} is back after {played}, {life}as it was before"));
        Ok(())
    }

    async fn missing(&self, site: &Site) -> Result<Option<String>> {
        if let Some(missing) = site.not_at_home().await?.remove(&self.node) {
            return Ok(Some(missing));
        }
        let boot = site.boot_id(&self.node).await?;
        Ok((self.old_boot.as_ref() == Some(&boot)).then(|| "the life that was to end goes on".to_owned()))
    }
}
