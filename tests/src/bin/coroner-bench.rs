//! `coroner-bench`: measures, and says on what. The rows are in `bench`; `hack/bench` builds what is needed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use coroner_tests::bench::row::Bench;
use coroner_tests::bench::{Asked, KINDS, Kind};
use coroner_tests::lab::{self, end::End, site::SiteConfig, site::tell::Tell};
use coroner_tests::scenarios::results::Machine;
use tokio::sync::OnceCell;

/// Measures speed and size; prints a table.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 measured, 1 something went wrong, 2 wrong command line, 130 interrupted."
)]
struct Args {
    /// Write the rows there as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure only this kind of rows; may be repeated.
    #[arg(long, value_name = "KIND")]
    only: Vec<String>,
    /// Say which kinds there are, and do nothing.
    #[arg(long)]
    list: bool,
    /// Folder on the disk that is measured; what is written there is removed.
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    disk: PathBuf,
    /// etcd's program, to be measured beside us.
    #[arg(long, value_name = "FILE")]
    etcd: Option<PathBuf>,
    /// Turns that each side of a comparison gets.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    turns: u32,
    /// Length of a turn.
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    turn_ms: u64,
    /// Deaths of each kind.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=40))]
    runs: u32,
    /// Minutes for which a quiet site is watched.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_440))]
    minutes: u32,
    /// Folder of the images, as hack/images leaves it.
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Name of the lab; 1 to 8 of a-z and 0-9.
    #[arg(long, default_value = "bench", value_name = "NAME")]
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
        for kind in &KINDS {
            println!("{:<12}{}", kind.name, kind.about);
        }
        return ExitCode::SUCCESS;
    }
    let ended = chosen(&args.only).and_then(|kinds| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.context("start a runtime")?.block_on(run(&args, &kinds))
    });
    ended.unwrap_or_else(|error| {
        eprintln!("coroner-bench: {error:#}");
        ExitCode::FAILURE
    })
}

/// Whatever ends it, the site is gone when this returns.
async fn run(args: &Args, kinds: &[&Kind]) -> Result<ExitCode> {
    let mut end = End::listen(false)?;
    let folder = tempfile::Builder::new().prefix("coroner-bench-").tempdir_in(&args.disk);
    let folder = folder.with_context(|| format!("make a folder in {}", args.disk.display()))?;
    let mut asked = asked(args, folder.path())?;
    check_lab(kinds, &asked.site)?;
    let (machine, disk) = (Machine::here(), disk_of(folder.path()));
    let mut bench = Bench { machine, disk, rows: Vec::new(), failed: Vec::new() };
    let interrupted = tokio::select! {
        () = measure(&asked, kinds, &mut bench) => false,
        () = end.comes() => true,
    };
    let good = bench.failed.is_empty();
    if interrupted {
        // What was measured until then is as good as ever.
        bench.failed.push("interrupted: not everything was measured".to_owned());
    }
    // First: a site that cannot be taken down costs nobody the figures.
    println!("\n{}", bench.table());
    args.json.as_ref().map_or(Ok(()), |path| bench.write(path))?;
    if let Some(site) = asked.up.take() {
        site.down(!good && !interrupted).await?;
    }
    if interrupted {
        return Ok(ExitCode::from(130));
    }
    if !good {
        println!(
            "not everything went as it should; what a site left is in {}",
            asked.site.evidence.display()
        );
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All kinds, one after the other; one that fails keeps nobody from the next.
async fn measure(asked: &Asked, kinds: &[&Kind], bench: &mut Bench) {
    for kind in kinds {
        asked.tell.title(&format!("{}: {}", kind.name, kind.about));
        if let Err(error) = (kind.measure)(asked, bench).await {
            bench.failed.push(format!("{}: {error:#}", kind.name));
        }
    }
}

fn asked(args: &Args, folder: &Path) -> Result<Asked> {
    // The lab's own process has another working folder.
    let images = args.images.as_ref().map(std::path::absolute).transpose().context("find the images")?;
    Ok(Asked {
        tell: Tell::stdout(args.no_color),
        folder: folder.to_owned(),
        etcd: args.etcd.clone(),
        turns: args.turns,
        turn_ms: args.turn_ms,
        runs: usize::try_from(args.runs)?,
        minutes: args.minutes,
        site: SiteConfig { images, ..SiteConfig::full(&args.lab) },
        up: OnceCell::new(),
    })
}

/// Whether a site could be brought up, before anything else takes its time.
fn check_lab(kinds: &[&Kind], site: &SiteConfig) -> Result<()> {
    if !kinds.iter().any(|kind| kind.lab) {
        return Ok(());
    }
    let name = &site.name;
    let lab: Vec<&str> = kinds.iter().filter(|kind| kind.lab).map(|kind| kind.name).collect();
    ensure!(nix::unistd::geteuid().is_root(), "{} need root; --only measures something else", lab.join(", "));
    lab::ensure_free(name)
}

fn chosen(only: &[String]) -> Result<Vec<&'static Kind>> {
    for name in only {
        if !KINDS.iter().any(|kind| kind.name == name) {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            bail!("there is no kind {name:?}: {} are", names.join(", "));
        }
    }
    Ok(KINDS.iter().filter(|kind| only.is_empty() || only.iter().any(|name| name == kind.name)).collect())
}

/// File system and device that hold a folder.
fn disk_of(folder: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let holds = |line: &str| {
        let mut words = line.split(' ');
        let (device, place, kind) = (words.next()?, words.next()?, words.next()?);
        folder.starts_with(place).then(|| (place.len(), format!("{kind} on {device}")))
    };
    mounts
        .lines()
        .filter_map(holds)
        .max_by_key(|(length, _)| *length)
        .map_or_else(String::new, |(_, disk)| disk)
}
