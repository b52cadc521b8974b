//! The tree's own rules, those that neither compiler nor clippy keeps: one small function each over the text of one
//! file, shown to fail on a bad sample, and one test that asks all of them about every file.
//!
//! Which crate may use which is the subject of `purity.rs`. Words that are forbidden everywhere are put together at
//! run time, so that this file does not contain them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A file without its tests. Nobody reads longer ones to their end.
const LINES: usize = 500;
/// A file of tests, which is read case by case.
const LINES_OF_TESTS: usize = 800;
/// What lies at the top: the parts, and what tools look for there. Names with a leading dot are tools' as well.
const TOP: [&str; 14] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "agent",
    "arbiter",
    "clippy.toml",
    "deny.toml",
    "deploy",
    "hack",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "shared",
    "tests",
];

/// The one script that builds with planted bugs, in a folder of its own.
const SETS_MUTANTS: &str = "hack/sim";
/// The roots of the programs that are shipped; the arbiter's own `main.rs` is built on its library.
const REFUSE_MUTANTS: [&str; 3] = ["agent/src/main.rs", "arbiter/cli/src/main.rs", "arbiter/src/lib.rs"];

/// A text file of the checkout.
struct File<'a> {
    /// From the root of the checkout.
    path: &'a str,
    text: &'a str,
}

/// Where a rule is broken (lines count from 1), and how.
type Finding = (usize, String);
type Rule = fn(&File<'_>) -> Vec<Finding>;

const RULES: [Rule; 9] = [
    opens_with_its_purpose,
    ends_soon,
    leaves_nothing_undone,
    excuses_have_reasons,
    examples_are_text,
    manifests_use_the_workspace,
    knows_no_machine_and_no_registry,
    scripts_stop_at_errors,
    plants_no_bugs,
];

#[test]
fn the_tree_keeps_its_rules() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let paths = paths(&root)?;
    ensure!(paths.len() > 100, "only {} files were found", paths.len());
    let mut found = top_level(&paths);
    for path in &paths {
        let full = root.join(path);
        let Ok(text) = std::fs::read_to_string(&full) else {
            continue; // deleted and not committed yet, a link to a folder, or no text
        };
        for rule in RULES {
            found.extend(
                rule(&File { path, text: &text }).iter().map(|(at, why)| format!("{path}:{at}: {why}")),
            );
        }
        found.extend(script_mode(path, &text, &full)?);
    }
    ensure!(found.is_empty(), "rules are broken:\n{}", found.join("\n"));
    Ok(())
}

/// What is committed or about to be.
fn paths(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().context("start git")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let list = String::from_utf8(output.stdout).context("read the names of files")?;
    Ok(list.split_terminator('\0').map(str::to_owned).collect())
}

fn script_mode(path: &str, text: &str, full: &Path) -> Result<Option<String>> {
    use std::os::unix::fs::PermissionsExt;

    let mode = full.metadata().with_context(|| format!("look at {path}"))?.permissions().mode();
    let (script, executable) = (text.starts_with("#!/"), mode & 0o111 != 0);
    Ok((script != executable).then(|| format!("{path}:1: executable, or has a #! line, but not both")))
}

// === rules ===

fn top_level(paths: &[String]) -> Vec<String> {
    let mut tops: Vec<&str> = paths.iter().filter_map(|path| path.split('/').next()).collect();
    tops.sort_unstable();
    tops.dedup();
    let extra = tops.iter().filter(|top| !top.starts_with('.') && !TOP.contains(top));
    let missing = TOP.iter().filter(|top| !tops.contains(top));
    extra
        .map(|top| format!("{top}: does not belong at the top of the tree"))
        .chain(missing.map(|top| format!("{top}: is missing")))
        .collect()
}

fn opens_with_its_purpose(file: &File<'_>) -> Vec<Finding> {
    let bad = is_rust(file) && !file.text.starts_with("//! ");
    bad.then(|| (1, "opens with //! and says what the file is for".to_owned())).into_iter().collect()
}

