//! Reads the host's pressure figures (PSI) now and then. Whether they are a reason for doubt is the core's to say.

use std::path::Path;
use std::time::Duration;

use coroner_agent_core::{Input, Pressure};
use tracing::info;

use crate::heartbeat::Mailbox;

/// The kernel averages over 10 s and updates each 2 s.
const READ_EVERY: Duration = Duration::from_secs(2);

/// Reads for ever; on a kernel without PSI it says so once.
pub(crate) async fn watch(host_root: &Path, mailbox: Mailbox) {
    let file = |name: &str| host_root.join("proc/pressure").join(name);
    let (cpu, memory) = (file("cpu"), file("memory"));
    let mut told = false;
    loop {
        // procfs answers from memory; it does not wait for a disk.
        let read = |path| std::fs::read_to_string(path).ok().and_then(|text| full_avg10(&text));
        match (read(&cpu), read(&memory)) {
            (None, None) if !told => {
                told = true;
                info!(folder = %host_root.join("proc/pressure").display(), "this kernel shows no pressure figures");
            }
            (None, None) => {}
            (cpu, memory) => mailbox.send(Input::Pressure(Pressure {
                cpu_full_percent: cpu.unwrap_or(0),
                memory_full_percent: memory.unwrap_or(0),
            })),
        }
        tokio::time::sleep(READ_EVERY).await;
    }
}

/// `full avg10=1.23 avg60=...` in whole percent.
fn full_avg10(text: &str) -> Option<u8> {
    let line = text.lines().find_map(|line| line.strip_prefix("full "))?;
    let value = line.split(' ').find_map(|field| field.strip_prefix("avg10="))?;
    let percent: u8 = value.split('.').next()?.parse().ok()?;
    Some(percent.min(100))
}

#[cfg(test)]
mod tests {
    use super::full_avg10;

    #[test]
    fn the_full_line_counts() {
        let text = "some avg10=99.00 avg60=1.00 avg300=0.00 total=1\nfull avg10=21.97 avg60=0.00 avg300=0.00 total=2\n";
        assert_eq!(full_avg10(text), Some(21));
        assert_eq!(full_avg10("some avg10=99.00 avg60=1.00 avg300=0.00 total=1\n"), None);
        assert_eq!(full_avg10("full avg10=x"), None);
        assert_eq!(full_avg10(""), None);
    }
}
