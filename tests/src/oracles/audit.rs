//! The instants at which the out-of-service taint came onto a Node, from the API server's audit log: who wrote it, of
//! which boot it spoke, and what the Node was like afterwards.
//!
//! Only requests that were carried out (and not merely tried) count, and of them only the one with which the taint
//! appeared: later ones show it as well. Lines lie in the order in which requests were done with, and a controller may be
//! done with its answer to a write before that write is: what came first, the resourceVersion of the answers tells.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{clock::Clock, watched::OUT_OF_SERVICE};

/// A taint that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tainted {
    /// The Node.
    pub node: String,
    /// Of whose boot: the one that the request tested, else the one that the Node named.
    pub boot_id: String,
    /// Whether the request held only for that boot.
    pub bound: bool,
    /// Who wrote it.
    pub user: String,
    /// When the API server had the request, `CLOCK_BOOTTIME` in ns: nothing of that life may run from here.
    pub received: u64,
    /// When it had answered.
    pub done: u64,
}

/// Reads the log. A last line without its newline is a write under way and is left out.
///
/// # Errors
/// When it cannot be read, or a line that speaks of the taint is not as the API server writes them.
pub fn read(path: &Path, clock: &Clock) -> Result<Vec<Tainted>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut reader = BufReader::new(file);
    let mut log = Reader::default();
    let mut line = String::new();
    loop {
        line.clear();
        let length = reader.read_line(&mut line).with_context(|| format!("read {}", path.display()))?;
        if length == 0 || !line.ends_with('\n') {
            return Ok(log.appeared());
        }
        log.line(&line, clock)?;
    }
}

/// What is known while the log is read.
#[derive(Default)]
struct Reader {
    written: Vec<Written>,
    /// Taints bound to a boot whose request ended without an answer: the API server may have carried it out.
    unanswered: Vec<Tainted>,
}

/// A Node as a request left it.
struct Written {
    /// Of the whole API server, so that it orders writes (Kubernetes, "Resource versions").
    version: u64,
    node: String,
    /// The taint with who wrote it, if the Node carries it now.
    carries: Option<Tainted>,
}

// === impl Reader ===