fn ends_soon(file: &File<'_>) -> Vec<Finding> {
    if !is_rust(file) {
        return Vec::new();
    }
    let most = if is_test(file.path) { LINES_OF_TESTS } else { LINES };
    let lines: Vec<&str> = file.text.lines().collect();
    // A module of tests in the file itself ends it; `mod tests;` does not.
    let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{'));
    let length = tests.unwrap_or(lines.len());
    let why = || format!("{length} lines without tests, {most} at most: divide it");
    (length > most).then(|| (length, why())).into_iter().collect()
}

fn leaves_nothing_undone(file: &File<'_>) -> Vec<Finding> {
    let words = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    lines_that(file, is_rust(file), |line| {
        let word = words.iter().find(|word| line.contains(word.as_str()))?;
        Some(format!("{word}) is for work that is not finished"))
    })
}

fn excuses_have_reasons(file: &File<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for word in ["allow", "expect"] {
        for opening in ["#[", "#!["].map(|hash| format!("{hash}{word}(")) {
            for (at, _) in file.text.match_indices(&opening).filter(|_| is_rust(file)) {
                let attribute = file.text[at..].split_once(")]").map_or("", |(attribute, _)| attribute);
                if !attribute.contains("reason = \"") {
                    let line = file.text[..at].matches('\n').count() + 1;
                    found.push((line, format!("{word} with a reason, and prefer expect")));
                }
            }
        }
    }
    found
}

/// Examples in documentation would be compiled by a run of their own, which no script here starts.
fn examples_are_text(file: &File<'_>) -> Vec<Finding> {
    let mut inside = false;
    lines_that(file, is_rust(file), |line| {
        let comment = line.trim_start();
        let comment = comment.strip_prefix("//!").or_else(|| comment.strip_prefix("///"))?;
        let language = comment.trim().strip_prefix("```")?;
        inside = !inside;
        let bad = inside && (language.is_empty() || language.starts_with("rust"));
        bad.then(|| "name its language (text for a drawing); Rust belongs in a test".to_owned())
    })
}

fn manifests_use_the_workspace(file: &File<'_>) -> Vec<Finding> {
    let member = file.path.ends_with("/Cargo.toml");
    let mut found = lines_that(file, member, |line| {
        let own = line.contains("version = \"") || line.contains(" = \"=") || line.contains("path = \"..");
        own.then(|| "versions and paths of dependencies belong in the workspace's list".to_owned())
    });
    if member && !file.text.contains("[lints]\nworkspace = true\n") {
        found.push((1, "takes the workspace's lints".to_owned()));
    }
    found
}

fn knows_no_machine_and_no_registry(file: &File<'_>) -> Vec<Finding> {
    // The lock file is cargo's, and names where each crate comes from.
    let ours = file.path != "Cargo.lock";
    let folders = ["home", "root", "work", "workspace", "Users"].map(|name| format!("/{name}/"));
    let hosts = [
        ("://crates", "io"), // without, it is the registry's name
        ("index.crates", "io"),
        ("static.crates", "io"),
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("proxy.golang", "org"),
        ("sum.golang", "org"),
        ("npmjs", "org"),
        ("deb.debian", "org"),
        ("maven.apache", "org"),
    ]
    .map(|(name, domain)| format!("{name}.{domain}"));
    lines_that(file, ours, |line| {
        let folder = folders.iter().find(|folder| begins_a_path(line, folder));
        let host = hosts.iter().find(|host| line.contains(host.as_str()));
        folder
            .map(|folder| format!("{folder} is a folder of somebody's machine"))
            .or_else(|| host.map(|host| format!("{host} is for the registry's own client to know")))
    })
}

/// Planted bugs are for the simulator: nobody else may set their cfg, and what is shipped refuses to compile under it.
/// That a source asks for it (`#[cfg(..)]`, `cfg!(..)`) sets nothing.
fn plants_no_bugs(file: &File<'_>) -> Vec<Finding> {
    let cfg = ["coroner", "mutants"].join("_");
    let setting = [format!("--cfg {cfg}"), format!("--cfg={cfg}"), format!("rustc-cfg={cfg}")];
    let declaration = format!("check-cfg = [\"cfg({cfg})\"]");
    let told = file.path == SETS_MUTANTS || file.path.ends_with(".md");
    let mut found = lines_that(file, !told, |line| {
        let sets = if is_rust(file) {
            !line.trim_start().starts_with("//") && setting.iter().any(|set| line.contains(set.as_str()))
        } else {
            line.contains(&cfg) && !line.trim_start().starts_with('#') && !line.contains(&declaration)
        };
        sets.then(|| format!("only {SETS_MUTANTS} may set {cfg}"))
    });
    let refuses = file.text.contains(&format!("#[cfg({cfg})]\ncompile_error!("));
    if REFUSE_MUTANTS.contains(&file.path) && !refuses {
        found.push((1, format!("is shipped, and must not compile under {cfg}")));
    }
    found
}

/// Whether an absolute path in the line starts with `folder`.
fn begins_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_.-~/}>)*".contains(c))
    })
}

