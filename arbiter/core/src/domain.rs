//! Failure domains: which machines die together. The first present label of a configured list names one; a cluster
//! without any has its hosts as domains, and where only some nodes carry a label the others form one domain.

use std::collections::BTreeMap;

use coroner_shared::id::NodeName;
use coroner_shared::names::DOMAIN_LABELS;

/// The domain of all nodes without a label in a cluster where some carry one.
pub const UNLABELLED: &str = "unlabelled";

/// The domain that a label of the list names: `rack/r1`, `zone/a`.
pub fn of_labels(labels: &BTreeMap<String, String>) -> Option<String> {
    DOMAIN_LABELS.iter().find_map(|key| {
        let value = labels.get(*key).filter(|value| !value.is_empty())?;
        let kind = key.rsplit('/').next().unwrap_or(key);
        Some(format!("{kind}/{value}"))
    })
}

/// The domain of a host that stands for itself.
pub fn of_host(node: &NodeName) -> String {
    format!("host/{node}")
}

/// The domain of a node, given whether any node of the cluster carries a label of the list.
pub fn of(node: &NodeName, labels: Option<&BTreeMap<String, String>>, any_labelled: bool) -> String {
    match labels.and_then(of_labels) {
        Some(domain) => domain,
        None if any_labelled => UNLABELLED.to_owned(),
        None => of_host(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn the_first_label_of_the_list_names_the_domain() {
        let node: NodeName = "n1".parse().unwrap();
        let both = labels(&[("topology.kubernetes.io/zone", "a"), ("topology.kubernetes.io/rack", "r1")]);
        let zone = labels(&[("topology.kubernetes.io/zone", "a")]);
        let empty = labels(&[("topology.kubernetes.io/rack", ""), ("other", "x")]);
        for (given, any, want) in [
            (Some(&both), true, "rack/r1"),
            (Some(&zone), true, "zone/a"),
            (Some(&empty), true, "unlabelled"),
            (Some(&empty), false, "host/n1"),
            (None, true, "unlabelled"),
            (None, false, "host/n1"),
        ] {
            assert_eq!(of(&node, given, any), want);
        }
    }
}
