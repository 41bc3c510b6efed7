//! How the scorer of `adaptive` learns which row the picker took: scorers are asked first and told nothing. One number
//! that both hold; the host calls them one after the other, so there is nothing to lock.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use switchtower_policy::{
    WorkerInputView, WorkerInputs, WorkerPicker, WorkerSelectionContext, WorkerSelectionPolicyError,
};

/// The row that was picked last, until somebody takes note.
#[derive(Clone, Debug)]
pub(super) struct Chosen(Arc<AtomicUsize>);

impl Chosen {
    const NONE: usize = usize::MAX;

    fn note(&self, row: usize) {
        self.0.store(row, Ordering::Relaxed);
    }

    /// The row; none if nothing was picked since the last call.
    pub(super) fn take(&self) -> Option<usize> {
        Some(self.0.swap(Self::NONE, Ordering::Relaxed)).filter(|row| *row != Self::NONE)
    }
}

impl Default for Chosen {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(Self::NONE)))
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
        self.chosen.note(row);
        Ok(row)
    }
}
