//! The shortest proof on a real cluster: three machines and one replica, one of them loses power, and its workload
//! runs elsewhere. Needs root; `scenarios` says what happens.

use coroner_tests::{
    lab::site::SiteConfig,
    scenarios::{DEMO, play::test},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_loses_power_is_found_off_proven_and_released() -> anyhow::Result<()> {
    let cases: Vec<_> = DEMO.into_iter().filter(|case| case.name == "power-cut").collect();
    test(&SiteConfig::thin("smoke"), &cases).await
}
