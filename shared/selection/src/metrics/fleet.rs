//! The fleet's state for each scrape: one snapshot, replaced at once, so that two scrapes at a time both see a whole table
//! and the series of a row that left go away (B133).

use crate::{ClusterHealth, PartitionLoads, RefusedRecord, Reported};
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};
use switchtower_cluster::PortHealth;
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
struct Refused {
    reason: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct Port {
    port: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct Model {
    model: String,
}

/// What the partitions, the registry and the connections said at one moment.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    partitions: Vec<PartitionLoads>,
    /// By kind.
    refused: BTreeMap<&'static str, usize>,
    ports: Vec<(&'static str, PortHealth)>,
}

impl Shown {
    pub(crate) fn new(
        partitions: Vec<PartitionLoads>,
        records: &[RefusedRecord],
        health: ClusterHealth,
    ) -> Self {
        let mut refused: BTreeMap<_, _> = RefusedRecord::KINDS.into_iter().map(|kind| (kind, 0)).collect();
        for record in records {
            *refused.entry(record.kind).or_default() += 1;
        }
        Self { partitions, refused, ports: vec![("discovery", health.discovery), ("bus", health.bus)] }
    }
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
    /// Shows this and nothing of before.
    pub(crate) fn show(self, shown: Shown) {
        *self.shown.lock() = Arc::new(shown);
    }
}

impl Collector for FleetMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shown = Arc::clone(&self.shown.lock());
        let mut out = Output(encoder);
        out.rows(&shown)?;
        out.reports(&shown)?;
        out.partitions(&shown)?;
        out.ports(&shown)?;
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

    /// A row without a report that counts has no age.
    fn reports(&mut self, shown: &Shown) -> Result<(), fmt::Error> {
        let rows = shown.partitions.iter().flat_map(PartitionLoads::load_rows);
        let series = rows.filter_map(|row| match row.report {
            Reported::Known(report) => {
                Some((Row { worker: row.worker_id.0, rank: row.rank.0 }, saturating(report.age_ms)))
            }
            Reported::Unknown => None,
        });
        self.family("switchtower_row_report_age_ms", "Age of a row's last load report", series)?;
        let unknown = |loads: &PartitionLoads| {
            let unknown = loads.reports.iter().filter(|report| **report == Reported::Unknown);
            saturating(unknown.count())
        };
        let series = shown.partitions.iter().map(|loads| (Partition::from(loads), unknown(loads)));
        self.family("switchtower_rows_unreported", "Rows whose own load is unknown", series)
    }

    fn ports(&mut self, shown: &Shown) -> Result<(), fmt::Error> {
        let mut column = |name, help, of: fn(&PortHealth) -> i64| {
            let ports = shown.ports.iter();
            self.family(name, help, ports.map(|(port, health)| (Port { port }, of(health))))
        };
        column("switchtower_port_connected", "1 while the connection to the cluster is there", |port| {
            i64::from(port.connected)
        })?;
        let help = "How long the connection has been lost, and what is known of the cluster has not changed";
        column("switchtower_port_stale_ms", help, |port| {
            let age = port.age.filter(|_| !port.connected);
            saturating(age.as_ref().map_or(0, Duration::as_millis))
        })?;
        let (name, help) = ("switchtower_port_reconnects", "Connections that were made again");
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (port, health) in &shown.ports {
            ConstCounter::new(health.reconnects).encode(family.encode_family(&Port { port })?)?;
        }
        Ok(())
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
        let refused = shown.refused.iter();
        let series = refused.map(|(reason, records)| (Refused { reason }, saturating(*records)));
        self.family("switchtower_records_refused", "Records that are refused now, by reason", series)
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
