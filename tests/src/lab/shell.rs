//! Runs other programs to their end; an error says what was run and what it printed.

use std::{
    ffi::OsStr,
    io::Write,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

/// Runs `program` and returns what it printed.
///
/// # Errors
/// When it cannot be started or does not end with 0; the error holds its stderr.
pub(super) fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Result<String> {
    finish(Command::new(program).args(args).stdin(Stdio::null()))
}

/// As [`run`], with `input` on its stdin.
///
/// # Errors
/// As [`run`].
pub(super) fn run_with_input<S: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
    input: &str,
) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    let shown = shown(&command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {shown}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early closes its end; its exit code tells why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("wait for {shown}"))?;
    answer(&shown, &output).with_context(|| format!("its input was\n{input}"))
}

/// Runs a prepared command to its end and returns what it printed.
///
/// # Errors
/// As [`run`].
pub(super) fn finish(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.output().with_context(|| format!("start {shown}"))?;
    answer(&shown, &output)
}

fn answer(shown: &str, output: &Output) -> Result<String> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{shown}: {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
