//! Asks other hosts' kernels whether they are there: a TCP connection to the kubelet's port, an ICMP echo.
//!
//! Reports what came back, and only what came from the asked address; what it means is the core's to say.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use coroner_agent_core::{HostPath, Input, ProbeNumber};
use coroner_shared::beacon::Answer;
use coroner_shared::names::PORT_KUBELET;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::heartbeat::Mailbox;

/// An answer later than this is none. The core stops waiting sooner, but takes what comes until then.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Probes under way at a time: two rounds to nine subjects and sixteen asked hosts, on two paths.
pub(crate) const PROBES_MAX: usize = 128;

/// One question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeRequest {
    pub(crate) number: ProbeNumber,
    pub(crate) path: HostPath,
    pub(crate) address: IpAddr,
}

/// Answers requests until the beacon's thread is gone.
pub(crate) async fn serve(mut requests: mpsc::Receiver<ProbeRequest>, mailbox: Mailbox) {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) if under_way.len() < PROBES_MAX => {
                    under_way.spawn(async move { (request.number, ask(request).await) });
                }
                Some(ProbeRequest { number, .. }) => {
                    mailbox.send(Input::Probed { number, answer: Answer::NotSent });
                }
                None => return,
            },
            Some(done) = under_way.join_next() => {
                if let Ok((number, answer)) = done {
                    mailbox.send(Input::Probed { number, answer });
                }
            }
        }
    }
}

/// Tells once whether echoes can be sent from here.
pub(crate) fn tell_whether_ping_is_permitted(own: IpAddr) {
    match echo_socket(own) {
        Ok(_) => info!("ICMP echoes can be sent: peers are probed by ping too"),
        Err(error) => warn!(
            %error,
            "ICMP echoes cannot be sent, so peers are probed through their agent and kubelet only; \
             widen net.ipv4.ping_group_range to permit it"
        ),
    }
}

// === helpers ===

async fn ask(request: ProbeRequest) -> Answer {
    let answer = match request.path {
        HostPath::Kubelet => timeout(ANSWER_WITHIN, connect(request.address)).await,
        HostPath::Ping => timeout(ANSWER_WITHIN, ping(request.address, request.number)).await,
    };
    answer.unwrap_or(Answer::Nothing)
}

async fn connect(address: IpAddr) -> Answer {
    match TcpStream::connect(SocketAddr::new(address, PORT_KUBELET)).await {
        Ok(_) => Answer::Accepted,
        Err(error) => tcp_answer(&error),
    }
}

/// What a failed connection says.
fn tcp_answer(error: &io::Error) -> Answer {
    let kind = error.kind();
    if matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset) {
        // A closed port was refused by a living kernel.
        Answer::Reset
    } else if matches!(kind, ErrorKind::HostUnreachable | ErrorKind::TimedOut) {
        // Nobody answered ARP, or a router gave up: that is silence of the asked host.
        Answer::Nothing
    } else {
        // No route, no right, no descriptor: nothing was sent, so nothing was learnt.
        Answer::NotSent
    }
}

async fn ping(address: IpAddr, number: ProbeNumber) -> Answer {
    match echo(address, number).await {
        Ok(()) => Answer::Answered,
        Err(error) => ping_answer(&error),
    }
}

/// What a failed echo says. An "unreachable" may be some router's word, so it is no answer.
fn ping_answer(error: &io::Error) -> Answer {
    let silence = [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable, ErrorKind::TimedOut];
    if silence.contains(&error.kind()) { Answer::Nothing } else { Answer::NotSent }
}

/// One echo with the number as its content, until exactly that comes back. The socket is connected, so only what the
/// asked address sends is seen; the kernel fills in identifier and checksum (Linux `net/ipv4/ping.c`).
async fn echo(address: IpAddr, number: ProbeNumber) -> io::Result<()> {
    let (request, reply) = match address {
        IpAddr::V4(_) => (8_u8, 0_u8),
        IpAddr::V6(_) => (128, 129),
    };
    let socket = UdpSocket::from_std(echo_socket(address)?)?;
    socket.connect(SocketAddr::new(address, 0)).await?;
    let content = number.0.to_be_bytes();
    let mut packet = vec![request, 0, 0, 0, 0, 0, 0, 1];
    packet.extend(content);
    socket.send(&packet).await?;
    let mut answer = [0; 64];
    loop {
        let length = socket.recv(&mut answer).await?;
        let answer = answer.get(..length).unwrap_or_default();
        if answer.first() == Some(&reply) && answer.get(8..) == Some(&content[..]) {
            return Ok(());
        }
    }
}

/// A datagram ICMP socket: needs no capability where net.ipv4.ping_group_range includes the process' group.
fn echo_socket(address: IpAddr) -> io::Result<std::net::UdpSocket> {
    let (family, protocol) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Datagram, flags, protocol)?;
    Ok(fd.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;

    #[test]
    fn what_a_failed_connection_says() {
        for (error, answer) in [
            (Errno::ECONNREFUSED, Answer::Reset),
            (Errno::ECONNRESET, Answer::Reset),
            (Errno::EHOSTUNREACH, Answer::Nothing),
            (Errno::ETIMEDOUT, Answer::Nothing),
            (Errno::ENETUNREACH, Answer::NotSent),
            (Errno::EACCES, Answer::NotSent),
            (Errno::EMFILE, Answer::NotSent),
            (Errno::EADDRNOTAVAIL, Answer::NotSent),
        ] {
            assert_eq!(tcp_answer(&io::Error::from(error)), answer, "{error}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_of_a_living_kernel_is_an_answer() {
        // Nobody listens on the kubelet's port of this loopback address, or a kubelet does: either is life.
        let address = "127.77.66.55".parse().unwrap();
        let answer = ask(ProbeRequest { number: ProbeNumber(1), path: HostPath::Kubelet, address }).await;
        assert!(matches!(answer, Answer::Reset | Answer::Accepted), "{answer:?}");
    }

    #[tokio::test]
    async fn a_listening_port_accepts() {
        let address: IpAddr = "127.77.66.56".parse().unwrap();
        let Ok(_listener) = tokio::net::TcpListener::bind((address, PORT_KUBELET)).await else { return };
        let answer = ask(ProbeRequest { number: ProbeNumber(1), path: HostPath::Kubelet, address }).await;
        assert_eq!(answer, Answer::Accepted);
    }

    #[tokio::test]
    async fn an_echo_comes_back_where_it_is_permitted_and_is_not_sent_elsewhere() {
        let address = "127.0.0.1".parse().unwrap();
        let permitted = echo_socket(address).is_ok();
        let answer = ask(ProbeRequest { number: ProbeNumber(7), path: HostPath::Ping, address }).await;
        assert_eq!(answer, if permitted { Answer::Answered } else { Answer::NotSent });
    }
}
