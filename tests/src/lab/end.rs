//! When a long-running program of the lab is to end: at a signal, or with whoever holds its leash.
//!
//! Signals are handled, never blocked: what a thread blocks, every program that it starts would have blocked too.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    signal::unix::{Signal, SignalKind, signal},
};

/// The reading end of a pipe to which nobody writes: it ends when its holder does.
#[derive(Debug)]
pub(super) struct Leash {
    pipe: Receiver,
}

/// What ends a program.
#[derive(Debug)]
pub struct End {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
    leash: Option<Leash>,
}

// === impl End ===

impl End {
    /// From here on nothing is missed. `leash`: the end of stdin is the end, too.
    ///
    /// # Errors
    /// When the kernel refuses, for instance because stdin is no pipe.
    pub fn listen(leash: bool) -> Result<Self> {
        let hear = |kind| signal(kind).context("listen for a signal");
        Ok(Self {
            term: hear(SignalKind::terminate())?,
            interrupt: hear(SignalKind::interrupt())?,
            hangup: hear(SignalKind::hangup())?,
            leash: leash.then(Leash::of_stdin).transpose()?,
        })
    }

    /// Returns when the end has come.
    pub async fn comes(&mut self) {
        let leash = async {
            match &mut self.leash {
                Some(leash) => leash.ends().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
            () = leash => {}
        }
    }
}

// === impl Leash ===

impl Leash {
    /// Takes stdin as the leash.
    ///
    /// # Errors
    /// When it is no pipe.
    pub(super) fn of_stdin() -> Result<Self> {
        let pipe = std::io::stdin().as_fd().try_clone_to_owned().context("take stdin")?;
        Ok(Self { pipe: Receiver::from_owned_fd(pipe).context("take stdin as a leash")? })
    }

    /// Returns when its holder is gone. May be dropped and called again.
    pub(super) async fn ends(&mut self) {
        while self.pipe.read_u8().await.is_ok() {}
    }
}
