//! What the world is made of at its start: a host, its Node, its binding, the policy.

use super::*;

pub(super) fn host(i: usize, start: u64) -> Host {
    let spread = u64::try_from(i).unwrap();
    Host {
        name: name(i),
        uid: NodeUid::new(format!("uid-{i}")).unwrap(),
        boot: boot(i, 0),
        agent: true,
        kubelet: true,
        kernel: true,
        replica: true,
        bmc: Bmc::On,
        bmc_since: start,
        steady: true,
        health: HealthSummary::GOOD,
        doubts: Vec::new(),
        mute: false,
        deaf: false,
        renewed: start + spread * 700 % 10_000 - 10_000,
        beats: spread,
        next_beat: start + spread * 50 % T,
        number: 0,
        heard: BTreeMap::new(),
        silent: BTreeSet::new(),
    }
}

pub(super) fn node(i: usize, host: &Host, domain: String, state: &State) -> Node {
    let mut node = Node::new(&host.name, state.now);
    node.facts = Some(NodeFacts {
        node: host.name.clone(),
        uid: host.uid.clone(),
        system_uuid: machine(i).to_string(),
        boot: Some(host.boot),
        ready: true,
        labels: BTreeMap::new(),
        control_plane: false,
        etcd_voter: false,
        tainted_by_us: false,
    });
    node.member = Some(Member {
        uid: host.uid.clone(),
        machine: Ok(machine(i)),
        key: PublicKey::from_bytes([3; 32]),
        old_key: None,
        boot: host.boot,
        left_boots: std::collections::VecDeque::new(),
        address: address(i),
        since: state.now,
    });
    node.enforced = Enforced::Cleared;
    node.domain = domain;
    node
}

pub(super) fn binding(i: usize) -> Binding {
    Binding {
        hash: format!("binding-{i}"),
        network: "bmc".into(),
        quirks: Vec::new(),
        pin: Some(Pin {
            machine: machine(i),
            transform: Transform::Rfc,
            system_transform: Transform::Rfc,
            member: "/redfish/v1/Systems/1".into(),
            serial: None,
            manager: None,
            tls_key: None,
        }),
        disabled: None,
    }
}

pub(super) fn policy() -> Policy {
    Policy {
        name: "all".into(),
        hash: "h".into(),
        node_selector: BTreeMap::new(),
        mode: Mode::Enforce,
        rules: Rules::BALANCED,
        brakes: Brakes::DEFAULT,
        timings: LifeTimings::DEFAULT,
        release: ReleaseStrategy::Taint,
        after_release: AfterRelease::StayOff,
        power_poll: Span::from_secs(30),
        paused: false,
        unusable: None,
    }
}
