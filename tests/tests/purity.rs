//! What the crates may use: the pure ones nothing that can do IO, sleep or draw a random number, and every crate of
//! the workspace only those that its place in the tree allows.
//!
//! ```text
//!              shared
//!            ^   ^   ^  ^
//!   agent/core   |   |  bmc      cli --> shared
//!        ^  arbiter/core  ^
//!        |       ^        |      tests --> all of them, and nothing --> tests
//!      agent  replica     |
//!                ^        |
//!                arbiter--+        lab-writer --> none
//! ```
//!
//! What a crate needs is read as cargo resolves it for the whole workspace, so a feature that another crate turns on
//! counts as well. How a file behaves is not seen from here: reviews and clippy.toml see to that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId, TargetKind};

/// The crates that take time, chance and the world as arguments.
const PURE: [&str; 3] = ["coroner-shared", "coroner-agent-core", "coroner-arbiter-core"];

/// All that pure crates may link, by whatever way. A list of what is good, since nobody can list what is bad; what is
/// new below them is looked at by a person first. None of these opens a file or a socket, starts a thread, reads a
/// clock or draws a random number.
const HARMLESS: [&str; 30] = [
    // Words to bytes and back.
    "base64ct",
    "cobs",
    "embedded-io", // traits only
    "itoa",
    "memchr",
    "postcard",
    "serde",
    "serde_core",
    "serde_json",
    "zmij",
    // Signatures are checked, and made from a seed that is an argument.
    "const-oid",
    "curve25519-dalek",
    "der",
    "ed25519",
    "ed25519-dalek",
    "pkcs8",
    "signature",
    "spki",
    "subtle",
    "zeroize",
    // Digests.
    "block-buffer",
    "cpufeatures", // asks the processor what it can do
    "crypto-common",
    "digest",
    "generic-array",
    "sha2",
    "typenum",
    "cfg-if",
    "thiserror",
    "coroner-shared",
];

/// Which of our crates a crate may name, in any kind of dependency.
const ARROWS: [(&str, &[&str]); 9] = [
    ("coroner-shared", &[]),
    ("coroner-agent-core", &["coroner-shared"]),
    ("coroner-agent", &["coroner-agent-core", "coroner-shared"]),
    ("coroner-arbiter-core", &["coroner-shared"]),
    ("coroner-arbiter-replica", &["coroner-arbiter-core", "coroner-shared"]),
    ("coroner-bmc", &["coroner-shared"]),
    (
        "coroner-arbiter",
        &["coroner-arbiter-core", "coroner-arbiter-replica", "coroner-bmc", "coroner-shared"],
    ),
    ("coroner-cli", &["coroner-shared"]),
    ("coroner-lab-writer", &[]),
];
/// The one that sees all of them.
const WATCHER: &str = "coroner-tests";

/// Doors of the standard library to the world. Its types of addresses and spans are no doors.
const DOORS: [&str; 14] = [
    "env::",
    "fs::",
    "File::",
    "io::std",
    "Instant",
    "HashMap", // its order differs from run to run
    "HashSet",
    "print!(",
    "println!(",
    "process::",
    "SystemTime",
    "TcpStream",
    "thread::",
    "UdpSocket",
];

/// Packages, and what each of them needs when it runs. A key is a name and a version.
type Needs = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_pure_crates_link_nothing_that_can_reach_the_world() -> Result<()> {
    let needs = needs(&metadata()?)?;
    for pure in PURE {
        let found = strangers(&needs, pure)?;
        ensure!(found.is_empty(), "not known to be harmless:\n{}", found.join("\n"));
    }
    Ok(())
}

#[test]
fn the_pure_crates_use_no_door_of_the_standard_library() -> Result<()> {
    let metadata = metadata()?;
    let mut found = Vec::new();
    for package in
        metadata.workspace_packages().iter().filter(|package| PURE.contains(&package.name.as_str()))
    {
        let folder = package.manifest_path.with_file_name("src").into_std_path_buf();
        let files = rust_files(&folder)?;
        ensure!(files.len() > 1, "no sources in {}", folder.display());
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            let name = file.strip_prefix(&metadata.workspace_root).unwrap_or(&file).display().to_string();
            found.extend(doors(&text).iter().map(|(line, door)| format!("{name}:{line}: {door}")));
        }
    }
    ensure!(found.is_empty(), "the world is an argument of pure crates:\n{}", found.join("\n"));
    Ok(())
}

