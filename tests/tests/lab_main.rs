//! Coroner on a real cluster of six machines in three racks, with three replicas: each test has a site of its own and
//! plays a group of scenarios on it. Needs root; `scenarios` says what happens and what must follow. CORONER_ONLY names
//! single scenarios, with commas between them.

use coroner_tests::{
    lab::site::{Site, SiteConfig, programs::in_checkout},
    oracles::rights,
    scenarios::{
        DEMO,
        groups::{ALIVE, CALM, LEADERS, LONG, POLICIES, STUBBORN},
        play::{test, test_and},
    },
};

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_lose_a_node_ends_as_it_should() -> anyhow::Result<()> {
    test_and(&SiteConfig::full("main"), &DEMO, rights_that_were_used).await
}

/// The five scenarios of the demo use everything that our ServiceAccounts may, but for what `rights` names.
fn rights_that_were_used(site: &Site) -> anyhow::Result<Vec<String>> {
    rights::check(&in_checkout("deploy/init/rbac.yaml"), &site.plan().names.audit())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes more than 3 minutes: five ways of not being heard, one after the other"]
async fn who_lives_is_never_fenced_whoever_cannot_hear_it() -> anyhow::Result<()> {
    test(&SiteConfig::full("alive"), &ALIVE).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes more than 3 minutes: fences that stall and are averted take their time"]
async fn a_fence_that_does_not_go_as_it_should_neither_releases_nor_kills() -> anyhow::Result<()> {
    test(&SiteConfig::full("stubborn"), &STUBBORN).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes more than 3 minutes: leaders die one after the other"]
async fn what_a_leader_began_the_next_one_finishes_once() -> anyhow::Result<()> {
    test(&SiteConfig::full("leaders"), &LEADERS).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_does_not_allow_is_not_done() -> anyhow::Result<()> {
    test(&SiteConfig::full("policies"), &POLICIES).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes more than 3 minutes: rollouts go one pod at a time"]
async fn what_happens_every_month_worries_nobody() -> anyhow::Result<()> {
    test(&SiteConfig::full("calm"), &CALM).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes more than 3 minutes: the API server is down for that long"]
async fn an_api_server_that_is_down_kills_nobody() -> anyhow::Result<()> {
    test(&SiteConfig::full("apidown"), &LONG).await
}
