//! What the agent is told at its start, checked as a set: every wrong field is named at once, with its value and what
//! would be right. Files that may appear later (trust, token) are not checked here; the agent waits for them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use coroner_shared::id::NodeName;
use tracing::level_filters::LevelFilter;

/// Says that its host lives, hears a few others, and reports who is silent.
#[derive(Debug, Parser)]
#[command(name = "coroner-agent", version)]
pub(crate) struct Args {
    /// Where the host's file system is seen: sys/, proc/, run/ and var/lib/coroner are below it.
    #[arg(long, env = "CORONER_HOST_ROOT", default_value = "/", value_name = "DIR")]
    host_root: PathBuf,
    /// Name of the Kubernetes Node that this agent runs on (spec.nodeName).
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
    /// The host's address that is registered and listened on, UDP 7460 (status.hostIP).
    #[arg(long, env = "HOST_IP", value_name = "IP")]
    address: Option<String>,
    /// Where the ConfigMap coroner-trust is mounted.
    #[arg(long, default_value = "/etc/coroner/trust", value_name = "DIR")]
    trust_dir: PathBuf,
    /// The projected ServiceAccount token (audience `coroner`).
    #[arg(long, default_value = "/var/run/secrets/coroner/token", value_name = "FILE")]
    token_file: PathBuf,
    /// Where health and metrics are served.
    #[arg(long, default_value = "127.0.0.1:7464", value_name = "IP:PORT")]
    health_address: String,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Human)]
    log_format: LogFormat,
    /// How much is logged.
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    log_level: LogLevel,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Human,
    /// One JSON object per line.
    Json,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// A configuration that can be worked with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) host_root: PathBuf,
    pub(crate) node: NodeName,
    pub(crate) address: IpAddr,
    pub(crate) trust_dir: PathBuf,
    pub(crate) token_file: PathBuf,
    pub(crate) health: SocketAddr,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: LevelFilter,
}

/// One field that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ArgError {
    field: &'static str,
    value: String,
    right: String,
}

// === impl Args ===

impl Args {
    /// Checks all fields.
    ///
    /// # Errors
    /// Every field that is wrong.
    pub(crate) fn check(self) -> Result<Config, Vec<ArgError>> {
        let mut errors = Vec::new();
        if !self.host_root.is_dir() {
            let value = self.host_root.display().to_string();
            let right = "a directory: the host's root, mounted into the container".to_owned();
            errors.push(ArgError { field: "--host-root", value, right });
        }
        let name = self.node_name.unwrap_or_default();
        let node = NodeName::new(name.clone()).map_err(|error| {
            let right = format!("the Node's name, from NODE_NAME or spec.nodeName: {error}");
            errors.push(ArgError { field: "--node-name", value: name, right });
        });
        let given = self.address.unwrap_or_default();
        let address = host_address(&given).map_err(|right| {
            errors.push(ArgError { field: "--address", value: given, right });
        });
        let health = self.health_address.parse::<SocketAddr>().map_err(|_| {
            let right = "an address with a port, such as 127.0.0.1:7464".to_owned();
            errors.push(ArgError { field: "--health-address", value: self.health_address, right });
        });
        match (node, address, health) {
            (Ok(node), Ok(address), Ok(health)) if errors.is_empty() => Ok(Config {
                host_root: self.host_root,
                node,
                address,
                trust_dir: self.trust_dir,
                token_file: self.token_file,
                health,
                log_format: self.log_format,
                log_level: self.log_level.filter(),
            }),
            _ => Err(errors),
        }
    }
}

impl LogLevel {
    const fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        }
    }
}

impl fmt::Display for ArgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}; right would be {}", self.field, self.value, self.right)
    }
}

// === helpers ===

/// An address that peers can send to.
fn host_address(text: &str) -> Result<IpAddr, String> {
    let right = "the host's own address, from HOST_IP or status.hostIP, such as 10.0.0.7";
    let address: IpAddr = text.parse().map_err(|_| right.to_owned())?;
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if address.is_unspecified() || address.is_multicast() || link_local {
        return Err(format!("{right}; this is one that other hosts cannot send to"));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses flags on top of good ones, without the environment's influence on what is given here.
    fn parse(flags: &[&str]) -> Result<Config, Vec<String>> {
        let good = ["coroner-agent", "--host-root=/", "--node-name=n1", "--address=10.0.0.1"];
        let given = |flag: &&&str| !flags.iter().any(|f| f.split('=').next() == flag.split('=').next());
        let all: Vec<&str> = good.iter().filter(given).chain(flags).copied().collect();
        let args = Args::try_parse_from(all).map_err(|error| vec![error.to_string()])?;
        args.check().map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[track_caller]
    fn check_refused(flags: &[&str], expected: &[&str]) {
        let errors = parse(flags).unwrap_err();
        assert_eq!(errors.len(), expected.len(), "{errors:?}");
        for (error, part) in errors.iter().zip(expected) {
            assert!(error.starts_with(part), "{error:?} does not begin with {part:?}");
            assert!(error.contains("; right would be "), "{error:?} does not say what would be right");
        }
    }

    #[test]
    fn good_flags_make_a_configuration() {
        let config = parse(&["--address=2001:db8::7", "--log-format=json", "--log-level=debug"]).unwrap();
        assert_eq!(config.address, "2001:db8::7".parse::<IpAddr>().unwrap());
        assert_eq!(config.node.as_str(), "n1");
        assert_eq!(config.health, "127.0.0.1:7464".parse().unwrap());
        assert_eq!((config.log_format, config.log_level), (LogFormat::Json, LevelFilter::DEBUG));
    }

    #[test]
    fn every_wrong_field_is_named_with_its_value() {
        check_refused(&["--host-root=/no/such/dir"], &["--host-root is \"/no/such/dir\""]);
        check_refused(&["--host-root=/etc/hostname"], &["--host-root is"]);
        check_refused(&["--node-name=N_1"], &["--node-name is \"N_1\""]);
        check_refused(&["--node-name="], &["--node-name is \"\""]);
        check_refused(&["--health-address=7464"], &["--health-address is \"7464\""]);
        for bad in ["", "n1", "10.0.0.1:7460", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "fe80::1"] {
            check_refused(&[&format!("--address={bad}")], &[&format!("--address is {bad:?}")]);
        }
        check_refused(
            &["--host-root=/no", "--node-name=_", "--address=x", "--health-address=y"],
            &["--host-root", "--node-name", "--address", "--health-address"],
        );
    }

    #[test]
    fn an_unknown_flag_is_an_error() {
        assert!(parse(&["--adress=10.0.0.1"]).is_err());
    }
}
