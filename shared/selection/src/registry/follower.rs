//! The task that owns the registry: hears discovery and the bus, applies, repairs and publishes.

use super::{
    PartitionFactory, PartitionView, RegistryView,
    asked::{Question, index_rows},
    feed::{FeedEvent, RecordFeed},
    fleet::{Fleet, REASON_CHARS_MAX, Wanted},
    ingest::Ingest,
    latest::LatestReports,
    partitions::{PartitionRows, forget_empty},
    pull::{PullLimits, pull},
    repair::{Repair, RepairAnswer},
    reports::ReportOrder,
};
use crate::{
    metrics::IngestMetrics,
    wire::{self, LoadReport},
};
use futures::FutureExt;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
};
use switchtower_cluster::{EventBus, Message, Subscription};
use switchtower_ids::{PartitionId, Row, WorkerId};
use switchtower_kv::event::EventBatch;
use switchtower_runtime::CancellationToken;
use switchtower_scheduling::RowReport;
use tokio::sync::{mpsc, watch};

/// What the follower hears.
pub(crate) struct Subscriptions {
    pub(crate) records: RecordFeed,
    pub(crate) kv_events: Subscription,
    pub(crate) loads: Subscription,
}

/// Where the follower brings what it knows, and who asks it.
pub(crate) struct Outlets {
    pub(crate) metrics: IngestMetrics,
    pub(crate) view: watch::Sender<RegistryView>,
    pub(crate) latest: LatestReports,
    pub(crate) questions: mpsc::Receiver<Question>,
}

/// Why the follower ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[error("{0} ended: the connection to the cluster is gone for good; restart the router")]
pub(crate) struct ConnectionGone(&'static str);

/// An answer to a repair, on its way back.
type Repaired = (Repair, Option<RepairAnswer>);

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
    latest: LatestReports,
    questions: mpsc::Receiver<Question>,
    repairs_under_way: usize,
    pull_limits: PullLimits,
    repaired: mpsc::Sender<Repaired>,
    repaired_queue: mpsc::Receiver<Repaired>,
}

impl Follower {
    pub(crate) fn new(factory: PartitionFactory, bus: Arc<dyn EventBus>, outlets: Outlets) -> Self {
        let Outlets { metrics, view, latest, questions } = outlets;
        let pull_limits = PullLimits::new(factory.options.repair_deadline);
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
            latest,
            questions,
            repairs_under_way: 0,
            pull_limits,
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
                    self.look_whether_caught_up();
                }
                Some(question) = self.questions.recv() => {
                    drop(question.send(index_rows(&self.partitions, &self.ingest)));
                }
                _ = ticks.tick() => {
                    self.has_complained = false;
                    self.ingest.tick();
                    self.look_whether_caught_up();
                }
            }
            self.start_repairs();
        }
    }

    /// Applies a change and all that wait behind it, then reconciles once.
    fn records_changed(&mut self, event: FeedEvent, records: &mut RecordFeed) {
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
                self.workers.insert(info.row.worker, id.clone());
                rows.insert(info.row);
                if existing.has_events(info.row) {
                    self.ingest.follow(info.row, info.incarnation, info.slot, &existing.partition.index);
                }
            }
        }
        let has_events = |row: Row| {
            let partition = self.workers.get(&row.worker).and_then(|id| self.partitions.get(id));
            partition.is_some_and(|existing| existing.has_events(row))
        };
        self.ingest.retain(|row| rows.contains(&row) && has_events(row));
        self.latest.retain(|row| rows.contains(&row));
        self.reports.retain(|worker| self.workers.contains_key(&worker));
    }

    fn publish(&self, wanted: Wanted) {
        let known: HashSet<_> = self.view.borrow().refused.iter().cloned().collect();
        for refused in wanted.refused.iter().filter(|refused| !known.contains(refused)) {
            tracing::warn!(key = refused.key, reason = refused.reason, "a record is refused");
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
        let caught_up = self.view.borrow().caught_up || self.has_caught_up();
        self.view.send_replace(RegistryView {
            synced: self.fleet.is_synced(),
            caught_up,
            partitions: partitions.collect(),
            workers: wanted.workers,
            refused: wanted.refused,
        });
    }

    /// Whether all records are known, and every row's log as far as it is to be had.
    fn has_caught_up(&self) -> bool {
        let mut rows = self.partitions.values().flat_map(|existing| &existing.rows);
        let waits = |row| self.ingest.standing(row).is_some_and(|standing| standing.awaits_whole_log);
        self.fleet.is_synced() && rows.all(|info| !waits(info.row))
    }

    fn look_whether_caught_up(&self) {
        if !self.view.borrow().caught_up && self.has_caught_up() {
            self.view.send_modify(|view| view.caught_up = true);
        }
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
        self.metrics.dropped(error.label(), 1);
        if !std::mem::replace(&mut self.has_complained, true) {
            let error: String = error.to_string().chars().take(REASON_CHARS_MAX).collect();
            tracing::warn!(subject = message.subject, error, "a message is refused");
        }
    }

    fn take_report(&mut self, report: &LoadReport) {
        let partition = self.workers.get(&report.worker_id).and_then(|id| self.partitions.get(id));
        let Some(existing) = partition else { return };
        let is_newest = self.reports.is_newest(report.worker_id, report.incarnation, report.measured_at_ms);
        for load in &report.ranks {
            let row = Row { worker: report.worker_id, rank: load.rank };
            // What a worker says of ranks that it has not announced, or of another life, goes no further.
            let is_known = match existing.has_events(row) {
                true => self.ingest.expect(row, report.incarnation, load.kv_sequence),
                false => existing.life_without_events(row) == Some(report.incarnation),
            };
            if is_known && is_newest {
                self.latest.note(row, report.incarnation, load);
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
            let limits = self.pull_limits.clone();
            self.factory.tasks.spawn_until_shutdown(format!("kv repair {}", repair.row), async move {
                // Whatever an adapter does, the repair ends: its place and its row must not be lost.
                let answer = AssertUnwindSafe(pull(&*bus, repair, limits)).catch_unwind().await;
                let answer = answer.unwrap_or(None);
                // The channel has room for every repair under way; only a stopped follower does not take it.
                drop(back.send((repair, answer)).await);
            });
        }
    }
}
