//! `lab-writer`: the workload of the lab's pods, and with `pause` their pause process. The loop and the format
//! are in `lab/writer.rs`; here are the arguments and the signals.
//!
//! It runs as PID 1 of a container, where the kernel ignores SIGTERM unless somebody waits for it; so the main
//! thread does, and its return ends the process at once, whatever the writing thread is doing.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use coroner_lab_writer::{Writer, boottime_ns};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

const USAGE: &str = "usage: lab-writer --workload POD --machine NODE --boot-id-file PATH [--volume /volume] \
[--every-ms 10] | lab-writer pause\n(or the environment: WORKLOAD, MACHINE, BOOT_ID_FILE, VOLUME, EVERY_MS)";

fn main() -> ExitCode {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        signals.add(signal);
    }
    // Before any thread exists, so that every thread inherits the mask.
    if let Err(error) = signals.thread_block() {
        return fail(&format!("block the signals: {error}"));
    }
    if std::env::args().nth(1).as_deref() == Some("pause") {
        return until_told(&signals);
    }
    let (writer, volume) = match arguments() {
        Ok(found) => found,
        Err(why) => return fail(&format!("{why}\n{USAGE}")),
    };
    let (failed, failure) = mpsc::channel();
    std::thread::spawn(move || failed.send(writer.run(&volume)));
    std::thread::spawn(move || {
        let error = failure.recv().map_or_else(|_| "the writing thread ended".to_owned(), |e| e.to_string());
        eprintln!("lab-writer: write the stamp: {error}");
        // Wakes the main thread, which alone decides how the process ends.
        nix::sys::signal::kill(nix::unistd::getpid(), Signal::SIGINT)
    });
    until_told(&signals)
}

/// Waits for SIGTERM (success) or SIGINT (failure), and reaps what was left to this process meanwhile.
fn until_told(signals: &SigSet) -> ExitCode {
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => reap(),
            Ok(Signal::SIGTERM) => return ExitCode::SUCCESS,
            Ok(_) => return ExitCode::FAILURE,
            Err(Errno::EINTR) => {}
            Err(error) => return fail(&format!("wait for a signal: {error}")),
        }
    }
}

fn reap() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            break;
        }
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("lab-writer: {why}");
    ExitCode::FAILURE
}

/// An option from the command line, else from the environment. Not clap: this binary is an image.
#[expect(clippy::disallowed_methods, reason = "the writer is configured here, once, without clap")]
fn option(flag: &str, variable: &str) -> Option<String> {
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == flag {
            return arguments.next();
        }
    }
    std::env::var(variable).ok()
}

fn arguments() -> Result<(Writer, PathBuf), String> {
    let need = |flag: &str, variable: &str| option(flag, variable).ok_or(format!("{flag} is missing"));
    let boot_id_file = need("--boot-id-file", "BOOT_ID_FILE")?;
    let boot_id = std::fs::read_to_string(&boot_id_file).map_err(|e| format!("read {boot_id_file}: {e}"))?;
    let every = option("--every-ms", "EVERY_MS").unwrap_or_else(|| "10".to_owned());
    let every = every.parse().map_err(|e| format!("--every-ms {every}: {e}"))?;
    let volume = option("--volume", "VOLUME").unwrap_or_else(|| "/volume".to_owned());
    let writer = Writer {
        workload: need("--workload", "WORKLOAD")?,
        machine: need("--machine", "MACHINE")?,
        boot_id: boot_id.trim().to_owned(),
        run: boottime_ns(),
        every: Duration::from_millis(every),
    };
    Ok((writer, PathBuf::from(volume)))
}
