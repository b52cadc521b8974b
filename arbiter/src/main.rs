//! `coroner-arbiter`: one replica. Parses, checks, runs; says why it ends.

use std::process::ExitCode;

use clap::Parser;
use coroner_arbiter::{args::Args, run, telemetry};

fn main() -> ExitCode {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args = Args::parse();
    if let Err(why) = args.check() {
        eprintln!("coroner-arbiter: {why}");
        return ExitCode::from(2);
    }
    if let Err(error) = telemetry::log(args.log_format, &args.log) {
        eprintln!("coroner-arbiter: --log {:?} is no filter: {error}", args.log);
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("coroner-arbiter: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run::run(args)) {
        Ok(why) => {
            tracing::info!("{why}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("this replica ends: {error:#}");
            ExitCode::FAILURE
        }
    }
}
