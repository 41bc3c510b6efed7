//! `adaptive`: booked work plus uncached work, with a weight on the uncached work that follows the load. For fleets
//! whose load changes over the day, which is all of them. Built by the catalogue.

mod chosen;
mod ledger;

use crate::{cost_picker, signals};
use chosen::{Chosen, NotingPicker};
use ledger::Ledger;
use switchtower_policy::{
    CandidateColumns, Column, KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputs,
    WorkerScorer, WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError,
    WorkerSelectionPolicyFactory,
};

/// Tokens in front of the request, with those that it adds weighted by what they cost everybody.
///
/// With a row's booked prefill tokens v, their mean m over the rows, the prompt p, its uncached tokens on the row U = p −
/// effective overlap × block size (at least 0), and s, the mean U of the requests so far:
///
/// - cost = v + w × U + `balance_weight` × L, in tokens
/// - w = (`load_weight` × m + `prompt_weight` × p) ÷ s
/// - L: tokens of U that the row was given beyond the mean of the rows, each counting less with every request that
///   follows it (a factor e after `balance_memory` requests per row)
///
/// v + U would be this request's own wait. But the tokens that it computes delay all requests behind it as well, and
/// there are the more of those the longer the queues are: m ÷ s is the length of a mean queue in requests. An idle fleet
/// spreads over idle rows, a busy one holds on to its caches, and no number has to be tuned to block size, engine or
/// rate. The part with p keeps long cached prefixes together when nothing waits. L evens out in the long run what
/// the queues of the moment cannot show: it decides between rows that cost nearly the same.
///
/// Choices that are not booked (previews) count into s and L like others. A request with preferred taints pays no L: a
/// preferred row would be dear just because it is preferred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    /// Weight of the mean queue in w; 2 by default.
    pub load_weight: f64,
    /// Weight of the prompt in w; 0.7 by default.
    pub prompt_weight: f64,
    /// Weight of L; 0.05 by default, and 0 turns it off.
    pub balance_weight: f64,
    /// Requests per row after which L has forgotten all but 1/e of a request; at least 1, 20 by default.
    pub balance_memory: f64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self { load_weight: 2.0, prompt_weight: 0.7, balance_weight: 0.05, balance_memory: 20.0 }
    }
}

impl WorkerSelectionPolicyFactory for Adaptive {
    fn build(
        &self,
        config: &KvRouterConfig,
        worker_type: &'static str,
        partition: RoutingPartitionRef<'_>,
    ) -> WorkerSelectionPolicy {
        let chosen = Chosen::default();
        let scorer = AdaptiveScorer {
            parameters: *self,
            chosen: chosen.clone(),
            offers: Offers::default(),
            uncached: RunningMean::default(),
            ledger: Ledger::new(self.balance_memory),
        };
        let picker = NotingPicker { chosen, picker: cost_picker(config, worker_type, partition) };
        WorkerSelectionPolicy::new(config.clone(), worker_type, vec![Box::new(scorer)], Box::new(picker))
    }
}

struct AdaptiveScorer {
    parameters: Adaptive,
    /// Which of the last offers was taken.
    chosen: Chosen,
    /// The rows of the last request, kept until it is known which was taken; used again.
    offers: Offers,
    uncached: RunningMean,
    ledger: Ledger,
}

/// What each row would have to do for the request, in tokens.
#[derive(Default)]
struct Offers {
    active: Vec<f64>,
    uncached: Vec<f64>,
    /// What the row was given before, as the ledger remembers it.
    given: Vec<f64>,
}

/// The sums that all rows of one request are weighed with.
struct Weights {
    /// w in the formula.
    uncached: f64,
    /// Weight of L.
    balance: f64,
    /// Mean of what the rows were given.
    given: f64,
}

/// Mean over all requests at first, over the last 500 or so later.
#[derive(Default)]
struct RunningMean {
    samples: f64,
    mean: f64,
}

impl RunningMean {
    const SAMPLES_MAX: f64 = 500.0;

    fn add(&mut self, value: f64) {
        self.samples = (self.samples + 1.0).min(Self::SAMPLES_MAX);
        self.mean += (value - self.mean) / self.samples;
    }

