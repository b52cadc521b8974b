//! One contract for every BMC that a `coroner_bmc::Bmc` may meet, over verified TLS: our emulator, and OpenStack's
//! sushy-emulator, which no one here wrote. What holds for both is in `common.rs`; what only our emulator can be
//! made to do (lie, hang, restart, lose sessions) is in `faults.rs`, `commands.rs` and `continuity.rs`.
//!
//! Where sushy-emulator differs, `sushy_differs` says how, so that the difference cannot change unseen: it has no
//! sessions and no `LastResetTime`, and closes the connection after each answer, so it can never be steady.
//!
//! sushy-emulator is installed from PyPI when it is first needed (`lab/sushy.rs` says where); without it, run with
//! `--skip sushy`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only functions marked as tests for tests"
)]

mod bench;
mod commands;
mod common;
mod continuity;
mod faults;

/// One test for each peer.
macro_rules! on_every_bmc {
    ($($name:ident,)*) => {
        mod ours {
            $(#[tokio::test]
            async fn $name() {
                crate::common::$name(crate::bench::Bench::ours()).await;
            })*
        }
        mod sushy {
            $(#[tokio::test]
            async fn $name() {
                crate::common::$name(crate::bench::Bench::sushy().await).await;
            })*
        }
    };
}

on_every_bmc! {
    identify_lists_the_members_with_their_uuids_and_the_key_that_was_spoken_to,
    the_power_state_is_read_afresh_and_exactly_with_the_uuid_of_the_same_body,
    force_off_turns_that_machine_off_and_sends_one_command,
    force_off_of_a_machine_that_is_off_is_answered_and_leaves_it_off,
    power_on_turns_it_on,
    a_machine_that_the_bmc_cannot_ask_gives_no_reading,
    a_wrong_password_is_an_error_of_its_own_and_turns_nothing_off,
    a_command_to_a_member_that_was_not_read_is_not_sent,
    every_good_trust_connects_and_every_wrong_one_sends_not_a_byte_of_http,
    a_closed_driver_has_no_log_in_and_can_be_used_again,
    the_ledger_and_the_driver_show_no_password,
}

mod sushy_differs {
    use coroner_bmc::{Bmc, BmcError, Quirk};
    use coroner_shared::bmc::{Continuity, Login};

    use crate::bench::{Bench, UUIDS, failed};

    #[tokio::test]
    async fn it_lists_all_its_systems_and_takes_basic_only() {
        let bench = Bench::sushy().await;
        let mut driver = bench.driver();
        let facts = driver.identify().await.unwrap();
        let paths: Vec<&str> = facts.members.iter().map(|member| member.path.as_str()).collect();
        assert_eq!(paths, UUIDS.map(|uuid| format!("/redfish/v1/Systems/{uuid}")));
        assert_eq!(driver.login(), Some(Login::Basic));
        let error = failed(bench.driver_with_quirk(Quirk::NoBasic).identify().await, "no Basic");
        assert!(matches!(error, BmcError::NoSessions), "{error:?}");
    }

    #[tokio::test]
    async fn nothing_shows_that_it_did_not_restart() {
        let bench = Bench::sushy().await;
        let (mut driver, member) = (bench.driver(), bench.member());
        driver.identify().await.unwrap();
        let mut last = Continuity::default();
        for _ in 0..3 {
            let now = driver.power_state(&member).await.unwrap().continuity;
            assert_eq!((now.session, now.reset_time.as_ref()), (None, None));
            assert!(!now.unbroken_since(&last), "{now:?} {last:?}");
            last = now;
        }
    }
}
