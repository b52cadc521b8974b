//! `coroner arbiter init`: the birth of a cluster of replicas.
//!
//! It waits for 1 or 3 nodes that carry the label, makes the cluster's id and CA, and creates the Secret and the
//! ConfigMap by atomic create, so that it can run again, or twice at once, and change nothing. A mark in kube-system
//! lets a second installation notice the first.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use coroner_shared::id::{ClusterId, NodeName, ReplicaId};
use coroner_shared::names::{ARBITER_LABEL, CLUSTER_MARK, CLUSTER_SECRET, TRUST_CONFIGMAP};
use coroner_shared::trust::{
    CA_CERTIFICATE, CA_KEY, FOUNDERS, Founder, Founders, TRUST_FILE, Trust, TrustedReplica,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::args::Reach;
use crate::port::kube_config;

/// Flags of `coroner arbiter init`.
#[derive(ClapArgs)]
pub(crate) struct InitArgs {
    /// How many replicas: 3, or 1 (which survives the loss of no node).
    #[arg(long, default_value_t = 3, value_parser = replica_count)]
    replicas: usize,
    /// How long to wait for the labelled nodes, in seconds.
    #[arg(long, default_value_t = 600)]
    wait_seconds: u64,
}

/// Makes what is missing.
///
/// # Errors
/// No 1 or 3 labelled nodes in time, another installation, or the API server refuses.
pub(crate) async fn run(reach: &Reach, args: InitArgs) -> anyhow::Result<ExitCode> {
    let client = Client::try_from(kube_config(reach).await?)?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &reach.namespace);
    let existing = secrets.get_opt(CLUSTER_SECRET).await.context("cannot read the Secret of the cluster")?;
    let secret = match existing {
        Some(secret) => {
            println!("Secret {}/{CLUSTER_SECRET} exists: it is left as it is", reach.namespace);
            secret
        }
        None => create(&client, &secrets, reach, &args).await?,
    };
    let (founders, ca) = read_secret(&secret)?;
    publish_trust(&client, &reach.namespace, &founders, ca).await?;
    for member in &founders.members {
        println!("replica {}: node {} at {}", member.id, member.node, member.address);
    }
    println!("cluster {} is ready for its replicas: apply the DaemonSets", founders.cluster);
    Ok(ExitCode::SUCCESS)
}

async fn create(
    client: &Client,
    secrets: &Api<Secret>,
    reach: &Reach,
    args: &InitArgs,
) -> anyhow::Result<Secret> {
    let members = wait_for_nodes(client, args).await?;
    let mut id = [0_u8; 16];
    getrandom::fill(&mut id).map_err(|e| anyhow::anyhow!("no random bytes for the cluster's id: {e}"))?;
    let founders = Founders { cluster: ClusterId::from_bytes(id), members };
    claim_cluster(client, &founders, &reach.namespace).await?;
    let (certificate, key) = make_ca(founders.cluster)?;
    let mut secret = Secret::default();
    secret.metadata.name = Some(CLUSTER_SECRET.to_owned());
    secret.type_ = Some("Opaque".to_owned());
    secret.string_data = Some(BTreeMap::from([
        (FOUNDERS.to_owned(), serde_json::to_string(&founders)?),
        (CA_CERTIFICATE.to_owned(), certificate),
        (CA_KEY.to_owned(), key),
    ]));
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(made) => Ok(made),
        // Another run was faster: its Secret counts.
        Err(kube::Error::Api(e)) if e.code == 409 => Ok(secrets.get(CLUSTER_SECRET).await?),
        Err(error) => Err(error).context("cannot create the Secret of the cluster"),
    }
}

/// As many labelled nodes as there are to be replicas, each with an InternalIP. Says what it waits for.
async fn wait_for_nodes(client: &Client, args: &InitArgs) -> anyhow::Result<Vec<Founder>> {
    let InitArgs { replicas, wait_seconds } = args;
    let nodes: Api<Node> = Api::all(client.clone());
    let mut waited = 0;
    loop {
        let list =
            nodes.list(&ListParams::default().labels(ARBITER_LABEL)).await.context("cannot list nodes")?;
        let labelled: Vec<Node> = list.items;
        if labelled.len() == *replicas {
            return founders_of(&labelled);
        }
        let names: Vec<&str> = labelled.iter().filter_map(|n| n.metadata.name.as_deref()).collect();
        let found = format!("{} nodes carry the label {ARBITER_LABEL} ({})", names.len(), names.join(", "));
        if names.len() > *replicas || waited >= *wait_seconds {
            bail!(
                "{found}, and there are to be {replicas} replicas: kubectl label node NODE {ARBITER_LABEL}=true, or take the label from those too many, or give --replicas 1"
            );
        }
        if waited.is_multiple_of(15) {
            println!("{found}; waiting for {replicas}, {waited} of {wait_seconds} s");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        waited += 1;
    }
}

/// 1 or 3: two replicas survive no more than one does, and more only make every decision slower.
fn replica_count(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        other => Err(format!("{other:?} replicas: there can be 1 or 3")),
    }
}

