//! kubectl and what the site asks of it, as administrator of the lab's cluster.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::lab::Names;

/// `kubectl` of the lab.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

// === impl Kubectl ===

impl Kubectl {
    /// Of the lab of these names.
    #[must_use]
    pub fn new(names: &Names) -> Self {
        Self { program: names.state().join("control-plane/bin/kubectl"), kubeconfig: names.kubeconfig() }
    }

    /// Where it is.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it and returns what it prints.
    ///
    /// # Errors
    /// When it fails; the error is what it says.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.with_input(args, None).await
    }

    /// Runs it with `-o json` and returns the object.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub async fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.run(&[args, &["-o", "json"]].concat()).await?;
        serde_json::from_str(&text).with_context(|| format!("understand kubectl {}", args.join(" ")))
    }

    /// Applies objects: a JSON object, or a list of them.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.with_input(&["apply", "-f", "-"], Some(&list.to_string())).await.map(drop)
    }

    /// Applies a folder with a kustomization.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub async fn apply_folder(&self, folder: &Path) -> Result<()> {
        self.run(&["apply", "--server-side", "-k", &folder.to_string_lossy()]).await.map(drop)
    }

    async fn with_input(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        let shown = || format!("kubectl {}", args.join(" "));
        let mut child = Command::new(&self.program)
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg("--request-timeout=20s")
            .args(args)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            stdin.write_all(input.as_bytes()).await.with_context(shown)?;
        }
        let output = child.wait_with_output().await.with_context(shown)?;
        if !output.status.success() {
            bail!("{}: {}", shown(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
