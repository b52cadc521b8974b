//! Who this host is: SMBIOS UUID of the machine, and id of this boot. Reads files; keeps nothing.
//!
//! The UUID comes from sysfs, else from the raw table that the kernel keeps of the firmware. A host that has neither is
//! not fenceable, because nobody could make sure that a BMC belongs to it; it says so and goes on.

use std::fs;
use std::path::{Path, PathBuf};

use coroner_shared::id::{BootId, IdError};
use coroner_shared::machine_id::{MachineId, NoIdentity, Transform};
use thiserror::Error;

const PRODUCT_UUID: &str = "sys/class/dmi/id/product_uuid";
const DMI_TABLE: &str = "sys/firmware/dmi/tables/DMI";
const DMI_ENTRY: &str = "sys/firmware/dmi/tables/smbios_entry_point";
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";

/// Why a host identifies no machine.
#[derive(Debug, Error)]
#[error("not fenceable, because {0}")]
pub(crate) struct NotFenceable(String);

/// Why a host's boot cannot be told.
#[derive(Debug, Error)]
pub(crate) enum BootError {
    /// No such file, or not readable.
    #[error("read the boot id from {path}: mount the host's /proc below --host-root")]
    Read {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Not a UUID.
    #[error("read the boot id from {path}")]
    Form {
        /// Where it was read.
        path: PathBuf,
        /// What is wrong.
        source: IdError,
    },
}

/// The machine's SMBIOS UUID.
///
/// # Errors
/// [`NotFenceable`] with every source that was tried and what was wrong with it.
pub(crate) fn machine(host_root: &Path) -> Result<MachineId, NotFenceable> {
    let sysfs = host_root.join(PRODUCT_UUID);
    let first = match fs::read_to_string(&sysfs) {
        Ok(text) => match text.parse() {
            Ok(id) => return Ok(id),
            // The table holds the same value; it would be no better.
            Err(error @ NoIdentity::Placeholder(_)) => return Err(refuse(&[(&sysfs, error.to_string())])),
            Err(error @ (NoIdentity::Missing | NoIdentity::Malformed(_))) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    let table = host_root.join(DMI_TABLE);
    let second = match fs::read(&table) {
        Ok(bytes) => {
            let entry = fs::read(host_root.join(DMI_ENTRY)).unwrap_or_default();
            match uuid_of_table(&bytes, smbios_version(&entry)) {
                Ok(id) => return Ok(id),
                Err(why) => why,
            }
        }
        Err(error) => error.to_string(),
    };
    Err(refuse(&[(&sysfs, first), (&table, second)]))
}

/// This boot's id.
///
/// # Errors
/// [`BootError`]: without it an agent cannot speak for any boot.
pub(crate) fn boot(host_root: &Path) -> Result<BootId, BootError> {
    let path = host_root.join(BOOT_ID);
    let text = fs::read_to_string(&path).map_err(|source| BootError::Read { path: path.clone(), source })?;
    text.parse().map_err(|source| BootError::Form { path, source })
}

// === helpers ===

fn refuse(tried: &[(&PathBuf, String)]) -> NotFenceable {
    let tried: Vec<String> = tried.iter().map(|(path, why)| format!("{}: {why}", path.display())).collect();
    NotFenceable(tried.join("; "))
}

/// Major and minor version from an entry point (DSP0134, 5.2.1 and 5.2.2).
fn smbios_version(entry: &[u8]) -> Option<(u8, u8)> {
    if entry.starts_with(b"_SM3_") {
        return Some((*entry.get(7)?, *entry.get(8)?));
    }
    if entry.starts_with(b"_SM_") {
        return Some((*entry.get(6)?, *entry.get(7)?));
    }
    None
}

/// The UUID of the first System Information structure (DSP0134, 7.2: type 1, 16 bytes at offset 8).
///
/// Walked here and not by a crate: the one at hand panics on a table shorter than its entry point says.
fn uuid_of_table(table: &[u8], version: Option<(u8, u8)>) -> Result<MachineId, String> {
    const SYSTEM_INFORMATION: u8 = 1;
    const END_OF_TABLE: u8 = 127;
    let mut rest = table;
    while let [kind, length, ..] = rest {
        let formatted = rest.get(..usize::from(*length)).filter(|f| f.len() >= 4);
        let formatted = formatted.ok_or("a structure is longer than the table or shorter than its header")?;
        if *kind == SYSTEM_INFORMATION {
            let bytes = formatted.get(8..24).and_then(|b| <[u8; 16]>::try_from(b).ok());
            let bytes = bytes.ok_or("its System Information is older than SMBIOS 2.1 and has no UUID")?;
            // From 2.6 on the first three fields are little-endian; before, firmware wrote them as it stands. The
            // kernel prints product_uuid by the same rule, so both sources give one value.
            let old = version.is_some_and(|v| v < (2, 6));
            let order = if old { Transform::Rfc } else { Transform::Wire };
            return MachineId::from_bytes(order.apply(bytes)).map_err(|error| error.to_string());
        }
        if *kind == END_OF_TABLE {
            break;
        }
        let strings = rest.get(usize::from(*length)..).unwrap_or_default();
        let end = strings.windows(2).position(|pair| pair == [0, 0]).ok_or("a structure has no end")?;
        rest = strings.get(end + 2..).unwrap_or_default();
    }
    Err("it has no System Information structure".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
    /// The same as firmware from SMBIOS 2.6 on keeps it.
    const WIRE: [u8; 16] =
        [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];

    fn structure(kind: u8, body: &[u8], strings: &[&str]) -> Vec<u8> {
        let mut out = vec![kind, u8::try_from(4 + body.len()).unwrap(), 0, 0];
        out.extend(body);
        strings.iter().for_each(|s| out.extend(format!("{s}\0").bytes()));
        out.extend(if strings.is_empty() { &[0, 0][..] } else { &[0] });
        out
    }

    fn system(uuid: [u8; 16]) -> Vec<u8> {
        structure(1, &[&[1, 2, 0, 3][..], &uuid, &[6]].concat(), &["Maker", "Model", "Serial"])
    }

    fn table(system: &[u8]) -> Vec<u8> {
        [structure(0, &[0; 20], &["BIOS"]), system.to_vec(), structure(127, &[], &[])].concat()
    }

    /// A host with these files; gives the machine id or the reason.
    #[track_caller]
    fn check(files: &[(&str, &[u8])], expected: Result<&str, &[&str]>) {
        let host = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = host.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        match (machine(host.path()), expected) {
            (Ok(id), Ok(text)) => assert_eq!(id.to_string(), text),
            (Err(why), Err(parts)) => {
                let why = why.to_string();
                assert!(why.starts_with("not fenceable, because "), "{why}");
                parts.iter().for_each(|part| assert!(why.contains(part), "{why:?} lacks {part:?}"));
            }
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn sysfs_comes_first() {
        let other = table(&system([9; 16]));
        check(&[(PRODUCT_UUID, b"00112233-4455-6677-8899-AABBCCDDEEFF\n"), (DMI_TABLE, &other)], Ok(UUID));
    }

    #[test]
    fn the_raw_table_serves_where_sysfs_is_missing_or_empty() {
        let table = table(&system(WIRE));
        check(&[(DMI_TABLE, &table)], Ok(UUID));
        check(&[(DMI_TABLE, &table), (PRODUCT_UUID, b"\n")], Ok(UUID));
        check(&[(DMI_TABLE, &table), (PRODUCT_UUID, b"Not Settable\n")], Ok(UUID));
        check(&[(DMI_TABLE, &table), (DMI_ENTRY, b"_SM3_\0\0\x03\x03\0")], Ok(UUID));
        check(&[(DMI_TABLE, &table), (DMI_ENTRY, b"_SM_\0\0\x02\x06")], Ok(UUID));
    }

    #[test]
    fn firmware_before_2_6_wrote_the_bytes_as_they_read() {
        let rfc: MachineId = UUID.parse().unwrap();
        let table = table(&system(rfc.bytes()));
        check(&[(DMI_TABLE, &table), (DMI_ENTRY, b"_SM_\0\0\x02\x05")], Ok(UUID));
    }

    #[test]
    fn a_placeholder_identifies_nothing_and_is_named() {
        let real = table(&system(WIRE));
        check(
            &[(PRODUCT_UUID, b"03000200-0400-0500-0006-000700080009\n"), (DMI_TABLE, &real)],
            Err(&["product_uuid", "03000200-0400-0500-0006-000700080009 is a placeholder"]),
        );
        check(&[(DMI_TABLE, &table(&system([0xff; 16])))], Err(&["placeholder"]));
        check(&[(DMI_TABLE, &table(&system([0; 16])))], Err(&["placeholder"]));
    }

    #[test]
    fn a_host_with_neither_says_what_was_tried() {
        check(&[], Err(&[PRODUCT_UUID, DMI_TABLE, "No such file"]));
        check(&[(DMI_TABLE, b"")], Err(&["no System Information"]));
        check(&[(DMI_TABLE, &structure(127, &[], &[]))], Err(&["no System Information"]));
        check(&[(DMI_TABLE, &table(&structure(1, &[1, 2, 0, 3], &[])))], Err(&["has no UUID"]));
        check(&[(DMI_TABLE, &system(WIRE)[..20])], Err(&["longer than the table"]));
        check(&[(DMI_TABLE, &[0, 4, 0, 0, b'x'])], Err(&["has no end"]));
        check(&[(DMI_TABLE, &[0, 0, 0, 0, 0, 0])], Err(&["shorter than its header"]));
    }

    #[test]
    fn the_boot_id_is_needed() {
        let host = tempfile::tempdir().unwrap();
        assert!(boot(host.path()).unwrap_err().to_string().contains("--host-root"));
        let path = host.path().join(BOOT_ID);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "8d2c6f3a-1b4e-4c7d-9e0f-000000000001\n").unwrap();
        assert_eq!(boot(host.path()).unwrap().to_string(), "8d2c6f3a-1b4e-4c7d-9e0f-000000000001");
        fs::write(&path, "x").unwrap();
        assert!(matches!(boot(host.path()), Err(BootError::Form { .. })));
    }

    proptest::proptest! {
        #[test]
        fn any_table_gets_an_answer(bytes: Vec<u8>, system in 0_u8..3) {
            let _ = uuid_of_table(&bytes, smbios_version(&bytes));
            let begun = [&[system, 27, 0, 0][..], &bytes].concat();
            let _ = uuid_of_table(&begun, Some((3, 0)));
        }
    }
}
