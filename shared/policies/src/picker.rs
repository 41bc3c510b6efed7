//! The pickers that every policy with a cost shares: the cheapest row, or a draw that favours cheap rows. They read
//! nothing but costs, and break ties evenly.

use crate::Generator;
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerInputView, WorkerPicker, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};

/// The policy that picks the row that `scorer` finds cheapest, by [`cost_picker`].
#[must_use]
pub fn cheapest_by(
    scorer: impl WorkerScorer,
    config: &KvRouterConfig,
    worker_type: &'static str,
    partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    let picker = cost_picker(config, worker_type, partition);
    WorkerSelectionPolicy::new(config.clone(), worker_type, vec![Box::new(scorer)], picker)
}

/// [`SoftmaxPicker`] if the configuration has a temperature above 0, [`LowestCostPicker`] otherwise.
#[must_use]
pub fn cost_picker(
    config: &KvRouterConfig,
    worker_type: &str,
    partition: RoutingPartitionRef<'_>,
) -> Box<dyn WorkerPicker> {
    let generator = Generator::for_partition(config, worker_type, partition);
    if config.router_temperature > 0.0 {
        Box::new(SoftmaxPicker::new(config.router_temperature, generator))
    } else {
        Box::new(LowestCostPicker::new(generator))
    }
}

/// Picks the row of lowest cost; rows that tie are equally likely.
#[derive(Clone, Debug)]
pub struct LowestCostPicker {
    generator: Generator,
}

impl LowestCostPicker {
    /// A picker that breaks ties with `generator`.
    #[must_use]
    pub const fn new(generator: Generator) -> Self {
        Self { generator }
    }
}

/// Costs that are looked at together before any of them is looked at alone.
const CHUNK: usize = 32;

impl WorkerPicker for LowestCostPicker {
    /// One pass: the n-th row that ties takes the place with probability 1/n, which leaves each with 1/n in the end. Chunks
    /// in which all rows cost more than the cheapest so far, which is nearly all of them, take one comparison per row.
    fn pick(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let mut cheapest = Cheapest { cost: f64::INFINITY, row: None, ties: 0 };
        let (chunks, rest) = input.costs().as_chunks::<CHUNK>();
        for (chunk, costs) in chunks.iter().enumerate() {
            if costs.iter().fold(false, |any, cost| any | (*cost <= cheapest.cost)) {
                cheapest.look_at(chunk * CHUNK, costs, &mut self.generator);
            }
        }
        cheapest.look_at(chunks.len() * CHUNK, rest, &mut self.generator);
        cheapest.row.ok_or_else(no_candidate)
    }
}

/// The cheapest row so far.
struct Cheapest {
    cost: f64,
    row: Option<usize>,
    /// Rows that cost the same, this one included.
    ties: usize,
}

impl Cheapest {
    /// Goes on with the rows from `first` on.
    fn look_at(&mut self, first: usize, costs: &[f64], generator: &mut Generator) {
        for (row, &cost) in (first..).zip(costs) {
            if cost < self.cost {
                *self = Self { cost, row: Some(row), ties: 1 };
            } else if cost == self.cost {
                self.ties += 1;
                if generator.below(self.ties) == 0 {
                    self.row = Some(row);
                }
            }
        }
    }
}

/// Draws a row with weight exp(−c / temperature), where c is the row's cost scaled so that the cheapest is 0 and the
/// dearest 1. Towards temperature 0 it is the cheapest row, towards infinity every row alike.
#[derive(Clone, Debug)]
pub struct SoftmaxPicker {
    temperature: f64,
    generator: Generator,
}

impl SoftmaxPicker {
    /// A picker of `temperature` above 0 that draws from `generator`.
    #[must_use]
    pub const fn new(temperature: f64, generator: Generator) -> Self {
        Self { temperature, generator }
    }
}

