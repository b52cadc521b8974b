//! Whether our ServiceAccounts have the rights they use and no others: `deploy/init/rbac.yaml` beside the API server's
//! audit log of everything that a site was played.
//!
//! A right that no play of minutes can use is named in [`UNUSED`] with its reason; any other that was not used is one
//! too many. What everybody who is authenticated may ask (`/version`) is no right of ours.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use coroner_shared::names::NAMESPACE;
use serde_json::Value;

/// Who may do, or did, what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    /// ServiceAccount, in our namespace.
    account: String,
    verb: String,
    group: String,
    /// With a subresource: `nodes/status`.
    resource: String,
    /// Of a right, empty means everywhere; of a use, an object without a namespace.
    namespace: String,
    /// Of a right, empty means any; of a use, that none was named.
    name: String,
}

/// Rights that a play does not use: account, verb, group, resource, name, and why.
const UNUSED: [(&str, &str, &str, &str, &str, &str); 4] = [
    ("coroner-arbiter", "list", "coroner.dev", "incidents", "", "asked every ten minutes, to prune"),
    ("coroner-arbiter", "delete", "coroner.dev", "incidents", "", "pruned after 30 days, or past 1,000"),
    ("coroner-init", "get", "", "configmaps", "coroner-cluster", "read where another installation's mark is"),
    (
        "coroner-init",
        "update",
        "",
        "configmaps",
        "coroner-cluster",
        "a mark whose installation is gone is taken over",
    ),
];

/// What is wrong with the rights that `manifest` gives, judged by what `audit` shows of their use.
///
/// # Errors
/// A file cannot be read, or is not what it should be.
pub fn check(manifest: &Path, audit: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(manifest).with_context(|| format!("read {}", manifest.display()))?;
    let documents: Vec<Value> =
        serde_yaml::from_multiple(&text).with_context(|| format!("understand {}", manifest.display()))?;
    let granted = granted(&documents);
    ensure!(!granted.is_empty(), "{} gives nobody a right", manifest.display());
    let mut log = Log::default();
    let file = File::open(audit).with_context(|| format!("open {}", audit.display()))?;
    for line in BufReader::new(file).lines() {
        log.line(&line.with_context(|| format!("read {}", audit.display()))?);
    }
    ensure!(!log.used.is_empty(), "{} shows nobody of ours", audit.display());
    Ok(judge(&granted, &log))
}

fn judge(granted: &BTreeSet<Right>, log: &Log) -> Vec<String> {
    let refused =
        log.refused.iter().map(|use_of| format!("refused, so a right is missing: {}", use_of.says()));
    let elsewhere = log.used.iter().filter(|use_of| !granted.iter().any(|right| right.allows(use_of)));
    let elsewhere =
        elsewhere.map(|use_of| format!("allowed by something else than our rules: {}", use_of.says()));
    let unused = granted.iter().filter(|right| {
        !log.used.iter().any(|use_of| right.allows(use_of)) && !UNUSED.iter().any(|known| right.is(known))
    });
    let unused = unused.map(|right| format!("a right that was not used: {}", right.says()));
    let stale = UNUSED.iter().filter(|known| !granted.iter().any(|right| right.is(known)));
    let stale = stale.map(|known| format!("nobody has the right that is excused: {known:?}"));
    refused.chain(elsewhere).chain(unused).chain(stale).collect()
}

