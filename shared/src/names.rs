//! Names that others see, spelt once: API group, taint, annotations, labels, ports, metrics.

/// API group of all our resources.
pub const GROUP: &str = "coroner.dev";
/// Version of all our resources.
pub const VERSION: &str = "v1alpha1";

/// The taint that releases a node's workloads (Kubernetes, "Non-graceful node shutdown").
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";
/// Its value.
pub const OUT_OF_SERVICE_VALUE: &str = "nodeshutdown";

/// On a released Node: the incident and the digest of its proof.
pub const INCIDENT_ANNOTATION: &str = "coroner.dev/incident";
/// Nodes that run a replica.
pub const ARBITER_LABEL: &str = "coroner.dev/arbiter";
/// Nodes that are never powered off by us.
pub const EXCLUDE_LABEL: &str = "coroner.dev/exclude";
/// On a Secret with a BMC's log-in: the hosts that it may be sent to, divided by commas.
pub const BMC_HOSTS_ANNOTATION: &str = "coroner.dev/bmc-hosts";
/// Reason of the Ready condition that we write once a machine is proven off.
pub const PROVEN_OFF_REASON: &str = "CoronerProvenOff";
/// Field manager of our server-side applies.
pub const FIELD_MANAGER: &str = "coroner-arbiter";

/// Labels that name a failure domain, most specific first; the first one present counts.
pub const DOMAIN_LABELS: [&str; 2] = ["topology.kubernetes.io/rack", "topology.kubernetes.io/zone"];

/// Namespace of Coroner's own objects unless told otherwise.
pub const NAMESPACE: &str = "coroner";
/// Secret with cluster id, CA and the replicas' marks.
pub const CLUSTER_SECRET: &str = "coroner-cluster";
/// ConfigMap that agents and replicas mount.
pub const TRUST_CONFIGMAP: &str = "coroner-trust";
/// ConfigMap in kube-system by which a second installation notices the first.
pub const CLUSTER_MARK: &str = "coroner-cluster";
/// Audience of the agents' projected tokens.
pub const AGENT_AUDIENCE: &str = "coroner";

/// UDP, every host: beacons, acks, probes.
pub const PORT_PEER: u16 = 7460;
/// UDP, replicas: statuses, reports.
pub const PORT_REPORT: u16 = 7461;
/// TCP, replicas: Raft, witness, agents' requests; TLS by our CA.
pub const PORT_REPLICA: u16 = 7462;
/// TCP, replicas: people and Prometheus.
pub const PORT_PEOPLE: u16 = 7463;
/// TCP on 127.0.0.1, every host: the agent's health and metrics.
pub const PORT_AGENT_HEALTH: u16 = 7464;
/// The kubelet's port, probed by TCP.
pub const PORT_KUBELET: u16 = 10250;