impl WorkerPicker for SoftmaxPicker {
    /// Two passes: the range of the costs, then a draw in which each row takes the place with its share of the weight
    /// so far. The cheapest row weighs 1, so there always is one.
    fn pick(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let costs = || input.costs().iter().copied();
        let scale = Scale::of(costs());
        let mut chosen = None;
        let mut total = 0.0;
        for (row, cost) in costs().enumerate() {
            let weight = (-scale.normalised(cost) / self.temperature).exp();
            total += weight;
            if self.generator.unit() * total < weight {
                chosen = Some(row);
            }
        }
        chosen.ok_or_else(no_candidate)
    }
}

/// Maps finite costs to 0..1.
struct Scale {
    lowest: f64,
    range: f64,
    /// 0.5 where the range itself would overflow, 1 otherwise.
    shrink: f64,
}

impl Scale {
    fn of(costs: impl Iterator<Item = f64>) -> Self {
        let bounds = (f64::INFINITY, f64::NEG_INFINITY);
        let (lowest, highest) = costs.fold(bounds, |(low, high), cost| (low.min(cost), high.max(cost)));
        let shrink = if (highest - lowest).is_finite() { 1.0 } else { 0.5 };
        Self { lowest: lowest * shrink, range: highest * shrink - lowest * shrink, shrink }
    }

    fn normalised(&self, cost: f64) -> f64 {
        if self.range > 0.0 { (cost * self.shrink - self.lowest) / self.range } else { 0.0 }
    }
}

/// The host never asks for a pick among no rows.
pub(crate) fn no_candidate() -> WorkerSelectionPolicyError {
    WorkerSelectionPolicyError::failed("no eligible worker")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{FixedCosts, picks_of};

    /// How often each of `costs` is picked in `draws` draws.
    fn share(costs: &[f64], temperature: f64, draws: usize) -> Vec<usize> {
        let config = KvRouterConfig { router_temperature: temperature, seed: 5, ..KvRouterConfig::default() };
        let partition = RoutingPartitionRef::new("model", "default");
        let policy = cheapest_by(FixedCosts(costs.to_vec()), &config, "aggregated", partition);
        let mut counts = vec![0; costs.len()];
        picks_of(policy, costs.len(), draws).for_each(|row| counts[row] += 1);
        counts
    }

    #[test]
    fn without_temperature_the_cheapest_row_wins_wherever_it_is() {
        assert_eq!(share(&[2.0, 1.0, 3.0], 0.0, 50), [0, 50, 0]);
        assert_eq!(share(&[-1e308, 1e308], 0.0, 50), [50, 0]);
    }

    #[test]
    fn ties_are_even_and_zero_ties_with_minus_zero() {
        let counts = share(&[7.0, 0.0, -0.0, 0.0], 0.0, 3_000);
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
    }

    #[test]
    fn softmax_draws_with_weights_of_the_scaled_costs() {
        // Scaled costs 0, 0.5 and 1 at temperature 0.5 weigh 1, e^-1 and e^-2: 66.5 %, 24.5 % and 9.0 %.
        let counts = share(&[100.0, 150.0, 200.0], 0.5, 10_000);
        for (count, expected) in counts.iter().zip([6_652_usize, 2_447, 900]) {
            assert!(count.abs_diff(expected) < 200, "{counts:?}");
        }
    }

    #[test]
    fn b81_extreme_temperatures_and_ranges_still_pick() {
        let even = |counts: Vec<usize>| counts.iter().all(|count| (850..1_150).contains(count));
        for tiny in [f64::MIN_POSITIVE, 1e-300] {
            assert_eq!(share(&[3.0, 1.0, 2.0], tiny, 100), [0, 100, 0]);
            assert_eq!(share(&[f64::MAX, f64::MIN, 0.0], tiny, 100), [0, 100, 0]);
            assert_eq!(share(&[5e-324, 0.0], tiny, 100), [0, 100]);
        }
        assert!(even(share(&[f64::MAX, f64::MIN, 0.0], 1e300, 3_000)));
        for temperature in [0.0, 1e-300, 1.0, 1e300] {
            assert!(even(share(&[0.0; 3], temperature, 3_000)), "{temperature}");
            assert!(even(share(&[f64::MAX; 3], temperature, 3_000)), "{temperature}");
        }
    }
}
