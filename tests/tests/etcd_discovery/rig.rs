//! An etcd with connections to it, each behind a proxy of its own; also what the conformance suites ask for.

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use switchtower_cluster::{
    Discovery, Lease, Revision,
    conformance::{DiscoveryFactory, DiscoveryUnderTest},
};
use switchtower_etcd::{EtcdDiscovery, EtcdOptions};
use switchtower_runtime::TaskGroup;
use switchtower_tests::servers::{
    PATIENCE,
    etcd::{Etcd, EtcdSetup, programs},
    proxy::Proxy,
};
use tokio::time::{sleep, timeout};

/// The time to live of leases in tests that wait for it; the shortest that etcd takes at its usual pace.
pub(crate) const TTL: Duration = Duration::from_secs(2);

/// Options with times that let tests be short.
pub(crate) fn options<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> EtcdOptions {
    EtcdOptions {
        endpoints: endpoints.into_iter().map(Into::into).collect(),
        call_timeout: Duration::from_millis(1_500),
        probe_interval: Duration::from_millis(300),
        probe_timeout: Duration::from_secs(1),
        progress_interval: Duration::from_secs(1),
        retry_first: Duration::from_millis(50),
        retry_max: Duration::from_millis(300),
        ..EtcdOptions::default()
    }
}

/// Runs a test on every version of etcd found, at one time.
pub(crate) async fn on_every_version(test: impl AsyncFn(Etcd)) {
    on_every_version_with(&EtcdSetup::default(), test).await;
}

/// As [`on_every_version`], with a setup.
pub(crate) async fn on_every_version_with(setup: &EtcdSetup, test: impl AsyncFn(Etcd)) {
    let tests = programs().into_iter().map(|program| {
        let test = &test;
        async move {
            println!("on {program}");
            test(Etcd::start_with(&program, setup).await).await;
            println!("passed on {program}");
        }
    });
    futures::future::join_all(tests).await;
}

/// One process's connection: cut and restored by its proxy, and with its own tasks.
pub(crate) struct Link {
    pub(crate) discovery: EtcdDiscovery,
    pub(crate) proxy: Proxy,
    pub(crate) tasks: TaskGroup,
    server: SocketAddr,
}

impl Link {
    /// A connection that has been made.
    pub(crate) async fn connect(etcd: &Etcd, cluster: &str) -> Self {
        Self::connect_with(etcd, cluster, |_| {}).await
    }

    /// As [`connect`](Self::connect), with changes to the options.
    pub(crate) async fn connect_with(
        etcd: &Etcd,
        cluster: &str,
        change: impl FnOnce(&mut EtcdOptions),
    ) -> Self {
        let link = Self::start(etcd.address(), cluster, change).await;
        link.until_connected(true).await;
        link
    }

    /// A connection that is being tried.
    pub(crate) async fn start(
        server: SocketAddr,
        cluster: &str,
        change: impl FnOnce(&mut EtcdOptions),
    ) -> Self {
        let proxy = Proxy::start(server).await.unwrap();
        let tasks = TaskGroup::new();
        let mut options = options([format!("http://{}", proxy.address())]);
        change(&mut options);
        let discovery = EtcdDiscovery::connect(options, &cluster.into(), &tasks).unwrap();
        Self { discovery, proxy, tasks, server }
    }

    pub(crate) async fn until_connected(&self, connected: bool) {
        // Not `eventually`, whose future cannot be sent, as the suites' must be.
        let changing = async {
            while self.discovery.health().connected != connected {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let changed = timeout(PATIENCE, changing).await;
        assert!(changed.is_ok(), "connected: {:?}", self.discovery.health());
    }

    /// Cuts the connection and waits until it is noticed.
    pub(crate) async fn cut(&self) {
        self.proxy.refuse().await;
        self.until_connected(false).await;
    }

    /// Lets it come back, without waiting for it.
    pub(crate) async fn restore(&self) {
        self.proxy.pass().await;
    }

    pub(crate) async fn put(&self, key: &str, value: &str) -> Revision {
        put(&self.discovery, key, value, None).await
    }

    pub(crate) async fn put_leased(&self, key: &str, value: &str, lease: &Lease) -> Revision {
        put(&self.discovery, key, value, Some(lease)).await
    }

    pub(crate) async fn keys(&self) -> Vec<String> {
        let listed = self.discovery.list("").await.unwrap();
        listed.entries.into_iter().map(|entry| entry.key).collect()
    }
}

pub(crate) async fn put(
    discovery: &EtcdDiscovery,
    key: &str,
    value: &str,
    lease: Option<&Lease>,
) -> Revision {
    discovery.put(key, Bytes::copy_from_slice(value.as_bytes()), lease).await.unwrap()
}

/// What the conformance suites connect to.
pub(crate) struct Rig {
    etcd: Arc<Etcd>,
}

impl From<Etcd> for Rig {
    fn from(etcd: Etcd) -> Self {
        Self { etcd: Arc::new(etcd) }
    }
}

struct Connection {
    etcd: Arc<Etcd>,
    link: Link,
}

#[async_trait]
impl DiscoveryFactory for Rig {
    async fn connect(&self, cluster: &str) -> Box<dyn DiscoveryUnderTest> {
        let link = Link::connect(&self.etcd, cluster).await;
        Box::new(Connection { etcd: Arc::clone(&self.etcd), link })
    }
}

#[async_trait]
impl DiscoveryUnderTest for Connection {
    fn port(&self) -> &dyn Discovery {
        &self.link.discovery
    }

    async fn cut(&self) {
        self.link.cut().await;
    }

    async fn restore(&self) {
        self.link.restore().await;
    }

    async fn lose_leases(&self) {
        self.etcd.revoke_all_leases().await;
    }

    async fn force_resync(&self) {
        self.link.cut().await;
        // Something to compact.
        self.etcd.ask("kv/put", &json!({"key": "YQ=="})).await;
        self.etcd.compact().await;
        self.link.restore().await;
    }
}

impl Link {
    /// Another connection to the same server, for a witness.
    pub(crate) async fn beside(&self, cluster: &str) -> Self {
        let link = Self::start(self.server, cluster, |_| {}).await;
        link.until_connected(true).await;
        link
    }
}