fn founders_of(nodes: &[Node]) -> anyhow::Result<Vec<Founder>> {
    let mut named: Vec<(NodeName, IpAddr)> = Vec::new();
    for node in nodes {
        let name = node.metadata.name.clone().unwrap_or_default();
        let addresses = node.status.as_ref().and_then(|s| s.addresses.as_ref());
        let internal = addresses.and_then(|a| a.iter().find(|a| a.type_ == "InternalIP"));
        let address = internal
            .with_context(|| format!("node {name} has no InternalIP yet; is its kubelet running?"))?;
        let address = address
            .address
            .parse()
            .with_context(|| format!("InternalIP {:?} of node {name} is no address", address.address))?;
        named.push((NodeName::new(name)?, address));
    }
    named.sort();
    let members = named
        .into_iter()
        .zip(1_u64..)
        .map(|((node, address), id)| Ok(Founder { id: ReplicaId::new(id)?, node, address }));
    members.collect()
}

/// Creates the mark in kube-system, or finds that another installation did.
async fn claim_cluster(client: &Client, founders: &Founders, namespace: &str) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let mut mark = ConfigMap::default();
    mark.metadata.name = Some(CLUSTER_MARK.to_owned());
    mark.data = Some(BTreeMap::from([
        ("cluster".to_owned(), founders.cluster.to_string()),
        ("namespace".to_owned(), namespace.to_owned()),
    ]));
    match maps.create(&PostParams::default(), &mark).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(e)) if e.code == 409 => {
            let other = maps.get(CLUSTER_MARK).await?.data.unwrap_or_default();
            let place = other.get("namespace").cloned().unwrap_or_default();
            if place == namespace {
                // An earlier run was cut off between the mark and the Secret.
                maps.replace(CLUSTER_MARK, &PostParams::default(), &mark)
                    .await
                    .context("cannot renew the mark")?;
                return Ok(());
            }
            bail!(
                "another Coroner is installed in namespace {place}; two of them must never fence the same nodes. If it is gone for good: kubectl -n kube-system delete configmap {CLUSTER_MARK}"
            )
        }
        Err(error) => Err(error).context("cannot create ConfigMap kube-system/coroner-cluster"),
    }
}

fn make_ca(cluster: ClusterId) -> anyhow::Result<(String, String)> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Coroner {cluster}"));
    let key = KeyPair::generate()?;
    let key_text = key.serialize_pem();
    let ca = CertifiedIssuer::self_signed(params, key)?;
    Ok((ca.pem(), key_text))
}

fn read_secret(secret: &Secret) -> anyhow::Result<(Founders, String)> {
    let text = |key: &str| -> anyhow::Result<String> {
        let bytes = secret
            .data
            .as_ref()
            .and_then(|d| d.get(key))
            .with_context(|| format!("Secret {CLUSTER_SECRET} has no key {key}"))?;
        String::from_utf8(bytes.0.clone())
            .with_context(|| format!("key {key} of Secret {CLUSTER_SECRET} is not text"))
    };
    let founders = serde_json::from_str(&text(FOUNDERS)?)
        .with_context(|| format!("key {FOUNDERS} of Secret {CLUSTER_SECRET}"))?;
    Ok((founders, text(CA_CERTIFICATE)?))
}

/// The ConfigMap that agents and replicas mount; the leader rewrites it later.
async fn publish_trust(
    client: &Client,
    namespace: &str,
    founders: &Founders,
    ca: String,
) -> anyhow::Result<()> {
    let replicas = founders
        .members
        .iter()
        .map(|m| TrustedReplica { id: m.id, host: m.node.clone(), address: m.address, key: None })
        .collect();
    let trust = Trust { cluster: founders.cluster, ca, replicas };
    let mut map = ConfigMap::default();
    map.metadata.name = Some(TRUST_CONFIGMAP.to_owned());
    map.data = Some(BTreeMap::from([(TRUST_FILE.to_owned(), serde_json::to_string_pretty(&trust)?)]));
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    match maps.create(&PostParams::default(), &map).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(e)) if e.code == 409 => Ok(()),
        Err(error) => Err(error).context("cannot create ConfigMap coroner-trust"),
    }
}