#[test]
fn every_arrow_between_our_crates_is_one_of_the_design() -> Result<()> {
    let mut arrows = Needs::new();
    for package in metadata()?.workspace_packages() {
        let ours = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        arrows.insert(package.name.to_string(), ours.map(|dependency| dependency.name.clone()).collect());
    }
    let found = wrong_arrows(&arrows);
    ensure!(found.is_empty(), "see the drawing in this file:\n{}", found.join("\n"));
    Ok(())
}

// === what cargo says ===

fn metadata() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"));
    // One platform, or what only Windows needs would count.
    let options = ["--locked", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu"];
    command.other_options(options.map(str::to_owned)).exec().context("ask cargo for the metadata")
}

fn needs(metadata: &Metadata) -> Result<Needs> {
    let resolve = metadata.resolve.as_ref().context("cargo resolved nothing")?;
    let key = |id: &PackageId| format!("{} {}", metadata[id].name, metadata[id].version);
    // A macro runs in the compiler; what it writes is in our files.
    let runs =
        |id: &PackageId| !metadata[id].targets.iter().any(|target| target.is_kind(TargetKind::ProcMacro));
    let mut needs = Needs::new();
    for node in &resolve.nodes {
        let normal = node.deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
                && runs(&dependency.pkg)
        });
        needs.insert(key(&node.id), normal.map(|dependency| key(&dependency.pkg)).collect());
    }
    Ok(needs)
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry.context("read an entry")?.path();
        let tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !tests {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !tests {
            found.push(path);
        }
    }
    Ok(found)
}

// === the rules ===

/// The shortest way from `start` to each crate that is not known to be harmless.
fn strangers(needs: &Needs, start: &str) -> Result<Vec<String>> {
    let name = |key: &str| key.split(' ').next().unwrap_or_default().to_owned();
    let first =
        needs.keys().find(|key| name(key) == start).with_context(|| format!("there is no {start}"))?;
    let (mut found, mut seen) = (Vec::new(), BTreeSet::from([first]));
    let mut ways = vec![vec![first]];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in &ways {
            for next in way.last().and_then(|last| needs.get(*last)).into_iter().flatten() {
                if !seen.insert(next) {
                    continue;
                }
                let way: Vec<&String> = way.iter().copied().chain([next]).collect();
                if HARMLESS.contains(&name(next).as_str()) {
                    longer.push(way);
                } else {
                    found.push(way.iter().map(|key| name(key)).collect::<Vec<_>>().join(" -> "));
                }
            }
        }
        ways = longer;
    }
    Ok(found)
}

fn wrong_arrows(arrows: &Needs) -> Vec<String> {
    let allowed = BTreeMap::from(ARROWS);
    let mut found: Vec<String> =
        allowed.keys().filter(|name| !arrows.contains_key(**name)).map(|name| format!("no {name}")).collect();
    for (from, to) in arrows.iter().filter(|(from, _)| *from != WATCHER) {
        let Some(allowed) = allowed.get(from.as_str()) else {
            found.push(format!("{from} has no place yet"));
            continue;
        };
        let wrong = to.iter().filter(|to| !allowed.contains(&to.as_str()));
        found.extend(wrong.map(|to| format!("{from} -> {to}")));
    }
    found
}

/// Lines (counted from 1) that name a door. A module of tests or of planted bugs, which no shipped build has, in the
/// file itself ends it; `mod tests;` does not.
fn doors(text: &str) -> Vec<(usize, &'static str)> {
    let lines: Vec<&str> = text.lines().collect();
    let not_shipped = ["#[cfg(test)]", "#[cfg(coroner_mutants)]"];
    let tests = lines.windows(2).position(|pair| {
        not_shipped.contains(&pair[0]) && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    let code = lines[..tests.unwrap_or(lines.len())].iter().enumerate();
    code.filter(|(_, line)| !line.trim_start().starts_with("//"))
        .flat_map(|(at, line)| {
            DOORS.into_iter().filter(|door| names(line, door)).map(move |door| (at + 1, door))
        })
        .collect()
}

/// Whether the line has `door` as a word of its own.
fn names(line: &str, door: &str) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let word = door.ends_with(char::is_alphanumeric);
    line.match_indices(door).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + door.len()..].chars().next());
        !(joins(before) || word && joins(after))
    })
}

