//! One simulated inference engine rank in virtual time: continuous batching with chunked prefill, a block-granular
//! prefix cache, KV events and a load view, close enough to a real engine that a router cannot tell by its behaviour.
//!
//! Sans-IO: time (microseconds) is a parameter, there is no randomness, and no output text: whoever drives it (the
//! simulated worker on tokio time, the replay on a virtual clock) knows the tokens, the engine knows their hashes.
//!
//! ```
//! use switchtower_engine_sim::{Engine, EngineEvent, EngineParameters, RequestSpec};
//!
//! let mut engine = Engine::new(EngineParameters::default())?;
//! engine.submit(0, RequestSpec { id: 1, prompt_tokens: 100, output_tokens: 3, blocks: Vec::new() })?;
//! let mut events = Vec::new();
//! while let Some(at_us) = engine.next_event_at() {
//!     engine.advance(at_us, &mut events);
//! }
//! assert_eq!(events.last(), Some(&EngineEvent::Finished { id: 1 }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod engine;
mod event;
mod parameters;
mod request;
mod step;

pub use engine::Engine;
pub use event::{EngineEvent, EngineLoad};
pub use parameters::{EngineParameters, ParameterError};
pub use request::{RequestSpec, SubmitError};
