//! What a SIGTERM means: is it the agent that stops, or the host? Reads what systemd leaves on disk; decides nothing else.
//!
//! A signal alone says nothing: upgrades, evictions and shutdowns all send it. systemd leaves three traces, read in
//! this order:
//!
//! 1. `proc/1/cmdline`: in the last stage PID 1 *is* `systemd-shutdown`, with the verb as its first argument.
//! 2. `run/systemd/shutdown/scheduled`: logind's planned shutdown (`shutdown -r +5`), with mode and time. A plan whose
//!    time has not come is not why the signal came, and a `dry-` one never comes.
//! 3. `run/nologin`: made when logins end, five minutes before a planned shutdown or when the shutdown begins. It does
//!    not say what follows, so it is taken for a reboot, which makes the arbiter wait longer before it believes Off.
//!
//! An immediate `systemctl reboot` that still waits for inhibitors leaves none of them; then this says AgentRestart,
//! which is good for 120 s. Asking logind itself (D-Bus, `PreparingForShutdown`) would tell; that is not built yet.

use std::fs;
use std::path::Path;

use coroner_shared::beacon::GoodbyeKind;

const PID_1: &str = "proc/1/cmdline";
const SCHEDULED: &str = "run/systemd/shutdown/scheduled";
const NOLOGIN: &str = "run/nologin";
/// Between the planned time and the clock's reading; logind acts on the second.
const SLACK_US: u64 = 5_000_000;

/// A goodbye and what shows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Goodbye {
    pub(crate) kind: GoodbyeKind,
    pub(crate) because: &'static str,
}

/// Why this process was told to stop. `wall_us`: the wall clock, microseconds since 1970.
pub(crate) fn look(host_root: &Path, wall_us: u64) -> Goodbye {
    if let Ok(cmdline) = fs::read(host_root.join(PID_1))
        && let Some(kind) = of_pid_1(&cmdline)
    {
        return Goodbye { kind, because: "PID 1 is systemd-shutdown" };
    }
    if let Ok(plan) = fs::read_to_string(host_root.join(SCHEDULED))
        && let Some(kind) = of_plan(&plan, wall_us)
    {
        return Goodbye { kind, because: "the time of a shutdown planned with logind has come" };
    }
    if host_root.join(NOLOGIN).exists() {
        return Goodbye { kind: GoodbyeKind::Reboot, because: "systemd has ended logins (run/nologin)" };
    }
    Goodbye { kind: GoodbyeKind::AgentRestart, because: "nothing says that the host stops" }
}

// === helpers ===

/// `systemd-shutdown VERB ...`, arguments divided by NUL.
fn of_pid_1(cmdline: &[u8]) -> Option<GoodbyeKind> {
    let mut arguments = cmdline.split(|byte| *byte == 0);
    let program = arguments.next()?;
    if !program.ends_with(b"systemd-shutdown") {
        return None;
    }
    match arguments.next()? {
        b"poweroff" | b"halt" => Some(GoodbyeKind::Shutdown),
        // reboot, kexec, and whatever a later systemd adds: the host goes away and may come back.
        _ => Some(GoodbyeKind::Reboot),
    }
}

/// Lines `USEC=1700000000000000` and `MODE=reboot`.
fn of_plan(plan: &str, wall_us: u64) -> Option<GoodbyeKind> {
    let value = |key: &str| plan.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let due: u64 = value("USEC")?.trim().parse().ok()?;
    if due > wall_us.saturating_add(SLACK_US) {
        return None;
    }
    match value("MODE")?.trim() {
        "poweroff" | "halt" => Some(GoodbyeKind::Shutdown),
        dry if dry.starts_with("dry-") => None,
        _ => Some(GoodbyeKind::Reboot),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GoodbyeKind::{AgentRestart, Reboot, Shutdown};

    const NOW: u64 = 1_700_000_000_000_000;

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: GoodbyeKind) {
        let host = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(look(host.path(), NOW).kind, expected, "{files:?}");
    }

    fn plan(ahead_us: i64, mode: &str) -> String {
        format!("USEC={}\nWARN_WALL=1\nMODE={mode}\nUID=0\n", NOW.saturating_add_signed(ahead_us))
    }

    #[test]
    fn a_signal_alone_is_a_restart_of_the_agent() {
        check(&[], AgentRestart);
        check(&[(PID_1, "/usr/lib/systemd/systemd\0--switched-root\0")], AgentRestart);
    }

    #[test]
    fn pid_1_says_what_it_does() {
        let pid_1 = |verb: &str| format!("/usr/lib/systemd/systemd-shutdown\0{verb}\0--log-level\06\0");
        for (verb, kind) in [
            ("reboot", Reboot),
            ("kexec", Reboot),
            ("poweroff", Shutdown),
            ("halt", Shutdown),
            ("soft-reboot", Reboot),
        ] {
            check(&[(PID_1, &pid_1(verb)), (NOLOGIN, "")], kind);
        }
        check(&[(PID_1, "/usr/lib/systemd/systemd-shutdown")], AgentRestart);
    }

    #[test]
    fn a_plan_counts_when_its_time_has_come() {
        for (ahead, mode, kind) in [
            (0, "reboot", Reboot),
            (-60_000_000, "poweroff", Shutdown),
            (4_000_000, "halt", Shutdown),
            (4_000_000, "kexec", Reboot),
            (6_000_000, "poweroff", AgentRestart),
            (0, "dry-poweroff", AgentRestart),
        ] {
            check(&[(SCHEDULED, &plan(ahead, mode))], kind);
        }
        check(&[(SCHEDULED, "MODE=poweroff\n")], AgentRestart);
        check(&[(SCHEDULED, "USEC=x\nMODE=poweroff\n")], AgentRestart);
    }

    #[test]
    fn ended_logins_mean_the_more_careful_of_the_two() {
        check(&[(NOLOGIN, "System is going down.")], Reboot);
        check(&[(NOLOGIN, ""), (SCHEDULED, &plan(0, "poweroff"))], Shutdown);
    }
}