/// What the bindings to our ServiceAccounts give.
fn granted(documents: &[Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for binding in documents.iter().filter(|it| text(&it["kind"]).ends_with("RoleBinding")) {
        let namespace = text(&binding["metadata"]["namespace"]);
        let role = documents.iter().find(|it| {
            let of_namespace = it["kind"] == "ClusterRole" || it["metadata"]["namespace"] == namespace;
            it["kind"] == binding["roleRef"]["kind"]
                && it["metadata"]["name"] == binding["roleRef"]["name"]
                && of_namespace
        });
        let rules = role.map(|role| list(&role["rules"])).unwrap_or_default();
        for account in list(&binding["subjects"]).iter().filter(|it| it["kind"] == "ServiceAccount") {
            for rule in &rules {
                rights.extend(of_rule(rule, text(&account["name"]), namespace));
            }
        }
    }
    rights
}

fn of_rule(rule: &Value, account: &str, namespace: &str) -> Vec<Right> {
    let words = |key: &str| list(&rule[key]).iter().map(|word| text(word).to_owned()).collect::<Vec<_>>();
    let mut names = words("resourceNames");
    if names.is_empty() {
        names.push(String::new());
    }
    let mut rights = Vec::new();
    for group in words("apiGroups") {
        for resource in words("resources") {
            for verb in words("verbs") {
                rights.extend(names.iter().map(|name| Right {
                    account: account.to_owned(),
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    namespace: namespace.to_owned(),
                    name: name.clone(),
                }));
            }
        }
    }
    rights
}

/// What the audit log shows of our ServiceAccounts.
#[derive(Default)]
struct Log {
    used: BTreeSet<Right>,
    refused: BTreeSet<Right>,
}

// === impl Log ===

impl Log {
    /// A line that is cut short is a write under way.
    fn line(&mut self, line: &str) {
        let ours = format!("system:serviceaccount:{NAMESPACE}:");
        if !line.contains(&ours) {
            return;
        }
        let Ok(entry) = serde_json::from_str::<Value>(line) else { return };
        let Some(account) = text(&entry["user"]["username"]).strip_prefix(&ours) else { return };
        let object = &entry["objectRef"];
        if !object.is_object() {
            return;
        }
        let subresource = text(&object["subresource"]);
        let slash = if subresource.is_empty() { "" } else { "/" };
        let one = Right {
            account: account.to_owned(),
            verb: text(&entry["verb"]).to_owned(),
            group: text(&object["apiGroup"]).to_owned(),
            resource: format!("{}{slash}{subresource}", text(&object["resource"])),
            namespace: text(&object["namespace"]).to_owned(),
            name: text(&object["name"]).to_owned(),
        };
        if entry["annotations"]["authorization.k8s.io/decision"] == "forbid" {
            self.refused.insert(one);
            return;
        }
        // A server-side apply of what is not there yet needs both rights
        // (https://kubernetes.io/docs/reference/using-api/server-side-apply/#authorization-and-permissions).
        if one.verb == "patch" && entry["responseStatus"]["code"] == 201 {
            self.used.insert(Right { verb: "create".to_owned(), ..one.clone() });
        }
        self.used.insert(one);
    }
}

// === impl Right ===

impl Right {
    fn allows(&self, use_of: &Self) -> bool {
        let Self { account, verb, group, resource, namespace, name } = self;
        (account, verb, group, resource) == (&use_of.account, &use_of.verb, &use_of.group, &use_of.resource)
            && (namespace.is_empty() || *namespace == use_of.namespace)
            && (name.is_empty() || *name == use_of.name)
    }

    fn is(&self, known: &(&str, &str, &str, &str, &str, &str)) -> bool {
        let (account, verb, group, resource, name, _) = *known;
        self.account == account
            && self.verb == verb
            && self.group == group
            && self.resource == resource
            && self.name == name
    }

    fn says(&self) -> String {
        let Self { account, verb, group, resource, namespace, name } = self;
        format!("{account}: {verb} {resource} {name:?} of group {group:?} in namespace {namespace:?}")
    }
}

// === helpers ===

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lab::site::programs::in_checkout;

    fn entry(verb: &str, object: &Value, code: u16, decision: &str) -> String {
        json!({
            "verb": verb,
            "user": { "username": "system:serviceaccount:coroner:coroner-arbiter" },
            "objectRef": object,
            "responseStatus": { "code": code },
            "annotations": { "authorization.k8s.io/decision": decision },
        })
        .to_string()
    }

    fn of(log: &[String]) -> Log {
        let mut found = Log::default();
        log.iter().for_each(|line| found.line(line));
        found
    }

    /// `UNUSED` and what the roles of this sample give.
    fn sample() -> BTreeSet<Right> {
        let documents = json!([
            { "kind": "ClusterRole", "metadata": { "name": "a" }, "rules": [
                { "apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch"] },
            ] },
            { "kind": "Role", "metadata": { "name": "a", "namespace": "coroner" }, "rules": [
                { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"], "verbs": ["get"] },
            ] },
            { "kind": "Role", "metadata": { "name": "a", "namespace": "other" }, "rules": [
                { "apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"] },
            ] },
            { "kind": "ClusterRoleBinding", "roleRef": { "kind": "ClusterRole", "name": "a" },
              "subjects": [{ "kind": "ServiceAccount", "name": "coroner-arbiter" }] },
            { "kind": "RoleBinding", "metadata": { "namespace": "coroner" }, "roleRef": { "kind": "Role", "name": "a" },
              "subjects": [{ "kind": "ServiceAccount", "name": "coroner-arbiter" }, { "kind": "Group", "name": "g" }] },
        ]);
        let mut rights = granted(documents.as_array().unwrap());
        assert_eq!(rights.len(), 3, "{rights:?}");
        for (account, verb, group, resource, name, _) in UNUSED {
            let [account, verb, group, resource, name] =
                [account, verb, group, resource, name].map(str::to_owned);
            rights.insert(Right { account, verb, group, resource, namespace: String::new(), name });
        }
        rights
    }

    fn all_used() -> Vec<String> {
        vec![
            entry("patch", &json!({ "resource": "nodes", "name": "n1" }), 200, "allow"),
            entry(
                "patch",
                &json!({ "resource": "nodes", "subresource": "status", "name": "n1" }),
                200,
                "allow",
            ),
            entry(
                "get",
                &json!({ "resource": "secrets", "namespace": "coroner", "name": "s" }),
                404,
                "allow",
            ),
            entry("get", &Value::Null, 200, "allow"),
        ]
    }

    #[test]
    fn what_is_used_and_granted_is_right() {
        assert_eq!(judge(&sample(), &of(&all_used())), Vec::<String>::new());
    }

    #[test]
    fn each_way_to_be_wrong_is_told() {
        let more = |line: String| of(&[all_used(), vec![line]].concat());
        let secret = |name: &str| json!({ "resource": "secrets", "namespace": "coroner", "name": name });
        let cases = [
            (
                more(entry("list", &json!({ "resource": "pods" }), 403, "forbid")),
                "refused, so a right is missing",
            ),
            (more(entry("get", &secret("t"), 200, "allow")), "something else than our rules"),
            (
                more(entry("patch", &json!({ "resource": "nodes", "name": "new" }), 201, "allow")),
                "create nodes",
            ),
            (of(&all_used()[1..]), "not used: coroner-arbiter: patch nodes \"\""),
            (of(&all_used()[..2]), "not used: coroner-arbiter: get secrets \"s\""),
        ];
        for (log, says) in cases {
            let wrong = judge(&sample(), &log);
            assert!(wrong.len() == 1 && wrong[0].contains(says), "{says}: {wrong:?}");
        }
        let mut fewer = sample();
        fewer.retain(|right| right.resource != "incidents");
        let wrong = judge(&fewer, &of(&all_used()));
        assert!(wrong.len() == 2 && wrong[0].contains("nobody has the right that is excused"), "{wrong:?}");
    }

    /// An agent has none: whatever it asks is either refused or allowed by something that is not ours.
    #[test]
    fn our_manifest_is_understood_and_gives_agents_nothing() {
        let documents: Vec<Value> =
            serde_yaml::from_multiple(&fs::read_to_string(in_checkout("deploy/init/rbac.yaml")).unwrap())
                .unwrap();
        let rights = granted(&documents);
        assert!(rights.len() > 20, "{rights:?}");
        assert!(rights.iter().all(|right| right.account != "coroner-agent"));
        let nobody = Log::default();
        let unused = judge(&rights, &nobody);
        assert_eq!(unused.len(), rights.len() - UNUSED.len(), "{unused:?}");
    }
}
