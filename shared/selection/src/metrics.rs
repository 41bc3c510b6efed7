//! What the selection service counts, in Prometheus' terms. Label sets are bounded: rows and partitions come from the
//! registry and leave with it, counters name only so many models, everything else is from small fixed sets.

mod fleet;

pub(crate) use fleet::{FleetMetrics, Shown};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use std::{collections::HashSet, sync::Arc};
use switchtower_ids::PartitionId;
use switchtower_kv::index::RefusalReason;
use switchtower_scheduling::{ChosenBy, Rejection, Selection};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// What became of KV events.
#[derive(Clone, Debug, Default)]
pub(crate) struct IngestMetrics {
    applied: Counter,
    gaps: Counter,
    dropped: Family<Reason, Counter>,
    refused: Family<Reason, Counter>,
    repairs: Family<Reason, Counter>,
}

impl IngestMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let mut add =
            |name, help, family: &Family<Reason, Counter>| registry.register(name, help, family.clone());
        add("switchtower_kv_events_dropped", "KV events that were not offered to the index", &self.dropped);
        add("switchtower_kv_events_refused", "KV events that the index refused", &self.refused);
        add("switchtower_kv_repairs", "Requests for parts of KV event logs, by answer", &self.repairs);
        let applied = "KV events offered to the index, in order";
        registry.register("switchtower_kv_events_applied", applied, self.applied.clone());
        registry.register("switchtower_kv_gaps", "Gaps seen in KV event logs", self.gaps.clone());
    }

    pub(crate) fn applied(&self, events: usize) {
        self.applied.inc_by(events as u64);
    }

    pub(crate) fn gap(&self) {
        self.gaps.inc();
    }

    pub(crate) fn dropped(&self, reason: &'static str, events: usize) {
        self.dropped.get_or_create(&Reason { reason }).inc_by(events as u64);
    }

    pub(crate) fn refused(&self, reason: RefusalReason) {
        self.refused.get_or_create(&Reason { reason: reason.label() }).inc();
    }

    /// Counts the end of a repair: answered with `events` or a `snapshot`, or `unanswered`.
    pub(crate) fn repair(&self, reason: &'static str) {
        self.repairs.get_or_create(&Reason { reason }).inc();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Chosen {
    model: String,
    stage: &'static str,
    chosen_by: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejected {
    model: String,
    outcome: &'static str,
}

/// Counters stay when a model leaves, so workers could make up any number of them: models beyond this many share a label.
const MODELS_MAX: usize = 1_000;

/// What became of requests for a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecisionMetrics {
    selections: Family<Chosen, Counter>,
    rejections: Family<Rejected, Counter>,
    models: Arc<Mutex<HashSet<Arc<str>>>>,
    totals: Arc<Mutex<SelectionTotals>>,
}

/// What was chosen since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelectionTotals {
    /// Requests that got a worker.
    pub selections: u64,
    /// Requests that got none.
    pub rejections: u64,
    /// Prompt tokens of the requests that got a worker.
    pub prompt_tokens: u64,
    /// Those of them that their workers were believed to have cached.
    pub cached_tokens: u64,
}

impl DecisionMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Workers chosen and booked, by the policy or a fallback and why";
        registry.register("switchtower_selections", help, self.selections.clone());
        registry.register(
            "switchtower_rejections",
            "Requests without a worker, by outcome",
            self.rejections.clone(),
        );
    }

    /// Counts one decision. The model of a partition that does not exist is not a label: it may be anything.
    pub(crate) fn count(&self, partition: Option<&PartitionId>, decision: &Result<Selection, Rejection>) {
        self.totals.lock().add(decision);
        let model = partition.map_or_else(|| "unknown".to_owned(), |id| self.label_of(&id.model));
        match decision {
            Ok(selection) => {
                let stage = partition.map_or("unknown", |id| id.stage.label());
                let chosen_by = match selection.chosen_by {
                    ChosenBy::Policy => "policy",
                    ChosenBy::Fallback(reason) => reason,
                };
                self.selections.get_or_create(&Chosen { model, stage, chosen_by }).inc();
            }
            Err(rejection) => {
                let outcome = rejection.outcome().row().label;
                self.rejections.get_or_create(&Rejected { model, outcome }).inc();
            }
        }
    }
}

impl DecisionMetrics {
    fn label_of(&self, model: &Arc<str>) -> String {
        let mut models = self.models.lock();
        let named = models.contains(model) || models.len() < MODELS_MAX && models.insert(Arc::clone(model));
        if named { model.to_string() } else { "other".to_owned() }
    }

    pub(crate) fn totals(&self) -> SelectionTotals {
        *self.totals.lock()
    }
}

impl SelectionTotals {
    fn add(&mut self, decision: &Result<Selection, Rejection>) {
        match decision {
            Ok(selection) => {
                self.selections += 1;
                self.prompt_tokens = self.prompt_tokens.saturating_add(selection.prompt_tokens);
                self.cached_tokens = self.cached_tokens.saturating_add(selection.cached_tokens);
            }
            Err(_) => self.rejections += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b132_models_beyond_a_limit_share_a_label() {
        let metrics = DecisionMetrics::default();
        for number in 0..2 * MODELS_MAX {
            let id = PartitionId::aggregated(&format!("made-up-{number}"));
            metrics.count(Some(&id), &Err(Rejection::Cancelled));
        }
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series = text.lines().filter(|line| line.starts_with("switchtower_rejections_total"));
        assert_eq!(series.count(), MODELS_MAX + 1);
        assert!(text.contains(r#"{model="other",outcome="cancelled"} 1000"#), "{text}");
    }
}
