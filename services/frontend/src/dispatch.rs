//! Sends a booked request to its worker and waits for the first byte. Until that byte nothing has been promised to the
//! client, so a worker that fails is replaced by another, a bounded number of times; after it there is no retry (field
//! report B103). Must not touch the bytes of the request or of the answer. Called by `generate`.

use crate::{
    outbound::Outbound,
    refusal::Refusal,
    state::FrontendState,
    worker_answer::{WorkerAnswer, is_incarnation_mismatch},
};
use http::StatusCode;
use std::time::Duration;
use switchtower_ids::Row;
use switchtower_runtime::http_client::{is_connect_failure, is_local_shortage};
use switchtower_scheduling::{Outcome, Rejection, Selection};
use switchtower_selection::{Reservation, WorkerFailure};
use tokio::time::timeout;

/// Why a worker did not serve a request.
enum Failure {
    /// This process cannot open a connection to anybody. No worker is to blame.
    Shortage,
    /// No connection: the worker has seen nothing.
    Connect(Row),
    /// The worker lives another life than the one that was chosen.
    Restarted(Row),
    /// The worker is over its own limits and said so.
    Overloaded(WorkerAnswer),
    /// The connection broke, or the worker answered with its own failure; `how` says which.
    Failed { row: Row, how: String },
    /// Nothing came in time.
    Silent,
}

/// The answer of the first worker that gives one.
///
/// # Errors
/// What to tell the client when none does.
pub(crate) async fn dispatch(
    state: &FrontendState,
    reservation: &mut Reservation,
    outbound: &Outbound,
) -> Result<WorkerAnswer, Refusal> {
    let mut attempts = 1;
    loop {
        let failure = match attempt(state, reservation.selection(), outbound).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let Some((kind, reason)) = failure.retry().filter(|_| attempts < state.settings.attempts_max) else {
            return failure.give_up(state, attempts, None);
        };
        attempts += 1;
        tracing::info!(row = %reservation.selection().row, reason, attempts, "a worker failed before its first byte");
        match reservation.retry_elsewhere(kind).await {
            Ok(_) => state.metrics.retried(reason),
            Err(rejection) => return failure.give_up(state, attempts - 1, Some(rejection)),
        }
    }
}

async fn attempt(
    state: &FrontendState,
    selection: &Selection,
    outbound: &Outbound,
) -> Result<WorkerAnswer, Failure> {
    let limit: Duration = state.timeouts.first_byte();
    timeout(limit, exchange_until_first_byte(state, selection, outbound))
        .await
        .unwrap_or(Err(Failure::Silent))
}

async fn exchange_until_first_byte(
    state: &FrontendState,
    selection: &Selection,
    outbound: &Outbound,
) -> Result<WorkerAnswer, Failure> {
    let row = selection.row;
    let failed = |how: String| Failure::Failed { row, how };
    let request = outbound.request(selection).map_err(|error| failed(error.to_string()))?;
    let response = state.client.request(request).await.map_err(|error| match error {
        error if is_local_shortage(&error) => Failure::Shortage,
        error if is_connect_failure(&error) => Failure::Connect(row),
        _ => failed("broke the connection".to_owned()),
    })?;
    let mut answer = WorkerAnswer::new(row, response);
    match answer.status() {
        StatusCode::CONFLICT => {
            answer.read_head_of_body().await.map_err(|_| failed("broke its answer off".to_owned()))?;
            if is_incarnation_mismatch(&answer) { Err(Failure::Restarted(row)) } else { Ok(answer) }
        }
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Err(Failure::Overloaded(answer)),
        status if status.is_client_error() => Ok(answer),
        status if status.is_success() => match answer.read_first_byte().await {
            Ok(true) => Ok(answer),
            Ok(false) => Err(failed("ended its answer before the first byte".to_owned())),
            Err(_) => Err(failed("broke its answer off before the first byte".to_owned())),
        },
        status => Err(failed(format!("answered {}", status.as_u16()))),
    }
}

impl Failure {
    /// Whether another worker may do better; what to tell the books, and the metric label.
    fn retry(&self) -> Option<(WorkerFailure, &'static str)> {
        match self {
            Self::Connect(_) => Some((WorkerFailure::Connect, "connect")),
            Self::Restarted(_) => Some((WorkerFailure::Refused, "restarted")),
            Self::Overloaded(_) => Some((WorkerFailure::Refused, "overload")),
            Self::Failed { .. } => Some((WorkerFailure::Failed, "failed")),
            Self::Shortage | Self::Silent => None,
        }
    }

    /// What the client gets: the worker's own words where it was overloaded, ours otherwise. A rejection that is about
    /// the fleet only means that there is no other worker; any other is the answer itself.
    fn give_up(
        self,
        state: &FrontendState,
        attempts: u32,
        rejection: Option<Rejection>,
    ) -> Result<WorkerAnswer, Refusal> {
        let rejection = match rejection {
            Some(rejection) if !is_about_the_fleet(&rejection) => return Err(rejection.into()),
            other => other.map(|rejection| format!("; {rejection}")).unwrap_or_default(),
        };
        let after = format!("after {attempts} attempt(s){rejection}");
        match self {
            Self::Overloaded(answer) => Ok(answer),
            Self::Connect(row) => {
                Err(Refusal::unreachable(format!("worker {row} cannot be reached, {after}; try again later")))
            }
            Self::Restarted(row) => {
                Err(Refusal::unreachable(format!("worker {row} has restarted, {after}; try again")))
            }
            Self::Failed { row, how } => {
                Err(Refusal::worker_failed(format!("worker {row} {how}, {after}; try again")))
            }
            Self::Shortage => Err(Refusal::router_exhausted()),
            Self::Silent => Err(Refusal::worker_silent(state.timeouts.first_byte_ms)),
        }
    }
}

fn is_about_the_fleet(rejection: &Rejection) -> bool {
    matches!(
        rejection.outcome(),
        Outcome::NothingEligible
            | Outcome::AllOverloaded
            | Outcome::PinnedOverloaded
            | Outcome::ImpossiblePin
    )
}
