//! Who gets the request: the session's row while the load guard allows it, else the cheapest. Computes no costs. The
//! policy's picker.

use crate::sessions::Sessions;
use switchtower_policy::{
    WorkerIdentity, WorkerInputView, WorkerInputs, WorkerPicker, WorkerSelectionContext,
    WorkerSelectionPolicyError,
};

/// Keeps sessions where they are, within the guard that `SessionAffinity` describes.
pub(crate) struct AffinityPicker {
    pub(crate) slack_requests: u64,
    pub(crate) slack_factor: f64,
    pub(crate) sessions: Sessions,
    /// Chooses for everybody who has no row to stay on.
    pub(crate) cheapest: Box<dyn WorkerPicker>,
}

impl AffinityPicker {
    /// The index of `home`, if it is a candidate and not too busy.
    fn stay(
        &self,
        home: WorkerIdentity,
        input: WorkerInputView<'_>,
    ) -> Result<Option<usize>, WorkerSelectionPolicyError> {
        let load =
            input.load().ok_or_else(|| WorkerSelectionPolicyError::failed("load inputs unavailable"))?;
        let requests = || load.iter().map(|row| row.active_requests());
        let least = requests().min().unwrap_or(0);
        let bound = self.slack_requests as f64 + self.slack_factor * least as f64;
        let mut rows = input.candidates().iter().zip(requests());
        Ok(rows.position(|(row, requests)| row.worker() == home && requests as f64 <= bound))
    }
}

impl WorkerPicker for AffinityPicker {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::LOAD
    }

    fn pick(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let Some(session) = context.session() else {
            return self.cheapest.pick(context, input);
        };
        let home = self.sessions.home(session);
        let stay = home.map_or(Ok(None), |home| self.stay(home, input))?;
        let row = match stay {
            Some(row) => row,
            None => self.cheapest.pick(context, input)?,
        };
        if let Some(chosen) = input.candidates().get(row) {
            self.sessions.settle(session, chosen.worker());
        }
        Ok(row)
    }
}
