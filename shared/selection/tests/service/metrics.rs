//! What a scrape shows: whole tables, true totals, and nothing of who has left.

use crate::fleet::{Fleet, record, request};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use switchtower_cluster::DistributedRuntime;
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerScorer, WorkerSelectionContext,
    WorkerSelectionPolicy, WorkerSelectionPolicyError,
};
use switchtower_selection::{SelectionServiceBuilder, records::WorkerRecord};

fn registry(fleet: &Fleet) -> Registry {
    let mut registry = Registry::default();
    fleet.handle.register_metrics(&mut registry);
    registry
}

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn series(text: &str, name: &str) -> usize {
    text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b133_scrapes_at_one_time_all_see_whole_tables() {
    let fleet = Arc::new(Fleet::start(KvRouterConfig::default()).await);
    let _lease = fleet.join(WorkerRecord { ranks: 200, ..record(1, 10) }).await;
    let registry = Arc::new(registry(&fleet));
    fleet.handle.refresh_metrics().await;
    let tasks = fleet.runtime.tasks().child("scrapers");
    let (sender, mut torn) = tokio::sync::mpsc::channel(100);
    for _ in 0..4 {
        let (fleet, registry, sender) = (Arc::clone(&fleet), Arc::clone(&registry), sender.clone());
        tasks.spawn_named("scraper", async move {
            for _ in 0..50 {
                fleet.handle.refresh_metrics().await;
                let text = scrape(&registry);
                if series(&text, "switchtower_row_active_blocks") != 200
                    || series(&text, "switchtower_rows") != 1
                {
                    let _full = sender.try_send(text);
                }
            }
        });
    }
    drop(sender);
    assert_eq!(torn.recv().await, None);
}

#[tokio::test]
async fn b133_the_series_of_a_row_that_left_go_away() {
    let fleet = Fleet::start(KvRouterConfig::default()).await;
    let lease = fleet.join(WorkerRecord { ranks: 4, ..record(1, 10) }).await;
    let registry = registry(&fleet);
    fleet.handle.refresh_metrics().await;
    assert_eq!(series(&scrape(&registry), "switchtower_row_active_requests"), 4);
    fleet.put(&WorkerRecord { ranks: 2, ..record(1, 11) }, &lease).await;
    fleet.until(|loads| loads[0].rows.len() == 2).await;
    fleet.handle.refresh_metrics().await;
    assert_eq!(series(&scrape(&registry), "switchtower_row_active_requests"), 2);
}

struct Fails;

impl WorkerScorer for Fails {
    fn score(
        &mut self,
        _: &WorkerSelectionContext<'_>,
        _: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        Err(WorkerSelectionPolicyError::failed("always"))
    }
}

#[tokio::test]
async fn policy_failures_of_two_routing_groups_are_counted_once_each() {
    let factory = |config: &KvRouterConfig,
                   label: &'static str,
                   partition: RoutingPartitionRef<'_>|
     -> WorkerSelectionPolicy {
        switchtower_policies::cheapest_by(Fails, config, label, partition)
    };
    let runtime = DistributedRuntime::in_memory("test");
    let config = KvRouterConfig { quarantine_after_failures: 1_000, ..KvRouterConfig::default() };
    let builder = SelectionServiceBuilder::new(config).worker_selection_policy_factory(factory);
    let service = builder.distributed_runtime(runtime.clone()).build().await.unwrap();
    let fleet = Fleet { runtime, handle: service.handle(), service };
    let _one = fleet.join(record(1, 10)).await;
    let _two = fleet.join(WorkerRecord { routing_group: "other".into(), ..record(2, 20) }).await;
    let mut there = request(1, 1);
    there.routing_group = "other".into();
    for _ in 0..5 {
        fleet.handle.select(request(1, 1)).await.unwrap();
    }
    fleet.handle.select(there).await.unwrap();
    let registry = registry(&fleet);
    for _ in 0..3 {
        fleet.handle.refresh_metrics().await;
    }
    let text = scrape(&registry);
    let failures = |group: &str| {
        let labels = format!(r#"{{model="m",routing_group="{group}",stage="aggregated",kind="error"}}"#);
        text.lines().find_map(|line| {
            line.strip_prefix(&format!("switchtower_policy_failures_total{labels} "))?.parse::<u64>().ok()
        })
    };
    assert_eq!((failures("default"), failures("other")), (Some(5), Some(1)), "{text}");
}
