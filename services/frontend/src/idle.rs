//! How long a worker may be silent in the middle of an answer. The time runs only while its next bytes are awaited, so a
//! client that reads slowly is not held against the worker. Part of `relay`.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep};

/// A patience that is renewed with every sign of life.
pub(crate) struct Idle {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    armed: bool,
}

impl Idle {
    /// Nothing is awaited yet.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, timer: Box::pin(sleep(limit)), armed: false }
    }

    /// Something came.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }

    /// Nothing is here: ready once that has lasted too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.armed {
            self.armed = true;
            // A limit beyond what clocks can add stands for never.
            let until = Instant::now().checked_add(self.limit).unwrap_or_else(|| self.timer.deadline());
            self.timer.as_mut().reset(until);
        }
        self.timer.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test]
    async fn the_time_runs_only_while_something_is_awaited() {
        let mut idle = Idle::new(Duration::from_millis(1));
        let made = Instant::now();
        while made.elapsed() <= Duration::from_millis(1) {
            tokio::task::yield_now().await;
        }
        let mut context = Context::from_waker(std::task::Waker::noop());
        // Timers fire only when the runtime gets its turn, so this repeats on any machine.
        assert!(idle.poll(&mut context).is_pending(), "nothing was awaited so far");
        idle.disarm();
        assert!(idle.poll(&mut context).is_pending(), "something came in between");
        poll_fn(|cx| idle.poll(cx)).await;
        assert!(idle.armed);
    }
}
