//! Which of the host's address ranges a lab may use: 10.100.0.0/16 to 10.199.0.0/16, one for each lab.
//!
//! A slot is claimed by a file that only one process can make. A claim whose lab has no state folder is void.

use std::{fs, io::ErrorKind, path::PathBuf};

use anyhow::{Context, Result, bail};

use super::{plan::Names, shell::run};

const SLOTS: u8 = 100;

/// Claims the first free slot for a lab.
///
/// # Errors
/// When there is none.
pub(super) fn claim(names: &Names) -> Result<u8> {
    let routes = run("ip", ["-4", "route", "show", "table", "all"])?;
    fs::create_dir_all(folder()).context("make the folder of claims")?;
    for slot in 0..SLOTS {
        let prefix = format!("10.{}.", 100 + u16::from(slot));
        if routes.split_whitespace().any(|word| word.starts_with(&prefix)) {
            continue;
        }
        let file = file(slot);
        if let Ok(owner) = fs::read_to_string(&file) {
            let void = Names::new(&owner).is_ok_and(|owner| owner == *names || !owner.state().exists());
            if void {
                let _ = fs::remove_file(&file);
            }
        }
        match fs::OpenOptions::new().write(true).create_new(true).open(&file) {
            Ok(mut claim) => {
                std::io::Write::write_all(&mut claim, names.lab.as_bytes()).context("sign the claim")?;
                return Ok(slot);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("claim {}", file.display())),
        }
    }
    bail!("no address range of 10.100.0.0/16 to 10.199.0.0/16 is free on this host")
}

/// Gives back whatever the lab had claimed.
pub(super) fn release(names: &Names) {
    for slot in 0..SLOTS {
        let file = file(slot);
        if fs::read_to_string(&file).is_ok_and(|owner| owner == names.lab) {
            let _ = fs::remove_file(file);
        }
    }
    // Only the last lab's succeeds.
    let _ = fs::remove_dir(folder());
}

fn folder() -> PathBuf {
    PathBuf::from("/run/coroner-lab")
}

fn file(slot: u8) -> PathBuf {
    folder().join(format!("slot-{slot}"))
}
