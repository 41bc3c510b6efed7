//! The task that owns the registry: hears discovery and the bus, applies, repairs and publishes.

use super::{
    PartitionFactory, PartitionView, RegistryView,
    fleet::{Fleet, REASON_CHARS_MAX, Wanted},
    ingest::Ingest,
    partitions::{PartitionRows, forget_empty},
    repair::Repair,
    reports::ReportOrder,
};
use crate::{
    metrics::IngestMetrics,
    records::RANKS_MAX,
    wire::{self, LoadReport, RangeReply, RangeRequest},
};
use futures::FutureExt;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
};
use switchtower_cluster::{EventBus, Message, Subscription, Watch, WatchEvent};
use switchtower_ids::{PartitionId, Row, WorkerId};
use switchtower_kv::event::{EventBatch, RangeAnswer};
use switchtower_runtime::CancellationToken;
use switchtower_scheduling::RowReport;
use tokio::sync::{mpsc, watch};

/// What the follower hears.
pub(crate) struct Subscriptions {
    pub(crate) records: Watch,
    pub(crate) kv_events: Subscription,
    pub(crate) loads: Subscription,
}

/// Why the follower ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[error("{0} ended: the connection to the cluster is gone for good; restart the router")]
pub(crate) struct ConnectionGone(&'static str);

/// An answer to a repair, on its way back.
type Repaired = (Repair, Option<RangeAnswer>);

/// The registry's task.
pub(crate) struct Follower {
    factory: PartitionFactory,
    bus: Arc<dyn EventBus>,
    fleet: Fleet,
    partitions: BTreeMap<PartitionId, PartitionRows>,
    workers: HashMap<WorkerId, PartitionId>,
    reports: ReportOrder,
    /// Rounds of reconciling so far.
    rounds: u64,
    ingest: Ingest,
    metrics: IngestMetrics,
    /// Whether a malformed message was logged since the last tick.
    has_complained: bool,
    view: watch::Sender<RegistryView>,
    repairs_under_way: usize,
    repaired: mpsc::Sender<Repaired>,
    repaired_queue: mpsc::Receiver<Repaired>,
}

impl Follower {
    pub(crate) fn new(
        factory: PartitionFactory,
        bus: Arc<dyn EventBus>,
        metrics: IngestMetrics,
        view: watch::Sender<RegistryView>,
    ) -> Self {
        let (repaired, repaired_queue) = mpsc::channel(factory.options.repairs_max.max(1));
        Self {
            factory,
            bus,
            fleet: Fleet::default(),
            partitions: BTreeMap::new(),
            workers: HashMap::new(),
            reports: ReportOrder::default(),
            rounds: 0,
            ingest: Ingest::new(metrics.clone()),
            metrics,
            has_complained: false,
            view,
            repairs_under_way: 0,
            repaired,
            repaired_queue,
        }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(
        mut self,
        mut from: Subscriptions,
        stop: CancellationToken,
    ) -> Result<(), ConnectionGone> {
        let mut ticks = tokio::time::interval(self.factory.options.tick);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                event = from.records.next() => {
                    let event = event.ok_or(ConnectionGone("the watch on workers"))?;
                    self.records_changed(event, &mut from.records);
                }
                message = from.kv_events.next() => {
                    self.kv_events(&message.ok_or(ConnectionGone("the subscription to KV events"))?);
                }
                message = from.loads.next() => {
                    self.loads(&message.ok_or(ConnectionGone("the subscription to loads"))?);
                }
                Some((repair, answer)) = self.repaired_queue.recv() => {
                    self.repairs_under_way -= 1;
                    self.ingest.repaired(repair, answer);
                }
                _ = ticks.tick() => {
                    self.has_complained = false;
                    self.ingest.tick();
                }
            }
            self.start_repairs();
        }
    }

    /// Applies a change and all that wait behind it, then reconciles once.
    fn records_changed(&mut self, event: WatchEvent, records: &mut Watch) {
        self.fleet.apply(event);
        while let Some(event) = records.try_next() {
            self.fleet.apply(event);
        }
        let wanted = self.fleet.wanted();
        self.reconcile(&wanted);
        self.publish(wanted);
    }

    fn reconcile(&mut self, wanted: &Wanted) {
        self.rounds += 1;
        for (id, partition) in &wanted.partitions {
            // Rows keep their partition's name, but another block size means other hashes: a new index.
            if self.partitions.get(id).is_none_or(|existing| !existing.fits(partition)) {
                let made = self.factory.make(id, partition.block_size);
                if let Some(mut replaced) = self.partitions.insert(id.clone(), made) {
                    // Its reservations live on. Whoever waits there has nowhere to go, and must hear of it.
                    replaced.update(&[], self.rounds);
                }
            }
        }
        for (id, existing) in &mut self.partitions {
            let rows = wanted.partitions.get(id).map_or(&[][..], |partition| &partition.rows);
            existing.update(rows, self.rounds);
        }
        forget_empty(&mut self.partitions);
        self.follow_rows();
    }

    fn follow_rows(&mut self) {
        let mut rows = BTreeSet::<Row>::new();
        self.workers.clear();
        for (id, existing) in &self.partitions {
            for info in &existing.rows {
                self.ingest.follow(info.row, info.incarnation, info.slot, &existing.partition.index);
                self.workers.insert(info.row.worker, id.clone());
                rows.insert(info.row);
            }
        }
        self.ingest.retain(|row| rows.contains(&row));
        self.reports.retain(|worker| self.workers.contains_key(&worker));
    }

    fn publish(&self, wanted: Wanted) {
        let known: HashSet<_> = self.view.borrow().refused.iter().cloned().collect();
        for refused in wanted.refused.iter().filter(|refused| !known.contains(refused)) {
            tracing::warn!(key = refused.key, reason = refused.reason, "a worker's record is refused");
        }
        let partitions = self.partitions.iter().map(|(id, existing)| {
            let workers: BTreeSet<WorkerId> = existing.rows.iter().map(|info| info.row.worker).collect();
            let view = PartitionView {
                partition: Arc::clone(&existing.partition),
                workers: workers.len(),
                rows: existing.rows.len(),
                open_rows: existing.rows.iter().filter(|info| !info.draining).count(),
            };
            (id.clone(), view)
        });
        self.view.send_replace(RegistryView {
            synced: self.fleet.is_synced(),
            partitions: partitions.collect(),
            refused: wanted.refused,
        });
    }

    fn kv_events(&mut self, message: &Message) {
        match wire::decode::<EventBatch>(&message.payload) {
            Ok(batch) => self.ingest.take_batch(batch),
            Err(error) => self.malformed(message, &error),
        }
    }

    fn loads(&mut self, message: &Message) {
        match wire::decode::<LoadReport>(&message.payload) {
            Ok(report) => self.take_report(&report),
            Err(error) => self.malformed(message, &error),
        }
    }

    /// All are counted; the log gets one a tick, and no more of it than says what is wrong.
    fn malformed(&mut self, message: &Message, error: &wire::WireError) {
        self.metrics.dropped("malformed", 1);
        if !std::mem::replace(&mut self.has_complained, true) {
            let error: String = error.to_string().chars().take(REASON_CHARS_MAX).collect();
            tracing::warn!(subject = message.subject, error, "a message is refused");
        }
    }

    fn take_report(&mut self, report: &LoadReport) {
        let partition = self.workers.get(&report.worker_id).and_then(|id| self.partitions.get(id));
        let Some(existing) = partition else { return };
        let is_newest = self.reports.is_newest(report.worker_id, report.incarnation, report.measured_at_ms);
        for load in report.ranks.iter().take(RANKS_MAX as usize) {
            let row = Row { worker: report.worker_id, rank: load.rank };
            // What a worker says of ranks that it has not announced, or of another life, goes no further.
            if self.ingest.expect(row, report.incarnation, load.kv_sequence) && is_newest {
                let blocks = RowReport { blocks_used: load.blocks_used, blocks_total: load.blocks_total };
                existing.partition.scheduler.report(row, report.incarnation, blocks);
            }
        }
    }

    fn start_repairs(&mut self) {
        let room = self.factory.options.repairs_max.saturating_sub(self.repairs_under_way);
        for repair in self.ingest.due(room) {
            self.repairs_under_way += 1;
            let (bus, back) = (Arc::clone(&self.bus), self.repaired.clone());
            let deadline = self.factory.options.repair_deadline;
            self.factory.tasks.spawn_until_shutdown(format!("kv repair {}", repair.row), async move {
                // Whatever an adapter does, the repair ends: its place and its row must not be lost.
                let answer = AssertUnwindSafe(ask(&*bus, repair, deadline)).catch_unwind().await;
                let answer = answer.unwrap_or(None);
                // The channel has room for every repair under way; only a stopped follower does not take it.
                drop(back.send((repair, answer)).await);
            });
        }
    }
}

async fn ask(bus: &dyn EventBus, repair: Repair, deadline: std::time::Duration) -> Option<RangeAnswer> {
    let subject = wire::range_subject(repair.row.worker, repair.incarnation);
    let question = wire::encode(&RangeRequest { rank: repair.row.rank, from: repair.from }).ok()?;
    let answer = bus.request(&subject, question, deadline).await;
    let answer = answer
        .inspect_err(|error| tracing::debug!(row = %repair.row, %error, "no answer to a repair"))
        .ok()?;
    match wire::decode::<RangeReply>(&answer) {
        Ok(RangeReply::Range(range)) => Some(range),
        Ok(RangeReply::NoSuchRank) => None,
        Err(error) => {
            tracing::warn!(row = %repair.row, %error, "the answer to a repair is refused");
            None
        }
    }
}
