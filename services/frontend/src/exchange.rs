//! The account of one request, from its arrival to its end. Whoever holds it decides the outcome; dropping it counts that
//! outcome, exactly once, on every path: answered, refused, cancelled (nobody decided), panicked.

use crate::{
    metrics::{Metrics, ModelLabel, RequestLabels, UNKNOWN_MODEL, observe},
    refusal::label,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::OwnedSemaphorePermit;

/// One request's account. Holds its place among the requests in flight.
pub(crate) struct Exchange {
    metrics: Metrics,
    endpoint: &'static str,
    model: Option<Arc<str>>,
    started: Instant,
    outcome: Option<&'static str>,
    output_tokens: u64,
    _place: Option<OwnedSemaphorePermit>,
}

impl Exchange {
    /// A request has arrived at `endpoint`. Without a place it is about to be refused.
    pub(crate) fn begin(
        metrics: &Metrics,
        endpoint: &'static str,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        metrics.in_flight.inc();
        Self {
            metrics: metrics.clone(),
            endpoint,
            model: None,
            started: Instant::now(),
            outcome: None,
            output_tokens: 0,
            _place: place,
        }
    }

    /// The request's model is one of the configured ones.
    pub(crate) fn model_known(&mut self, model: Arc<str>) {
        self.model = Some(model);
    }

    /// A worker was chosen for the first time.
    pub(crate) fn booked(&self, prompt_tokens: u64, cached_tokens: u64) {
        let labels = ModelLabel { model: self.model() };
        self.metrics.prompt_tokens.get_or_create(&labels).inc_by(prompt_tokens);
        self.metrics.cached_tokens.get_or_create(&labels).inc_by(cached_tokens);
    }

    /// The answer's first byte is here.
    pub(crate) fn first_byte(&self) {
        observe(&self.metrics.first_byte, &self.model(), self.elapsed());
    }

    /// Tokens of output so far.
    pub(crate) fn output_tokens(&mut self, total: u64) {
        self.output_tokens = total;
    }

    /// The outcome is decided. The first word counts: what happens after the end changes nothing.
    pub(crate) fn settle(&mut self, outcome: &'static str) {
        self.outcome.get_or_insert(outcome);
    }

    /// Since the request's arrival.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn model(&self) -> Arc<str> {
        self.model.clone().unwrap_or_else(|| UNKNOWN_MODEL.into())
    }

    /// Nobody decided: the client went away, or we are unwinding.
    fn undecided() -> &'static str {
        if std::thread::panicking() { label::INTERNAL } else { label::CANCELLED }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let model = self.model();
        observe(&self.metrics.duration, &model, self.elapsed());
        if self.output_tokens > 0 {
            let labels = ModelLabel { model: Arc::clone(&model) };
            self.metrics.output_tokens.get_or_create(&labels).inc_by(self.output_tokens);
        }
        let outcome = self.outcome.unwrap_or_else(Self::undecided);
        let labels = RequestLabels { model, endpoint: self.endpoint, outcome };
        self.metrics.requests.get_or_create(&labels).inc();
        self.metrics.in_flight.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    fn count(metrics: &Metrics, outcome: &'static str) -> u64 {
        let labels = RequestLabels { model: "m".into(), endpoint: "chat", outcome };
        metrics.requests.get_or_create(&labels).get()
    }

    fn begin(metrics: &Metrics) -> Exchange {
        let mut exchange = Exchange::begin(metrics, "chat", None);
        exchange.model_known("m".into());
        exchange
    }

    #[test]
    fn every_end_counts_once_and_the_first_word_counts() {
        let metrics = Metrics::register(&mut Registry::default());
        let mut exchange = begin(&metrics);
        assert_eq!(metrics.in_flight.get(), 1);
        exchange.settle("ok");
        exchange.settle("internal");
        drop(exchange);
        drop(begin(&metrics));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _exchange = begin(&metrics);
            panic!("as a handler might");
        }));
        assert!(panicked.is_err());
        assert_eq!(["ok", "cancelled", "internal"].map(|outcome| count(&metrics, outcome)), [1, 1, 1]);
        assert_eq!(metrics.in_flight.get(), 0);
    }

    #[test]
    fn b132_a_model_that_is_not_configured_is_no_label() {
        let metrics = Metrics::register(&mut Registry::default());
        drop(Exchange::begin(&metrics, "chat", None));
        let labels = RequestLabels { model: UNKNOWN_MODEL.into(), endpoint: "chat", outcome: "cancelled" };
        assert_eq!(metrics.requests.get_or_create(&labels).get(), 1);
    }
}
