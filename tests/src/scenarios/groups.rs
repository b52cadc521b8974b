//! The scenarios of the lab's tests, in groups that share a site: a site takes minutes to come up and to become steady,
//! a scenario less than one. Those of the demo are in [`super::DEMO`].

use super::{Case, alive, boots, calm, leaders, policies, stubborn};

/// Who lives is never fenced, whoever cannot hear it.
pub const ALIVE: [Case; 5] = [
    Case {
        name: "one-observer-hears",
        about: "only one peer still hears a node, nobody else does: it is left alone",
        steady: true,
        play: |site| Box::pin(alive::one_observer_hears(site)),
    },
    Case {
        name: "bmc-restart-says-off",
        about: "a BMC restarts and says Off while its host lives behind a cut cable: that word is not taken",
        steady: true,
        play: |site| Box::pin(alive::bmc_restart_says_off(site)),
    },
    Case {
        name: "rack-cut",
        about: "both machines of a rack are cut off together: held by name, not fenced",
        steady: true,
        play: |site| Box::pin(alive::rack_cut(site)),
    },
    Case {
        name: "fleet-silence",
        about: "no replica's host hears any worker: frozen, nobody is fenced",
        steady: true,
        play: |site| Box::pin(alive::fleet_silence(site)),
    },
    Case {
        name: "not-ready-with-lease",
        about: "the agent is dead, the kubelet says Ready=False and renews its Lease: not fenced",
        steady: true,
        play: |site| Box::pin(alive::not_ready_with_lease(site)),
    },
];

/// Fences that do not go as they should.
pub const STUBBORN: [Case; 7] = [
    Case {
        name: "bmc-does-nothing",
        about: "a BMC answers 204 and does nothing: a page, more attempts, and others are fenced meanwhile",
        steady: true,
        play: |site| Box::pin(stubborn::bmc_does_nothing(site)),
    },
    Case {
        name: "pause-while-retrying",
        about: "an operator pauses a fence that retries: nothing is sent until the pause ends",
        steady: true,
        play: |site| Box::pin(stubborn::pause_while_retrying(site)),
    },
    Case {
        name: "back-before-attempt",
        about: "a condemned machine goes on before any command: reprieve",
        steady: true,
        play: |site| Box::pin(stubborn::back_before_attempt(site)),
    },
    Case {
        name: "back-after-attempt",
        about: "a machine goes on after a command that did nothing: averted, back in service",
        steady: true,
        play: |site| Box::pin(stubborn::back_after_attempt(site)),
    },
    Case {
        name: "on-before-taint",
        about: "power comes back between proof and taint: no taint",
        steady: true,
        play: |site| Box::pin(stubborn::on_before_taint(site)),
    },
    Case {
        name: "new-boot-after-attempt",
        about: "a machine is restarted by hand after a command that did nothing: never released, it returns",
        steady: true,
        play: |site| Box::pin(boots::new_boot_after_attempt(site)),
    },
    Case {
        name: "dies-unheard",
        about: "a machine dies before its agent has spoken: said, paged, released by order alone",
        steady: true,
        play: |site| Box::pin(boots::dies_unheard(site)),
    },
];

/// The leader dies in the middle.
pub const LEADERS: [Case; 3] = [
    Case {
        name: "leader-host-power-cut",
        about: "the leader's own host loses power: the others elect, and release it",
        steady: true,
        play: |site| Box::pin(leaders::own_host(site)),
    },
    Case {
        name: "leader-killed-before-proof",
        about: "the leader is killed between command and proof: one turn off, one incident, released by the next",
        steady: true,
        play: |site| Box::pin(leaders::killed_before_proof(site)),
    },
    Case {
        name: "leader-killed-before-taint",
        about: "the leader is killed between proof and taint: released by the next, and no cordon stays",
        steady: true,
        play: |site| Box::pin(leaders::killed_before_taint(site)),
    },
];

/// What a policy does not allow.
pub const POLICIES: [Case; 2] = [
    Case {
        name: "observe",
        about: "a death in Observe: WouldCondemn is said, nothing is done",
        steady: true,
        play: |site| Box::pin(policies::observe(site)),
    },
    Case {
        name: "two-policies",
        about: "two policies select one node: both say so, and its death is only observed",
        steady: true,
        play: |site| Box::pin(policies::two(site)),
    },
];

/// What happens every month, and worries nobody.
pub const CALM: [Case; 3] = [
    Case {
        name: "roll-agents",
        about: "all agents get a new image, one after the other: nobody is suspected",
        steady: false,
        play: |site| Box::pin(calm::roll_agents(site)),
    },
    Case {
        name: "roll-replicas",
        about: "all replicas are restarted, one after the other: nobody is suspected",
        steady: false,
        play: |site| Box::pin(calm::roll_replicas(site)),
    },
    Case {
        name: "agents-without-arbiter",
        about: "the agents are restarted while there is no arbiter: nobody is suspected afterwards",
        steady: false,
        play: |site| Box::pin(calm::agents_without_arbiter(site)),
    },
];

/// Takes more than three minutes by its nature.
pub const LONG: [Case; 1] = [Case {
    name: "api-server-down",
    about: "the API server is down for three minutes: nobody is suspected",
    steady: false,
    play: |site| Box::pin(calm::api_down(site)),
}];
