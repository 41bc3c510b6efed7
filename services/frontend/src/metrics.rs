//! The front end's own metrics. Labels have bounded values only: models that are configured, endpoints and outcomes that
//! are listed in code (field report B132). Written by `exchange` and `dispatch`, read at `/metrics`.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use std::{sync::Arc, time::Duration};

/// The model label before a request's model is known, and of requests for models that there are not.
pub(crate) const UNKNOWN_MODEL: &str = "unknown";

/// Upper bounds in seconds: first bytes come after milliseconds to minutes.
const FIRST_BYTE_S: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Upper bounds in seconds: whole answers take up to many minutes.
const DURATION_S: [f64; 13] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0];

/// Which model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ModelLabel {
    pub(crate) model: Arc<str>,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) model: Arc<str>,
    pub(crate) endpoint: &'static str,
    pub(crate) outcome: &'static str,
}

/// Why a request was sent to another worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RetryLabels {
    pub(crate) reason: &'static str,
}

type Histograms = Family<ModelLabel, Histogram, fn() -> Histogram>;

/// All of them.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) prompt_tokens: Family<ModelLabel, Counter>,
    pub(crate) cached_tokens: Family<ModelLabel, Counter>,
    pub(crate) output_tokens: Family<ModelLabel, Counter>,
    pub(crate) first_byte: Histograms,
    pub(crate) duration: Histograms,
    pub(crate) in_flight: Gauge,
    pub(crate) retries: Family<RetryLabels, Counter>,
}

impl Metrics {
    /// New metrics, registered.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            prompt_tokens: Family::default(),
            cached_tokens: Family::default(),
            output_tokens: Family::default(),
            first_byte: Family::new_with_constructor(|| Histogram::new(FIRST_BYTE_S)),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_S)),
            in_flight: Gauge::default(),
            retries: Family::default(),
        };
        metrics.clone().enter(registry);
        metrics
    }

    // The registry appends `_total` to counters and the unit to what has one.
    fn enter(self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("switchtower");
        registry.register("requests", "Requests that ended, by how", self.requests);
        registry.register("prompt_tokens", "Prompt tokens of requests that got a worker", self.prompt_tokens);
        registry.register(
            "cached_tokens",
            "Prompt tokens that the chosen worker was believed to have cached",
            self.cached_tokens,
        );
        registry.register("output_tokens", "Tokens that workers answered with", self.output_tokens);
        registry.register_with_unit(
            "time_to_first_byte",
            "From a request's arrival to the first byte of its answer",
            Unit::Seconds,
            self.first_byte,
        );
        let help = "From a request's arrival to its end";
        registry.register_with_unit("request_duration", help, Unit::Seconds, self.duration);
        registry.register("requests_in_flight", "Requests that have not ended", self.in_flight);
        registry.register("retries", "Requests sent to another worker, by why", self.retries);
    }

    /// Counts one retry.
    pub(crate) fn retried(&self, reason: &'static str) {
        self.retries.get_or_create(&RetryLabels { reason }).inc();
    }
}

/// A duration for a histogram. `Instant` differences saturate at zero, so no clock can make one negative (B88).
pub(crate) fn observe(histograms: &Histograms, model: &Arc<str>, elapsed: Duration) {
    histograms.get_or_create(&ModelLabel { model: Arc::clone(model) }).observe(elapsed.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn the_names_are_the_documented_ones() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let model: Arc<str> = "m".into();
        let labels = ModelLabel { model: Arc::clone(&model) };
        metrics
            .requests
            .get_or_create(&RequestLabels { model: Arc::clone(&model), endpoint: "chat", outcome: "ok" })
            .inc();
        metrics.prompt_tokens.get_or_create(&labels).inc_by(5);
        metrics.retried("connect");
        observe(&metrics.first_byte, &model, Duration::from_millis(1));
        observe(&metrics.duration, &model, Duration::ZERO);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for sample in [
            "switchtower_requests_total{model=\"m\",endpoint=\"chat\",outcome=\"ok\"} 1",
            "switchtower_prompt_tokens_total{model=\"m\"} 5",
            "switchtower_retries_total{reason=\"connect\"} 1",
            "switchtower_time_to_first_byte_seconds_count{model=\"m\"} 1",
            "switchtower_request_duration_seconds_count{model=\"m\"} 1",
            "switchtower_requests_in_flight 0",
        ] {
            assert!(text.contains(sample), "{sample} in {text}");
        }
    }
}
