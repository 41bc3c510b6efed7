//! What the author of a worker-selection policy links: scorers, a picker, optional filters, and the inputs they read.
//!
//! The host owns discovery, queueing, eligibility, validation, accounting and reservations. A policy only gives
//! each eligible row a finite cost (lower is better) and picks one row. Everything here speaks plain numbers
//! (`u64`, `f64`), has no clock, no randomness and no IO.
//!
//! Rows arrive sorted by (worker, rank) so that decisions repeat; do not rely on it. Module [`host`] is the other
//! side of the contract: it builds the inputs and runs a policy, for the scheduler and for a policy's own tests.
//!
//! A scorer that gives one row its cost at a time is all that most policies need. One that compares rows, or that is to
//! cost next to nothing with thousands of them, implements [`WorkerScorer::score_batch`] and reads [`CandidateColumns`].
//!
//! A policy that prefers the worker with the most spare decode room, and breaks ties by the cache:
//!
//! ```
//! use switchtower_policy::{
//!     KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputView, WorkerInputs, WorkerPicker,
//!     WorkerScorer, WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError, host,
//! };
//!
//! struct DecodeRoom;
//!
//! impl WorkerScorer for DecodeRoom {
//!     fn required_worker_inputs(&self) -> WorkerInputs {
//!         WorkerInputs::LOAD
//!     }
//!
//!     fn score(
//!         &mut self,
//!         context: &WorkerSelectionContext<'_>,
//!         candidate: &WorkerCandidate,
//!     ) -> Result<f64, WorkerSelectionPolicyError> {
//!         let load = candidate.load().ok_or_else(|| WorkerSelectionPolicyError::failed("no load"))?;
//!         Ok(load.decode_cost_blocks() / context.request_blocks().max(1) as f64)
//!     }
//! }
//!
//! struct CheapestThenWarmest;
//!
//! impl WorkerPicker for CheapestThenWarmest {
//!     fn required_worker_inputs(&self) -> WorkerInputs {
//!         WorkerInputs::CACHE
//!     }
//!
//!     fn pick(
//!         &mut self,
//!         _context: &WorkerSelectionContext<'_>,
//!         input: WorkerInputView<'_>,
//!     ) -> Result<usize, WorkerSelectionPolicyError> {
//!         let warmth = input.cache().ok_or_else(|| WorkerSelectionPolicyError::failed("no cache"))?;
//!         let rows = input.candidates().iter().zip(warmth).enumerate();
//!         rows.min_by(|(_, (a, warm_a)), (_, (b, warm_b))| {
//!             a.cost().total_cmp(&b.cost()).then(warm_b.effective().total_cmp(&warm_a.effective()))
//!         })
//!         .map(|(row, _)| row)
//!         .ok_or_else(|| WorkerSelectionPolicyError::failed("no eligible worker"))
//!     }
//! }
//!
//! fn decode_room(
//!     config: &KvRouterConfig,
//!     worker_type: &'static str,
//!     _partition: RoutingPartitionRef<'_>,
//! ) -> WorkerSelectionPolicy {
//!     WorkerSelectionPolicy::new(
//!         config.clone(),
//!         worker_type,
//!         vec![Box::new(DecodeRoom)],
//!         Box::new(CheapestThenWarmest),
//!     )
//! }
//!
//! // The host's side, as the scheduler does it for every request.
//! let config = KvRouterConfig::default();
//! let mut policy = decode_room(&config, "aggregated", RoutingPartitionRef::new("model", "default"));
//! let context = host::ContextBuilder::new(1_024, 16).build();
//! let mut rows = vec![
//!     host::candidate(1, 0).with_load(host::load(64.0, 0, 90.0, 3)).with_cache(host::cache(0.0, 0.0, 0.0)),
//!     host::candidate(2, 0).with_load(host::load(64.0, 0, 64.0, 1)).with_cache(host::cache(8.0, 0.0, 0.0)),
//! ];
//! let pick = host::evaluate(&mut policy, &context, &mut rows, &mut host::Scratch::default())?;
//! assert_eq!((pick.worker_id, pick.dp_rank), (2, 0));
//! # Ok::<(), WorkerSelectionPolicyError>(())
//! ```

mod candidate;
mod columns;
mod config;
mod context;
mod error;
pub mod host;
mod inputs;
mod policy;
mod view;

pub use candidate::{WorkerCacheInput, WorkerCandidate, WorkerLoadInput};
pub use columns::{CacheColumns, CandidateColumns, Column, LoadColumns};
pub use config::{InvalidConfig, KvRouterConfig};
pub use context::{RoutingPartitionRef, WorkerIdentity, WorkerSelectionContext};
pub use error::WorkerSelectionPolicyError;
pub use inputs::WorkerInputs;
pub use policy::{
    WorkerFilter, WorkerPicker, WorkerScorer, WorkerSelectionPolicy, WorkerSelectionPolicyFactory,
};
pub use view::{ScoredWorkerCandidate, WorkerInputView};
