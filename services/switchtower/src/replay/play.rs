//! Plays the trace once per policy, on as many threads as there are processors. Each replay is alone with its own state,
//! so the order in which they end changes nothing.

use super::{ReplayArguments, progress::ProgressBar};
use crate::failure::Failure;
use std::{
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use switchtower_policies::Catalogue;
use switchtower_policy::KvRouterConfig;
use switchtower_simulation::{
    FleetError, FleetShape, NetworkDelays, Played, PolicyChoice, ReplaySettings, replay, trace::Trace,
};

/// The policies by their names.
pub(super) fn choose(
    arguments: &ReplayArguments,
    catalogue: &Catalogue,
) -> Result<Vec<PolicyChoice>, Failure> {
    let fallback_name = KvRouterConfig::default().fallback_policy;
    let fallback = catalogue.get(&fallback_name).map_err(Failure::configuration)?;
    let choice = |name: &String| {
        let factory = catalogue.get(name).map_err(Failure::configuration)?;
        Ok(PolicyChoice { name: name.clone(), factory, fallback: Arc::clone(&fallback) })
    };
    arguments.policies.iter().map(choice).collect()
}

/// The fleet and the router, checked.
pub(super) fn settings(arguments: &ReplayArguments) -> Result<ReplaySettings, Failure> {
    let fleet = FleetShape {
        workers: arguments.workers,
        ranks: arguments.ranks,
        blocks_per_worker: arguments.blocks_per_worker,
    };
    fleet.validate().map_err(Failure::configuration)?;
    let router = KvRouterConfig {
        seed: arguments.seed,
        queue_threshold: arguments.queue_threshold,
        ..KvRouterConfig::default()
    };
    router.validate().map_err(Failure::configuration)?;
    Ok(ReplaySettings { fleet, router: Arc::new(router), network: NetworkDelays::default() })
}

/// One result per policy, in their order.
pub(super) fn play(
    trace: &Trace,
    settings: &ReplaySettings,
    policies: &[PolicyChoice],
) -> Result<Vec<Played>, Failure> {
    let bar = ProgressBar::new(trace.requests.len() * policies.len());
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Played, FleetError>>>> =
        policies.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((policy, result)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            policies.get(at).zip(results.get(at))
        } {
            let mut ended = 0;
            let mut progress = |now: usize| {
                bar.add(now - ended);
                ended = now;
            };
            let played = replay(trace, settings, policy, &mut progress);
            *result.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(played);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(policies.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    bar.finish();
    let results = results.into_iter().map(|result| result.into_inner().ok().flatten());
    let missing = || Failure::start("a policy was not played");
    results.map(|played| played.ok_or_else(missing)?.map_err(Failure::configuration)).collect()
}

/// A policy that failed was helped out by the fallback, so its figures are not its own.
pub(super) fn warn_of_failures(played: &[Played]) {
    for Played { result, fallback_choices, last_failure, .. } in played {
        if let (1.., Some(failure)) = (*fallback_choices, last_failure) {
            eprintln!(
                "switchtower: {}: its fallback chose for {fallback_choices} of {} requests: {}",
                result.policy, result.requests, failure.message
            );
        }
    }
}
