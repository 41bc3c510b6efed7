//! The fleet's state for each scrape: one snapshot, replaced at once, so that two scrapes at a time both see a whole table
//! and the series of a row that left go away (B133).

use crate::PartitionLoads;
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use std::{collections::BTreeMap, fmt, sync::Arc};
use switchtower_scheduling::RowState;

#[derive(Clone, Debug, EncodeLabelSet)]
struct Row {
    worker: u64,
    rank: u32,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct Partition {
    model: String,
    routing_group: String,
    stage: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct Failure {
    model: String,
    routing_group: String,
    stage: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct Model {
    model: String,
}

/// What the partitions said at one moment.
#[derive(Debug, Default)]
struct Shown {
    partitions: Vec<PartitionLoads>,
    records_refused: usize,
}

/// The fleet's metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetMetrics {
    shown: Arc<Mutex<Arc<Shown>>>,
    refreshing: Arc<tokio::sync::Mutex<()>>,
}

/// The right to say what is shown next.
pub(crate) struct Refreshing<'a> {
    shown: &'a Mutex<Arc<Shown>>,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl FleetMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Waits for its turn to find out what to show.
    pub(crate) async fn refreshing(&self) -> Refreshing<'_> {
        let turn = self.refreshing.lock().await;
        Refreshing { shown: &self.shown, _turn: turn }
    }
}

impl Refreshing<'_> {
    /// Shows `loads` and nothing of before.
    pub(crate) fn show(self, records_refused: usize, loads: &[PartitionLoads]) {
        *self.shown.lock() = Arc::new(Shown { partitions: loads.to_vec(), records_refused });
    }
}

impl Collector for FleetMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shown = Arc::clone(&self.shown.lock());
        let mut out = Output(encoder);
        out.rows(&shown)?;
        out.partitions(&shown)?;
        out.failures(&shown)
    }
}

/// Writes families of gauges and counters.
struct Output<'a>(DescriptorEncoder<'a>);

impl Output<'_> {
    fn family<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        series: impl Iterator<Item = (L, i64)>,
    ) -> Result<(), fmt::Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in series {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn rows(&mut self, shown: &Shown) -> Result<(), fmt::Error> {
        let mut column = |name, help, of: fn(&RowState) -> u64| {
            let rows = shown.partitions.iter().flat_map(|partition| &partition.rows);
            let series = rows.map(|state| {
                let row = state.info.row;
                (Row { worker: row.worker.0, rank: row.rank.0 }, saturating(of(state)))
            });
            self.family(name, help, series)
        };
        column("switchtower_row_active_requests", "Requests booked on a row", |row| {
            row.load.active_requests
        })?;
        column(
            "switchtower_row_active_prefill_tokens",
            "Booked prompt tokens on a row that are not prefilled",
            |row| row.load.active_prefill_tokens,
        )?;
        column(
            "switchtower_row_active_blocks",
            "Distinct prompt blocks and output blocks booked on a row",
            |row| row.load.active_blocks(),
        )
    }

    fn partitions(&mut self, shown: &Shown) -> Result<(), fmt::Error> {
        let mut column = |name, help, of: fn(&PartitionLoads) -> i64| {
            let series = shown.partitions.iter().map(|loads| (Partition::from(loads), of(loads)));
            self.family(name, help, series)
        };
        column("switchtower_waiting_requests", "Requests that wait for a row", |of| saturating(of.waiting))?;
        column("switchtower_rows", "Rows that serve a partition", |of| saturating(of.rows.len()))?;
        column(
            "switchtower_policy_quarantined",
            "1 while the fallback serves in the policy's place",
            |of| i64::from(of.policy_health.quarantined),
        )?;
        column("switchtower_index_blocks", "Pairs of row and block in the prefix index", |of| {
            saturating(of.index.pairs)
        })?;
        column("switchtower_index_bytes", "Memory of the prefix index", |of| saturating(of.index.bytes))?;
        self.reservations(shown)?;
        let help = "Worker records that are refused now";
        let refused =
            self.0.encode_descriptor("switchtower_records_refused", help, None, MetricType::Gauge)?;
        ConstGauge::new(saturating(shown.records_refused)).encode(refused)
    }

    fn reservations(&mut self, shown: &Shown) -> Result<(), fmt::Error> {
        let mut by_model = BTreeMap::<&str, usize>::new();
        for loads in &shown.partitions {
            *by_model.entry(&loads.partition.model).or_default() += loads.reservations;
        }
        let series = by_model.into_iter();
        let series = series.map(|(model, live)| (Model { model: model.to_owned() }, saturating(live)));
        self.family("switchtower_reservations", "Live reservations", series)
    }

    /// The schedulers keep the totals.
    fn failures(&mut self, shown: &Shown) -> Result<(), fmt::Error> {
        let (name, help) = ("switchtower_policy_failures", "Failures of policies, by kind");
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for loads in &shown.partitions {
            let Partition { model, routing_group, stage } = Partition::from(loads);
            for (kind, total) in &loads.policy_health.failures {
                let (model, routing_group) = (model.clone(), routing_group.clone());
                let labels = Failure { model, routing_group, stage, kind };
                ConstCounter::new(*total).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl From<&PartitionLoads> for Partition {
    fn from(loads: &PartitionLoads) -> Self {
        let id = &loads.partition;
        Self {
            model: id.model.to_string(),
            routing_group: id.routing_group.to_string(),
            stage: id.stage.label(),
        }
    }
}

fn saturating(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
