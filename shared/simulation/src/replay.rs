//! One policy on one trace.

use crate::{
    FleetError, FleetShape, LoadSeries, NetworkDelays, PolicyResult, Record, router::still_clock,
    simulation::Simulation, trace::Trace,
};
use std::sync::Arc;
use switchtower_ids::PartitionId;
use switchtower_policy::{KvRouterConfig, WorkerSelectionPolicyFactory};
use switchtower_scheduling::policy_host::{PolicyFailure, PolicyParts};

/// The model's name, which policies get to see.
const MODEL: &str = "replay";

/// What stays the same while policies are compared.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// The fleet.
    pub fleet: FleetShape,
    /// The router's settings; its seed also seeds the network.
    pub router: Arc<KvRouterConfig>,
    /// The network.
    pub network: NetworkDelays,
}

/// The policy to play.
#[derive(Clone)]
pub struct PolicyChoice {
    /// Its name.
    pub name: String,
    /// Builds it.
    pub factory: Arc<dyn WorkerSelectionPolicyFactory>,
    /// Builds what serves when it fails.
    pub fallback: Arc<dyn WorkerSelectionPolicyFactory>,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Played {
    /// The figures.
    pub result: PolicyResult,
    /// What became of each request, in trace order.
    pub records: Vec<Record>,
    /// Load of each row over time.
    pub series: LoadSeries,
    /// Rows that the fallback chose, because the policy had failed.
    pub fallback_choices: u64,
    /// The last failure of the policy.
    pub last_failure: Option<PolicyFailure>,
    /// Whether, with nothing in flight any more, nothing was booked or waiting, and the index had refused nothing.
    pub at_rest: bool,
}

/// Plays `trace` as it arrives on the fleet, with one policy choosing. The same arguments give the same result on every
/// machine. `progress` hears now and then how many requests have ended.
///
/// # Errors
/// A fleet that cannot be.
pub fn replay(
    trace: &Trace,
    settings: &ReplaySettings,
    policy: &PolicyChoice,
    progress: &mut dyn FnMut(usize),
) -> Result<Played, FleetError> {
    let parts = PolicyParts {
        config: Arc::clone(&settings.router),
        partition: PartitionId::aggregated(MODEL),
        factory: Arc::clone(&policy.factory),
        fallback: Arc::clone(&policy.fallback),
        clock: still_clock(),
    };
    let network = (settings.network, settings.router.seed);
    let outcome = Simulation::new(settings.fleet, network, parts, trace)?.run(progress);
    Ok(Played {
        result: PolicyResult::new(&policy.name, trace, settings.fleet.rows(), &outcome.records),
        records: outcome.records,
        series: outcome.series,
        fallback_choices: outcome.fallback_choices,
        last_failure: outcome.last_failure,
        at_rest: outcome.at_rest,
    })
}
