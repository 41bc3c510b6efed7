//! Who may come in, and who is still inside: the drain closes the gate and waits for the last one to leave. Called by
//! `api` at every request and by `worker` at the end.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// The worker's door.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    inside: TaskTracker,
}

/// A request is inside while this lives.
#[derive(Debug)]
pub(crate) struct Inside {
    _counted: TaskTrackerToken,
}

impl Gate {
    /// Lets a request in, unless the gate is closed.
    pub(crate) fn enter(&self) -> Option<Inside> {
        // Counted first: whoever closes the gate in between waits for this one too.
        let inside = Inside { _counted: self.inside.token() };
        (!self.is_closed()).then_some(inside)
    }

    /// Whether nobody is let in any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Requests that are inside.
    pub(crate) fn inside(&self) -> usize {
        self.inside.len()
    }

    /// Lets nobody in from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.inside.close();
    }

    /// After [`Self::close`]: waits until all have left, or for `deadline`; how many are still inside.
    pub(crate) async fn emptied(&self, deadline: Duration) -> usize {
        match tokio::time::timeout(deadline, self.inside.wait()).await {
            Ok(()) => 0,
            Err(_) => self.inside(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_closed_gate_lets_nobody_in_and_waits_for_those_inside() {
        let gate = Gate::default();
        let inside = gate.enter().unwrap();
        gate.close();
        assert!(gate.enter().is_none());
        assert_eq!(gate.emptied(Duration::from_millis(1)).await, 1);
        drop(inside);
        assert_eq!(gate.emptied(Duration::ZERO).await, 0);
    }
}
