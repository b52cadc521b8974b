//! `coroner-agent`: the DaemonSet. Says that its host lives, hears a few others, and reports who is silent.
//!
//! In reading order: `args` (what it is told), `run` (which tasks there are), `heartbeat` (the beacon's thread around
//! `coroner-agent-core`), `uplink` (registration and slices), then the files for one thing each. No file here decides
//! what should happen to a node.

#[cfg(coroner_mutants)]
compile_error!("coroner_mutants plants bugs for the simulator: coroner-agent is not built with them");

mod args;
mod caller;
mod clock;
mod goodbye;
mod health;
mod heartbeat;
mod https;
mod identity;
mod journal;
mod limiter;
mod pressure;
mod probe;
mod run;
mod socket;
mod steady;
mod store;
mod trust_config;
mod uplink;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Before anything can ask for TLS: ring is the only provider, and a second install is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = match args::Args::parse().check() {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("coroner-agent cannot start with this configuration:");
            errors.iter().for_each(|error| eprintln!("  {error}"));
            return ExitCode::from(2);
        }
    };
    journal::start(config.log_format, config.log_level);
    match run::start(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %journal::chain(&error), "the agent stops; its DaemonSet starts it again");
            ExitCode::FAILURE
        }
    }
}
