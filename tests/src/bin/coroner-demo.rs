//! `coroner-demo`: a site on this machine, the scenarios played on it live, the oracles' verdict. What happens is in
//! `scenarios`; here are the arguments, the order of things, and the end. `hack/demo` builds what it needs.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::{Parser, builder::PossibleValuesParser};
use coroner_tests::{
    lab::{
        self,
        end::End,
        site::{Site, SiteConfig, tell::Tell},
        writer::boottime_ns,
    },
    scenarios::{self, Case, play::Player, results::Results},
};

/// Plays what happens to clusters on a real one on this machine, and shows what Coroner does about it.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 all is as it should be, 1 it is not, 2 wrong command line, 130 interrupted."
)]
struct Args {
    /// Write the results there as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave everything running afterwards, until Ctrl-C, and say how it is reached.
    #[arg(long)]
    keep: bool,
    /// Play only this scenario; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(scenarios::DEMO.map(|case| case.name)))]
    only: Vec<String>,
    /// Say which scenarios there are, and do nothing.
    #[arg(long)]
    list: bool,
    /// Folder of the images, as hack/images leaves it.
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Name of the lab; 1 to 8 of a-z and 0-9.
    #[arg(long, default_value = "demo", value_name = "NAME")]
    lab: String,
    /// No colours; also where NO_COLOR is set.
    #[arg(long, env = "NO_COLOR", value_parser = clap::builder::FalseyValueParser::new(), default_value_t = false, hide_env = true)]
    no_color: bool,
}

fn main() -> ExitCode {
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args = Args::parse();
    if args.list {
        for case in &scenarios::DEMO {
            println!("{:<16}{}", case.name, case.about);
        }
        return ExitCode::SUCCESS;
    }
    let tell = Tell::stdout(args.no_color);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = runtime
        .context("start a runtime")
        .and_then(|runtime| runtime.block_on(run(&args, &chosen(&args.only), &tell)));
    match ended {
        Ok(code) => code,
        Err(error) => {
            tell.line(&format!("{} {error:#}", tell.verdict(false, "coroner-demo:")));
            ExitCode::FAILURE
        }
    }
}

/// The scenarios that were asked for, in the demo's order.
fn chosen(only: &[String]) -> Vec<Case> {
    let wanted = |case: &&Case| only.is_empty() || only.iter().any(|name| name == case.name);
    scenarios::DEMO.iter().filter(wanted).copied().collect()
}

/// Whatever ends it, the site is gone when this returns.
async fn run(args: &Args, cases: &[Case], tell: &Tell) -> Result<ExitCode> {
    let mut end = End::listen(false)?;
    let begin = boottime_ns();
    let config = SiteConfig { images: args.images.clone(), ..SiteConfig::full(&args.lab) };
    let evidence = config.evidence.clone();
    lab::ensure_free(&args.lab)?;
    tell.title("a site: six machines in three racks, three replicas, a BMC each, six workloads with volumes");
    let site = tokio::select! {
        site = Site::up(config, tell.clone()) => site?,
        () = end.comes() => return Ok(interrupted(tell, &evidence)),
    };
    tell.line(&format!("  the site runs after {} s", seconds_since(begin)));
    let results = tokio::select! {
        results = play(&site, cases) => results,
        () = end.comes() => {
            tell.line("interrupted: everything is taken down, which takes some seconds");
            site.down(false).await?;
            return Ok(interrupted(tell, &evidence));
        }
    };
    let good = results.as_ref().is_ok_and(Results::good);
    let shown = results.and_then(|results| show(args, &site, &results, begin));
    if args.keep {
        tell_how_to_reach(&site);
        end.comes().await;
        tell.line("everything is taken down, which takes some seconds");
    }
    site.down(!good).await?;
    if good {
        tell.note("everything is taken down: nothing is left");
    } else {
        tell.line(&format!("what the oracles read, and all logs, are kept in {}", evidence.display()));
    }
    shown?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn play(site: &Site, cases: &[Case]) -> Result<Results> {
    let mut player = Player::new(site);
    for case in cases {
        player.play(case).await;
    }
    site.tell.title("everything comes back, and nothing of ours remains");
    player.wait_returns().await;
    player.judge().await
}

fn show(args: &Args, site: &Site, results: &Results, begin: u64) -> Result<()> {
    let tell = &site.tell;
    tell.title("how long each stage took; from the moment at which power began to go or the host hung (its last beacon left up to 250 ms before)");
    results.table().iter().for_each(|line| tell.line(line));
    tell.note(
        "decided and proven are the leader's stamps, tainted is the audit log's: they may differ by some ms",
    );
    let said =
        if results.good() { "everything went as it should" } else { "not everything went as it should" };
    tell.line(&format!("\n{} ({} s in all)", tell.verdict(results.good(), said), seconds_since(begin)));
    if let Some(path) = &args.json {
        results.write(path)?;
        tell.note(&format!("results are in {}", path.display()));
    }
    Ok(())
}

fn tell_how_to_reach(site: &Site) {
    let tell = &site.tell;
    tell.title("it stays until Ctrl-C; in another shell, as root:");
    let path = site.kubectl.program().parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    tell.line(&format!("  export CORONER_LAB={}", site.config().name));
    tell.line(&format!("  export KUBECONFIG={}", site.kubeconfig().display()));
    tell.line(&format!("  export PATH={path}:{}:\"$PATH\"", site.programs_folder()));
    let [.., token] = site.people.flags();
    tell.line(&format!("  export CORONER_TOKEN_FILE={token}"));
    tell.line("  kubectl get inc,mb,fp; kubectl get nodes; kubectl get pods -o wide");
    tell.line("  coroner status; coroner nodes; coroner incidents; coroner explain n2");
    tell.line("  coroner-lab off n2; coroner-lab freeze n4; coroner-lab on n2; coroner-lab list");
}

fn interrupted(tell: &Tell, evidence: &Path) -> ExitCode {
    // The logs of what was cut short are of no use to anybody.
    let _ = std::fs::remove_dir_all(evidence);
    tell.line("interrupted: nothing is left");
    ExitCode::from(130)
}

fn seconds_since(begin: u64) -> u64 {
    boottime_ns().saturating_sub(begin) / 1_000_000_000
}