// === the rules, seen to fail ===

fn graph(rows: &[(&str, &[&str])]) -> Needs {
    rows.iter()
        .map(|(from, to)| ((*from).to_owned(), to.iter().map(|to| (*to).to_owned()).collect()))
        .collect()
}

#[test]
fn a_crate_that_can_reach_the_world_is_found_however_deep_with_the_way_to_it() -> Result<()> {
    let needs = graph(&[
        ("coroner-shared 0.1.0", &["serde 1.0.0", "thiserror 2.0.0"]),
        ("serde 1.0.0", &["serde_core 1.0.0"]),
        ("serde_core 1.0.0", &["getrandom 0.4.0", "serde 1.0.0"]),
        ("getrandom 0.4.0", &["libc 0.2.0"]),
        ("coroner-agent-core 0.1.0", &["coroner-shared 0.1.0", "tokio 1.0.0"]),
    ]);
    assert_eq!(strangers(&needs, "coroner-shared")?, ["coroner-shared -> serde -> serde_core -> getrandom"]);
    let wanted = [
        "coroner-agent-core -> tokio",
        "coroner-agent-core -> coroner-shared -> serde -> serde_core -> getrandom",
    ];
    assert_eq!(strangers(&needs, "coroner-agent-core")?, wanted);
    assert!(strangers(&needs, "coroner-arbiter-core").is_err(), "a crate that is gone is no pure crate");
    Ok(())
}

#[test]
fn a_pure_crate_on_a_crate_with_io_is_found_in_what_cargo_says() -> Result<()> {
    let mut needs = needs(&metadata()?)?;
    let raft = needs.keys().find(|key| key.starts_with("raft ")).context("raft is there")?.clone();
    let (_, core) = needs
        .iter_mut()
        .find(|(key, _)| key.starts_with("coroner-arbiter-core "))
        .context("the core is there")?;
    core.insert(raft);
    assert_eq!(strangers(&needs, "coroner-arbiter-core")?, ["coroner-arbiter-core -> raft"]);
    Ok(())
}

#[test]
fn an_arrow_that_the_design_does_not_have_is_found() {
    let mut arrows = graph(&ARROWS);
    arrows.extend(graph(&[(WATCHER, &["coroner-agent", "coroner-bmc"])]));
    assert_eq!(wrong_arrows(&arrows), Vec::<String>::new());
    arrows.extend(graph(&[
        ("coroner-agent", &["coroner-shared", WATCHER]),
        ("coroner-bmc", &["coroner-arbiter-core"]),
        ("coroner-new", &[]),
    ]));
    arrows.remove("coroner-cli");
    let wanted = [
        "no coroner-cli",
        "coroner-agent -> coroner-tests",
        "coroner-bmc -> coroner-arbiter-core",
        "coroner-new has no place yet",
    ];
    assert_eq!(wrong_arrows(&arrows), wanted);
}

#[test]
fn a_door_is_found_in_code_and_not_in_comments_tests_or_longer_words() {
    let text = "use std::time::{Duration, Instant};\n// Instant\nlet x = LogInstant(1);\nlet m = HashMap::new();\n\
                std::fs::read(a);\nlet prefs::x = 1;\n#[cfg(test)]\nmod tests {\n    use std::fs::read;\n";
    assert_eq!(doors(text), [(1, "Instant"), (4, "HashMap"), (5, "fs::")]);
    let planted = "#[cfg(coroner_mutants)]\nif planted(Mutant::X) {\n    fs::read(a);\n}\n";
    assert_eq!(doors(planted), [(3, "fs::")], "only a module of its own");
    assert_eq!(doors(&format!("#[cfg(coroner_mutants)]\nmod bed {{\n{planted}")), []);
}
