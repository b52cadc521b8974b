//! `coroner`: the operator's command (also `kubectl coroner`). It talks to any replica; the replica forwards acts to
//! the leader.

#[cfg(coroner_mutants)]
compile_error!("coroner_mutants plants bugs for the simulator: coroner is not built with them");

mod acts;
mod args;
mod init;
mod port;
mod show;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args = args::Args::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("coroner: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(args::run(args)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("coroner: {error:#}");
            ExitCode::FAILURE
        }
    }
}
