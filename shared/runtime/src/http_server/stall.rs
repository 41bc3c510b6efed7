//! A limit on how long a peer may refuse to take an answer's bytes.
//!
//! Without it, a client that opens a stream and never reads would hold its request's future, and what that books, for
//! ever: the kernel answers keep-alive probes for it. Must not limit reading: hyper and the services do. Wraps every
//! connection of the server.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// IO whose writes fail with `TimedOut` after making no progress for `limit`.
pub(super) struct StallGuard<T> {
    io: T,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    stalled: bool,
}

impl<T> StallGuard<T> {
    pub(super) fn new(io: T, limit: Duration) -> Self {
        Self { io, limit, timer: Box::pin(tokio::time::sleep(limit)), stalled: false }
    }

    /// Passes on what a write came to; a pending one runs against the clock that the first pending one started.
    fn limited<R>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stalled = false;
            return written;
        }
        if !self.stalled {
            self.stalled = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        self.timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: Read + Unpin> Read for StallGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: Write + Unpin> Write for StallGuard<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.limited(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.limited(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.limited(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.io).poll_shutdown(context);
        self.limited(context, closed)
    }
}