impl Reader {
    fn line(&mut self, line: &str, clock: &Clock) -> Result<()> {
        // Most of the log is about other things; understanding it all takes seconds.
        if !line.contains("\"resource\":\"nodes\"") || !line.contains("\"responseObject\"") {
            return Ok(());
        }
        let entry: Value = serde_json::from_str(line).context("understand a line of the audit log")?;
        let (object, answer) = (&entry["objectRef"], &entry["responseObject"]);
        let tried = entry["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="));
        let failed = entry["responseStatus"]["code"].as_u64().is_some_and(|code| code >= 500);
        if let (Some(node), Some(_), false, true) =
            (object["name"].as_str(), tested_boot(&entry["requestObject"]), tried, failed)
        {
            self.unanswered.push(Self::tainted(&entry, node, clock)?);
            return Ok(());
        }
        let carried_out = !tried && entry["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
        let (Some(node), true) = (object["name"].as_str(), carried_out && answer["kind"] == "Node") else {
            return Ok(());
        };
        let carries = answer["spec"]["taints"]
            .as_array()
            .is_some_and(|all| all.iter().any(|t| t["key"] == OUT_OF_SERVICE));
        let version = answer["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
        let version = version.context("resourceVersion of a Node in the audit log")?;
        let carries = if carries { Some(Self::tainted(&entry, node, clock)?) } else { None };
        self.written.push(Written { version, node: node.to_owned(), carries });
        Ok(())
    }

    fn tainted(entry: &Value, node: &str, clock: &Clock) -> Result<Tainted> {
        let stamp = |key: &str| {
            let text = entry[key].as_str().with_context(|| format!("{key} of a line of the audit log"))?;
            clock.of_stamp(text).with_context(|| format!("bring {key} {text} to the clock of the lab"))
        };
        let tested = tested_boot(&entry["requestObject"]);
        Ok(Tainted {
            node: node.to_owned(),
            bound: tested.is_some(),
            boot_id: tested
                .or_else(|| entry["responseObject"]["status"]["nodeInfo"]["bootID"].as_str())
                .unwrap_or_default()
                .to_owned(),
            user: entry["user"]["username"].as_str().unwrap_or_default().to_owned(),
            received: stamp("requestReceivedTimestamp")?,
            done: stamp("stageTimestamp")?,
        })
    }

    /// Each taint when it came, in the order of the writes. One that first shows in a write that is bound to no boot is
    /// that of an unanswered request before it, if there is one: controllers write all taints of a Node, ours with theirs.
    fn appeared(mut self) -> Vec<Tainted> {
        self.written.sort_by_key(|written| written.version);
        let mut carries: BTreeMap<String, bool> = BTreeMap::new();
        let mut appeared = Vec::new();
        for Written { node, carries: now, .. } in std::mem::take(&mut self.written) {
            let before = carries.insert(node, now.is_some()).unwrap_or(false);
            let Some(now) = now.filter(|_| !before) else { continue };
            let earlier = |u: &&Tainted| u.node == now.node && u.received <= now.received;
            let unanswered = self.unanswered.iter().rfind(earlier).filter(|_| !now.bound);
            appeared.push(unanswered.cloned().unwrap_or(now));
        }
        appeared
    }
}

/// The boot id that a JSON patch tests before it changes anything.
fn tested_boot(request: &Value) -> Option<&str> {
    let tests = |step: &&Value| step["op"] == "test" && step["path"] == "/status/nodeInfo/bootID";
    request.as_array()?.iter().find(tests)?["value"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oracles::clock::Sample;

    fn entry(second: u8, code: u16, request: &Value, taints: &Value) -> String {
        let entry = json!({
            "verb": "patch",
            "objectRef": { "resource": "nodes", "name": "n1" },
            "user": { "username": "system:serviceaccount:coroner:coroner-arbiter" },
            "responseStatus": { "code": code },
            "requestObject": request,
            "responseObject": {
                "kind": "Node",
                "metadata": { "resourceVersion": second.to_string() },
                "spec": { "taints": taints },
                "status": { "nodeInfo": { "bootID": "said" } },
            },
            "requestReceivedTimestamp": format!("1970-01-01T00:00:{second:02}.000000Z"),
            "stageTimestamp": format!("1970-01-01T00:00:{second:02}.000500Z"),
        });
        format!("{entry}\n")
    }

    fn found(log: &[String]) -> Vec<Tainted> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        std::fs::write(&path, log.concat()).unwrap();
        read(&path, &Clock::new(vec![Sample { t: 0, wall: 0 }])).unwrap()
    }

    #[test]
    fn a_write_without_an_answer_that_shows_in_the_next_one_is_who_wrote_it() {
        let ours = json!([{ "key": OUT_OF_SERVICE, "effect": "NoExecute" }]);
        let tested = json!([{ "op": "test", "path": "/status/nodeInfo/bootID", "value": "tested" }]);
        let cut_off = entry(1, 504, &tested, &json!([])).replace("\"Node\"", "\"Status\"");
        let controllers = entry(2, 200, &json!({}), &ours).replace("coroner-arbiter", "node-controller");
        let both = found(&[cut_off.clone(), controllers.clone()]);
        assert_eq!(both.len(), 1);
        assert!((both[0].bound, both[0].boot_id.as_str()) == (true, "tested"), "{both:?}");
        assert!(!found(std::slice::from_ref(&controllers))[0].bound, "nobody of ours wrote before");
        let too_late = cut_off.replace("00:01", "00:03");
        assert!(!found(&[too_late, controllers])[0].bound);
    }

    #[test]
    fn the_taint_counts_when_it_appears_and_names_the_boot_that_was_tested() {
        let clock = Clock::new(vec![Sample { t: 0, wall: 0 }]);
        let ours = json!([{ "key": OUT_OF_SERVICE, "effect": "NoExecute" }]);
        let other = json!([{ "key": "x", "effect": "NoExecute" }]);
        let tested = json!([{ "op": "test", "path": "/status/nodeInfo/bootID", "value": "tested" }]);
        let plain = json!({});
        let log: String = [
            entry(1, 200, &plain, &other),
            entry(1, 200, &plain, &ours)
                .replace("\"verb\"", "\"requestURI\":\"/api/v1/nodes/n1?dryRun=All\",\"verb\""),
            entry(2, 409, &tested, &ours),
            // Done with before the write that it answers.
            entry(4, 200, &plain, &ours),
            entry(3, 200, &tested, &ours),
            entry(5, 200, &plain, &other),
            entry(6, 200, &plain, &ours),
        ]
        .concat();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        std::fs::write(&path, format!("{log}{{\"resource\":\"nodes\", torn")).unwrap();
        let found = read(&path, &clock).unwrap();
        let short: Vec<_> =
            found.iter().map(|f| (f.received / 1_000_000_000, f.boot_id.as_str(), f.bound)).collect();
        assert_eq!(short, [(3, "tested", true), (6, "said", false)]);
        assert_eq!(found[0].done, 3_000_500_000);
        assert!(found[0].user.ends_with("coroner-arbiter"));
    }
}
