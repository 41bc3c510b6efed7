//! How the scorer of `adaptive` learns which row the picker took: scorers are asked first and told nothing. One number
//! that both hold; the host calls them one after the other, so there is nothing to lock.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
};
use switchtower_policy::{
    WorkerIdentity, WorkerInputView, WorkerInputs, WorkerPicker, WorkerSelectionContext,
    WorkerSelectionPolicyError,
};

/// The row that was picked last, until somebody takes note.
#[derive(Clone, Debug)]
pub(super) struct Chosen(Arc<Noted>);

#[derive(Debug)]
struct Noted {
    row: AtomicUsize,
    worker_id: AtomicU64,
    dp_rank: AtomicU32,
}

impl Chosen {
    const NONE: usize = usize::MAX;

    fn note(&self, row: usize, worker: WorkerIdentity) {
        self.0.row.store(row, Ordering::Relaxed);
        self.0.worker_id.store(worker.worker_id, Ordering::Relaxed);
        self.0.dp_rank.store(worker.dp_rank, Ordering::Relaxed);
    }

    /// The row and who it is; none if nothing was picked since the last call.
    pub(super) fn take(&self) -> Option<(usize, WorkerIdentity)> {
        let row = self.0.row.load(Ordering::Relaxed);
        if row == Self::NONE {
            return None;
        }
        self.0.row.store(Self::NONE, Ordering::Relaxed);
        let worker_id = self.0.worker_id.load(Ordering::Relaxed);
        Some((row, WorkerIdentity { worker_id, dp_rank: self.0.dp_rank.load(Ordering::Relaxed) }))
    }
}

impl Default for Chosen {
    fn default() -> Self {
        Self(Arc::new(Noted {
            row: AtomicUsize::new(Self::NONE),
            worker_id: AtomicU64::default(),
            dp_rank: AtomicU32::default(),
        }))
    }
}

/// Another picker, whose picks are noted.
pub(super) struct NotingPicker {
    pub(super) chosen: Chosen,
    pub(super) picker: Box<dyn WorkerPicker>,
}

impl WorkerPicker for NotingPicker {
    fn required_worker_inputs(&self) -> WorkerInputs {
        self.picker.required_worker_inputs()
    }

    fn pick(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let row = self.picker.pick(context, input)?;
        if let Some(worker) = input.workers().get(row) {
            self.chosen.note(row, *worker);
        }
        Ok(row)
    }
}