fn scripts_stop_at_errors(file: &File<'_>) -> Vec<Finding> {
    let script =
        file.text.lines().next().is_some_and(|line| line.starts_with("#!") && line.ends_with("bash"));
    let bad = script && !file.text.lines().any(|line| line == "set -euo pipefail");
    bad.then(|| (1, "says set -euo pipefail".to_owned())).into_iter().collect()
}

// === helpers ===

fn is_rust(file: &File<'_>) -> bool {
    file.path.ends_with(".rs")
}

/// A folder `tests` below a crate, or a module of that name; the crate `tests` is no test itself.
fn is_test(path: &str) -> bool {
    path.split('/').skip(1).any(|part| part == "tests" || part == "tests.rs")
}

fn lines_that(file: &File<'_>, applies: bool, mut judge: impl FnMut(&str) -> Option<String>) -> Vec<Finding> {
    let lines = file.text.lines().filter(|_| applies);
    lines.enumerate().filter_map(|(at, line)| Some((at + 1, judge(line)?))).collect()
}

// === the rules, seen to fail ===

#[track_caller]
fn check(rule: Rule, path: &str, text: &str, lines: &[usize]) {
    let found = rule(&File { path, text });
    let at: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
    assert_eq!(at, lines, "{found:?}");
}

#[test]
fn a_file_that_does_not_say_what_it_is_for_is_found() {
    check(opens_with_its_purpose, "a/src/x.rs", "//! What it is for.\n", &[]);
    check(opens_with_its_purpose, "a/src/x.rs", "use std::fs;\n//! Too late.\n", &[1]);
    check(opens_with_its_purpose, "a/src/x.rs", "", &[1]);
    check(opens_with_its_purpose, "a/x.md", "# Not Rust\n", &[]);
}

#[test]
fn a_file_that_goes_on_is_found_and_its_tests_do_not_count() {
    let (short, long) = ("x\n".repeat(LINES), "x\n".repeat(LINES + 1));
    let inline = |body: &str| format!("{body}#[cfg(test)]\nmod tests {{\n{long}}}\n");
    check(ends_soon, "tests/src/x.rs", &short, &[]);
    check(ends_soon, "tests/src/x.rs", &long, &[LINES + 1]);
    check(ends_soon, "a/src/x.rs", &inline(&short), &[]);
    check(ends_soon, "a/src/x.rs", &inline(&long), &[LINES + 1]);
    check(ends_soon, "a/src/x.rs", &format!("#[cfg(test)]\nmod tests;\n{long}"), &[LINES + 3]);
    for path in ["a/src/tests.rs", "a/src/tests/x.rs", "tests/tests/x.rs"] {
        check(ends_soon, path, &long, &[]);
        check(ends_soon, path, &"x\n".repeat(LINES_OF_TESTS + 1), &[LINES_OF_TESTS + 1]);
    }
}

#[test]
fn unfinished_work_is_found() {
    for name in ["todo", "unimplemented", "dbg"] {
        check(leaves_nothing_undone, "a/src/x.rs", &format!("fn f() {{\n    {name}!(1)\n}}\n"), &[2]);
    }
    check(leaves_nothing_undone, "a/src/x.rs", "// A todo of the cluster's.\n", &[]);
}

#[test]
fn an_excuse_without_a_reason_is_found() {
    let excuse = |word: &str, rest: &str| format!("//! X.\n#[{word}(dead_code{rest})]\nfn f() {{}}\n");
    for word in ["allow", "expect"] {
        check(excuses_have_reasons, "a/src/x.rs", &excuse(word, ""), &[2]);
        check(excuses_have_reasons, "a/src/x.rs", &excuse(word, ", reason = \"used by x\""), &[]);
        check(excuses_have_reasons, "a/src/x.rs", &excuse(word, ",\n    reason = \"used by x\",\n"), &[]);
    }
    check(excuses_have_reasons, "a/src/x.rs", &excuse("allow", "").replace("#[", "#!["), &[2]);
}

