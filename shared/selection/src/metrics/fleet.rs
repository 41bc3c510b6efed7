//! Gauges of the fleet's state, set anew for each scrape, so that the series of a row that left go away (B133).

use crate::{PartitionLoads, registry::RegistryView};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use std::{collections::HashMap, sync::Arc};
use switchtower_kv::index::IndexStats;
use switchtower_scheduling::RowState;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Row {
    worker: u64,
    rank: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Partition {
    model: String,
    routing_group: String,
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    model: String,
    stage: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Model {
    model: String,
}

/// The fleet's gauges.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetMetrics {
    row_requests: Family<Row, Gauge>,
    row_prefill_tokens: Family<Row, Gauge>,
    row_blocks: Family<Row, Gauge>,
    reservations: Family<Model, Gauge>,
    waiting: Family<Partition, Gauge>,
    rows: Family<Partition, Gauge>,
    quarantined: Family<Partition, Gauge>,
    index_blocks: Family<Partition, Gauge>,
    index_bytes: Family<Partition, Gauge>,
    policy_failures: Family<Failure, Counter>,
    records_refused: Gauge,
    /// Policy failures that are counted already, by partition and kind.
    counted: Arc<Mutex<HashMap<Failure, u64>>>,
}

impl FleetMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let requests = "Requests booked on a row";
        registry.register("switchtower_row_active_requests", requests, self.row_requests.clone());
        let tokens = "Booked prompt tokens on a row that are not prefilled";
        registry.register("switchtower_row_active_prefill_tokens", tokens, self.row_prefill_tokens.clone());
        let blocks = "Distinct prompt blocks and output blocks booked on a row";
        registry.register("switchtower_row_active_blocks", blocks, self.row_blocks.clone());
        registry.register("switchtower_reservations", "Live reservations", self.reservations.clone());
        let mut add =
            |name, help, family: &Family<Partition, Gauge>| registry.register(name, help, family.clone());
        add("switchtower_waiting_requests", "Requests that wait for a row", &self.waiting);
        add("switchtower_rows", "Rows that serve a partition", &self.rows);
        add(
            "switchtower_policy_quarantined",
            "1 while the fallback serves in the policy's place",
            &self.quarantined,
        );
        add("switchtower_index_blocks", "Pairs of row and block in the prefix index", &self.index_blocks);
        add("switchtower_index_bytes", "Memory of the prefix index", &self.index_bytes);
        let failures = "Failures of policies, by kind";
        registry.register("switchtower_policy_failures", failures, self.policy_failures.clone());
        let refused = "Worker records that are refused now";
        registry.register("switchtower_records_refused", refused, self.records_refused.clone());
    }

    /// Shows `loads` and nothing of before.
    pub(crate) fn show(&self, view: &RegistryView, loads: &[PartitionLoads]) {
        self.clear();
        self.records_refused.set(saturating(view.refused.len()));
        for partition in loads {
            self.show_partition(partition);
            partition.rows.iter().for_each(|row| self.show_row(row));
        }
    }

    fn clear(&self) {
        for family in [&self.row_requests, &self.row_prefill_tokens, &self.row_blocks] {
            family.clear();
        }
        self.reservations.clear();
        for family in [&self.waiting, &self.rows, &self.quarantined, &self.index_blocks, &self.index_bytes] {
            family.clear();
        }
    }

    fn show_row(&self, state: &RowState) {
        let row = Row { worker: state.info.row.worker.0, rank: state.info.row.rank.0 };
        self.row_requests.get_or_create(&row).set(saturating(state.load.active_requests));
        self.row_prefill_tokens.get_or_create(&row).set(saturating(state.load.active_prefill_tokens));
        self.row_blocks.get_or_create(&row).set(saturating(state.load.active_blocks()));
    }

    fn show_partition(&self, loads: &PartitionLoads) {
        let id = &loads.partition;
        let (model, stage) = (id.model.to_string(), id.stage.label());
        let labels = Partition { model: model.clone(), routing_group: id.routing_group.to_string(), stage };
        self.reservations
            .get_or_create(&Model { model: model.clone() })
            .inc_by(saturating(loads.reservations));
        self.waiting.get_or_create(&labels).set(saturating(loads.waiting));
        self.rows.get_or_create(&labels).set(saturating(loads.rows.len()));
        self.quarantined.get_or_create(&labels).set(i64::from(loads.policy_health.quarantined));
        let IndexStats { pairs, bytes, .. } = loads.index;
        self.index_blocks.get_or_create(&labels).set(saturating(pairs));
        self.index_bytes.get_or_create(&labels).set(saturating(bytes));
        for (kind, total) in &loads.policy_health.failures {
            self.count_failures(Failure { model: model.clone(), stage, kind }, *total);
        }
    }

    /// The scheduler keeps totals; a counter takes what has come since the last scrape.
    fn count_failures(&self, failure: Failure, total: u64) {
        let mut counted = self.counted.lock();
        let before = counted.insert(failure.clone(), total).unwrap_or(0);
        self.policy_failures.get_or_create(&failure).inc_by(total.saturating_sub(before));
    }
}

fn saturating(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