    /// The mean, or `start` before the first sample; at least 1, to divide by.
    fn or(&self, start: f64) -> f64 {
        if self.samples > 0.0 { self.mean.max(1.0) } else { start.max(1.0) }
    }
}

impl AdaptiveScorer {
    /// Books the last request on the row that was picked for it.
    fn settle(&mut self) {
        if let Some((row, worker)) = self.chosen.take()
            && let Some(uncached) = self.offers.uncached.get(row)
        {
            self.uncached.add(*uncached);
            self.ledger.charge(worker, *uncached, self.offers.uncached.len());
        }
    }

    /// Notes every row's offer; returns what they are weighed with.
    fn collect(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        rows: &CandidateColumns<'_>,
    ) -> Result<Weights, WorkerSelectionPolicyError> {
        let (load, cache) = (signals::loads(rows)?, signals::caches(rows)?);
        let Offers { active, uncached, given } = &mut self.offers;
        refill(active, load.active_prefill_tokens.iter().map(|tokens| *tokens as f64));
        refill(uncached, cache.effective.iter().map(|blocks| uncached_tokens(context, *blocks)));
        let mut reader = self.ledger.reader();
        refill(given, rows.workers().iter().map(|worker| reader.given(*worker)));
        let count = rows.len().max(1) as f64;
        let (mean_active, mean_given) = (sum_of_integers(active) / count, given.iter().sum::<f64>() / count);
        let are_alike = match signals::multipliers(rows)? {
            Column::Same(_) => true,
            Column::Each(multipliers) => multipliers.windows(2).all(|pair| pair[0] == pair[1]),
        };
        Ok(Weights {
            uncached: self.uncached_weight(context, mean_active),
            balance: if are_alike { self.parameters.balance_weight } else { 0.0 },
            given: mean_given,
        })
    }

    /// The cost of every offer, before preferences.
    fn weigh(&self, weights: &Weights, costs: &mut [f64]) {
        let Offers { active, uncached, given } = &self.offers;
        for (((cost, active), uncached), given) in costs.iter_mut().zip(active).zip(uncached).zip(given) {
            let imbalance = weights.balance * (given - weights.given);
            *cost = active + weights.uncached * uncached + imbalance;
        }
    }

    fn uncached_weight(&self, context: &WorkerSelectionContext<'_>, mean_active: f64) -> f64 {
        let Adaptive { load_weight, prompt_weight, .. } = self.parameters;
        let prompt = context.prompt_tokens() as f64;
        (load_weight * mean_active + prompt_weight * prompt) / self.uncached.or(prompt)
    }
}

/// Tokens of this prompt that a row would have to compute which holds this many effective blocks of it.
#[inline(always)]
fn uncached_tokens(context: &WorkerSelectionContext<'_>, effective_blocks: f64) -> f64 {
    (context.prompt_tokens() as f64 - effective_blocks * f64::from(context.block_size())).max(0.0)
}

fn refill(column: &mut Vec<f64>, values: impl Iterator<Item = f64>) {
    column.clear();
    column.extend(values);
}

/// The sum of whole numbers, several at a time. It is exact, and so the same in any order, while it is below 2⁵³.
fn sum_of_integers(values: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (chunks, rest) = values.as_chunks();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip::<&[f64; 8]>(chunk) {
            *lane += value;
        }
    }
    lanes.iter().chain(rest).sum()
}

impl WorkerScorer for AdaptiveScorer {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::CACHE | WorkerInputs::LOAD | WorkerInputs::ROUTING
    }

    /// One row by itself is the mean of its rows.
    fn score(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        let active = signals::load(candidate)?.active_prefill_tokens() as f64;
        let uncached = uncached_tokens(context, signals::cache(candidate)?.effective());
        signals::preferred(candidate, active + self.uncached_weight(context, active) * uncached)
    }

    fn score_batch(
        &mut self,
        context: &WorkerSelectionContext<'_>,
        rows: &CandidateColumns<'_>,
        costs: &mut [f64],
    ) -> Result<(), WorkerSelectionPolicyError> {
        self.settle();
        let weights = self.collect(context, rows)?;
        self.weigh(&weights, costs);
        signals::multiply(costs, signals::multipliers(rows)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
