//! UDP 7460 as the beacon's thread needs it: never blocking, bounded, and telling what the kernel dropped.
//!
//! It does not know what a datagram means.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use coroner_shared::wire::DATAGRAM_BYTES_MAX;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrLike, SockaddrStorage, recvmsg, setsockopt, sockopt,
};

/// What may wait unread. Enough for a second of all peers and replicas many times over; a flood beyond it is dropped
/// by the kernel, which counts it.
const RECEIVE_BUFFER_BYTES: usize = 256 * 1024;
/// Class selector 6, "network control": switches with full queues drop it last.
const CLASS_6: u8 = 0xc0;

/// The socket.
pub(crate) struct Socket {
    udp: UdpSocket,
    buffer: Vec<u8>,
    control: Vec<u8>,
    /// As the kernel said with the newest datagram.
    drops: u32,
}

/// What one look at the socket found.
pub(crate) enum Received {
    /// A datagram of this length is in [`Socket::bytes`].
    Datagram {
        /// Its length.
        length: usize,
        /// Its sender.
        from: SocketAddr,
    },
    /// Something longer than any datagram of ours, or from no address.
    Useless,
    /// The socket is empty.
    Empty,
}

// === impl Socket ===

impl Socket {
    /// Binds.
    ///
    /// # Errors
    /// The address is not this host's, or the port is taken.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let udp = UdpSocket::bind(address)?;
        udp.set_nonblocking(true)?;
        setsockopt(&udp, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES)?;
        setsockopt(&udp, sockopt::RxqOvfl, &1)?;
        // A preference; where it is not permitted beacons are ordinary traffic.
        let _ = match address.ip() {
            IpAddr::V4(_) => setsockopt(&udp, sockopt::Ipv4Tos, &i32::from(CLASS_6)),
            IpAddr::V6(_) => setsockopt(&udp, sockopt::Ipv6TClass, &i32::from(CLASS_6)),
        };
        // One byte more than allowed, so that what is too long shows.
        let (buffer, control) = (vec![0; DATAGRAM_BYTES_MAX + 1], nix::cmsg_space!(u32));
        Ok(Self { udp, buffer, control, drops: 0 })
    }

    /// Takes the next datagram, if there is one.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) fn receive(&mut self) -> io::Result<Received> {
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let fd = self.udp.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut self.control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(Received::Empty),
            // Asynchronous errors of earlier sends, and signals; the next look sees further.
            Err(Errno::EINTR | Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH) => {
                return Ok(Received::Useless);
            }
            Err(error) => return Err(error.into()),
        };
        for control in message.cmsgs()? {
            if let ControlMessageOwned::RxqOvfl(drops) = control {
                self.drops = drops;
            }
        }
        let (length, from) = (message.bytes, message.address.as_ref().and_then(address_of));
        match from {
            Some(from) if length <= DATAGRAM_BYTES_MAX => Ok(Received::Datagram { length, from }),
            Some(_) | None => Ok(Received::Useless),
        }
    }

    /// The newest datagram.
    pub(crate) fn bytes(&self, length: usize) -> &[u8] {
        self.buffer.get(..length).unwrap_or_default()
    }

    /// How many datagrams the kernel dropped since the socket was bound.
    pub(crate) fn drops(&self) -> u64 {
        u64::from(self.drops)
    }

    /// Sends; gives whether the kernel took it.
    pub(crate) fn send(&self, bytes: &[u8], to: SocketAddr) -> bool {
        self.udp.send_to(bytes, to).is_ok()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

// === helpers ===

fn address_of(storage: &SockaddrStorage) -> Option<SocketAddr> {
    debug_assert!(storage.len() > 0);
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::from(*v4));
    v4.or_else(|| storage.as_sockaddr_in6().map(|v6| SocketAddr::from(*v6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Socket, UdpSocket) {
        let ours = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        other.connect(ours.udp.local_addr().unwrap()).unwrap();
        (ours, other)
    }

    #[test]
    fn a_datagram_comes_with_its_sender_and_then_the_socket_is_empty() {
        let (mut ours, other) = pair();
        other.send(b"hello").unwrap();
        let Received::Datagram { length, from } = ours.receive().unwrap() else { panic!() };
        assert_eq!((ours.bytes(length), from), (&b"hello"[..], other.local_addr().unwrap()));
        assert!(matches!(ours.receive().unwrap(), Received::Empty));
    }

    #[test]
    fn ipv6_is_the_same() {
        // A kernel without IPv6 has nothing to show.
        let Ok(mut ours) = Socket::bind("[::1]:0".parse().unwrap()) else { return };
        let other = UdpSocket::bind("[::1]:0").unwrap();
        other.send_to(b"hello", ours.udp.local_addr().unwrap()).unwrap();
        let Received::Datagram { length, from } = ours.receive().unwrap() else { panic!() };
        assert_eq!((length, from), (5, other.local_addr().unwrap()));
        assert!(ours.send(b"back", from));
    }

    #[test]
    fn what_is_too_long_is_useless() {
        let (mut ours, other) = pair();
        other.send(&[0; DATAGRAM_BYTES_MAX + 1]).unwrap();
        assert!(matches!(ours.receive().unwrap(), Received::Useless));
        other.send(&[0; DATAGRAM_BYTES_MAX]).unwrap();
        assert!(matches!(ours.receive().unwrap(), Received::Datagram { .. }));
    }

    #[test]
    fn the_kernel_tells_what_it_dropped() {
        let (mut ours, other) = pair();
        for _ in 0..20_000 {
            let _ = other.send(&[0; 1000]);
        }
        while !matches!(ours.receive().unwrap(), Received::Empty) {}
        other.send(b"after").unwrap();
        assert!(matches!(ours.receive().unwrap(), Received::Datagram { .. }));
        assert!(ours.drops() > 1000, "{}", ours.drops());
    }
}