#[test]
fn an_example_that_nobody_runs_is_found() {
    let fenced = |language: &str| format!("/// ```{language}\n/// x\n/// ```\nfn f() {{}}\n");
    check(examples_are_text, "a/src/x.rs", &fenced("text"), &[]);
    check(examples_are_text, "a/src/x.rs", &fenced(""), &[1]);
    check(examples_are_text, "a/src/x.rs", &fenced("rust"), &[1]);
}

#[test]
fn a_manifest_with_versions_of_its_own_is_found() {
    let manifest = |line: &str| format!("[lints]\nworkspace = true\n\n[dependencies]\n{line}\n");
    check(manifests_use_the_workspace, "a/Cargo.toml", &manifest("x.workspace = true"), &[]);
    check(manifests_use_the_workspace, "a/Cargo.toml", &manifest("x = { version = \"1\" }"), &[5]);
    check(manifests_use_the_workspace, "a/Cargo.toml", &manifest("x = { path = \"../x\" }"), &[5]);
    check(manifests_use_the_workspace, "a/Cargo.toml", "[package]\n", &[1]);
    check(manifests_use_the_workspace, "Cargo.toml", "x = { version = \"1\" }\n", &[]);
}

#[test]
fn somebodys_machine_and_a_registrys_host_are_found() {
    let bad = ["home", "Users"].map(|name| format!("open(\"/{name}/jo/x\")"));
    for line in bad.iter().chain(&[format!("https://{}.io/x", "static.crates"), format!("{}.org", "pypi")]) {
        check(knows_no_machine_and_no_registry, "hack/x", &format!("#!/bin/sh\n{line}\n"), &[2]);
    }
    check(
        knows_no_machine_and_no_registry,
        "hack/x",
        "/var/lib/coroner\n$state/work/x\n\"$HOME/work\"\n",
        &[],
    );
}

#[test]
fn a_script_that_goes_on_after_an_error_is_found() {
    check(scripts_stop_at_errors, "hack/x", "#!/usr/bin/env bash\nset -euo pipefail\n", &[]);
    check(scripts_stop_at_errors, "hack/x", "#!/usr/bin/env bash\nset -eu\n", &[1]);
    check(scripts_stop_at_errors, "hack/lib/x.sh", "# shellcheck shell=bash\n", &[]);
}

#[test]
fn a_build_with_planted_bugs_is_found_wherever_it_is_set_and_what_is_shipped_refuses_it() {
    let cfg = ["coroner", "mutants"].join("_");
    for (path, line, bad) in [
        ("hack/test", format!("RUSTFLAGS='--cfg {cfg}' cargo build"), true),
        (SETS_MUTANTS, format!("RUSTFLAGS='--cfg {cfg}' cargo build"), false),
        ("hack/lib/x.sh", format!("# never --cfg {cfg}"), false),
        (".cargo/config.toml", format!("rustflags = [\"--cfg\", \"{cfg}\"]"), true),
        (
            "Cargo.toml",
            format!("unexpected_cfgs = {{ level = \"warn\", check-cfg = [\"cfg({cfg})\"] }}"),
            false,
        ),
        ("Cargo.toml", format!("[features]\n{cfg} = []"), true),
        ("shared/build.rs", format!("println!(\"cargo:rustc-cfg={cfg}\");"), true),
        ("tests/src/x.rs", format!("env(\"RUSTFLAGS\", \"--cfg {cfg}\")"), true),
        ("shared/src/x.rs", format!("#[cfg({cfg})]"), false),
        ("README.md", format!("RUSTFLAGS='--cfg {cfg}'"), false),
    ] {
        let found = plants_no_bugs(&File { path, text: &line });
        assert_eq!(!found.is_empty(), bad, "{path}: {line}");
    }
    let refusal = format!("//! X.\n#[cfg({cfg})]\ncompile_error!(\"no\");\n");
    for path in REFUSE_MUTANTS {
        check(plants_no_bugs, path, &refusal, &[]);
        check(plants_no_bugs, path, "//! X.\nmod args;\n", &[1]);
    }
}

#[test]
fn what_does_not_belong_at_the_top_is_found_and_so_is_what_is_missing() {
    let mut paths: Vec<String> = TOP.iter().map(|top| format!("{top}/x")).collect();
    paths.push(".gitignore".to_owned());
    assert_eq!(top_level(&paths), Vec::<String>::new());
    paths.push("scripts/x".to_owned());
    paths.retain(|path| !path.starts_with("shared"));
    let wanted = ["scripts: does not belong at the top of the tree", "shared: is missing"];
    assert_eq!(top_level(&paths), wanted);
}
