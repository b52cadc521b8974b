//! A power command whose permission runs out: asked once everything else is done, and again for every byte that could
//! leave.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use coroner_bmc::{Bmc, BmcError};
use coroner_shared::bmc::CommandAnswer;

use crate::machine::*;
use crate::server::{Reply, Then};

#[tokio::test]
async fn a_command_that_may_not_leave_any_more_leaves_everything_ready_for_the_next_call() {
    // Each answer ends the connection, so that a command needs a new one first.
    let mut bench = bench(|m, r| Some(m.answer(r).then(Then::Close))).await;
    bench.bmc.identify().await.unwrap();
    let before = bench.server.connections();
    let seen = Mutex::new(Vec::new());
    let no = || {
        seen.lock().unwrap().push(bench.server.connections());
        false
    };
    assert!(matches!(bench.bmc.force_off(MEMBER, &no, DEADLINE).await, Err(BmcError::TooLate)));
    assert_eq!(*seen.lock().unwrap(), [before + 1], "asked once, when the connection was there");
    assert_eq!(bench.server.count("POST", RESET), 0);
    assert_eq!(bench.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    assert_eq!(bench.server.connections(), before + 1, "the connection was kept for it");
    assert_eq!((bench.server.count("POST", RESET), bench.machine.state().logins), (1, 1));
}

#[tokio::test]
async fn the_question_is_asked_again_after_a_log_in_and_before_a_redirect_is_followed() {
    let second = |asked: &AtomicUsize| asked.fetch_add(1, Ordering::Relaxed) == 0;
    // The session is gone: the first POST meets 401, the second would be too late.
    let mut expired = bench(|_, _| None).await;
    expired.bmc.identify().await.unwrap();
    expired.machine.state().sessions.clear();
    let asked = AtomicUsize::new(0);
    let outcome = expired.bmc.force_off(MEMBER, &|| second(&asked), DEADLINE).await;
    assert!(matches!(outcome, Err(BmcError::TooLate)), "{outcome:?}");
    assert_eq!(expired.server.count("POST", RESET), 1, "the one that met 401");
    assert_eq!(expired.bmc.force_off(MEMBER, &|| true, DEADLINE).await.unwrap(), CommandAnswer::Accepted);
    // A redirect: the BMC has seen the command, so nobody knows what it does with it.
    let slash = format!("{RESET}/");
    let mut moved = bench(move |_, r| r.is("POST", RESET).then(|| Reply::redirect(308, &slash))).await;
    moved.bmc.identify().await.unwrap();
    let asked = AtomicUsize::new(0);
    let answer = moved.bmc.force_off(MEMBER, &|| second(&asked), DEADLINE).await.unwrap();
    assert!(matches!(&answer, CommandAnswer::Unknown { why } if why.contains("permission")), "{answer:?}");
    assert_eq!(moved.server.count("POST", &format!("{RESET}/")), 0);
}
