//! The lab's program: brings it up, owns its machines, becomes one of them, and asks it. See `coroner_tests::lab`.

use std::process::ExitCode;

use clap::Parser;
use coroner_tests::lab::Cli;

fn main() -> ExitCode {
    Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("coroner-lab: {error:#}");
        ExitCode::FAILURE
    })
}
