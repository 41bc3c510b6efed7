//! TLS: who is trusted, under which name, and who we are.

use crate::{
    buses::{bus, connected, is_unavailable, options, until_connected, until_it_says},
    certificates::{Authority, Identity},
};
use bytes::Bytes;
use std::path::PathBuf;
use switchtower_cluster::{ClusterName, EventBus};
use switchtower_nats::{NatsBus, NatsError, NatsOptions};
use switchtower_runtime::{TaskGroup, tls::TlsFiles};
use switchtower_tests::servers::{
    Program,
    nats::{Nats, programs},
};
use tempfile::TempDir;

const SERVER_NAME: &str = "nats.internal";

/// A server that speaks TLS and demands it of its clients, and what its operator has.
struct Setup {
    server: Nats,
    authority: Authority,
    folder: TempDir,
}

impl Setup {
    /// `hosts` stand in the server's certificate.
    async fn start(program: &Program, hosts: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        let Identity { cert, key } = authority.sign("server", hosts);
        let config = format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true, timeout: 5 }}",
            cert.display(),
            key.display(),
            authority.ca.display()
        );
        let server = Nats::start_with(program, &config).await;
        Self { server, authority, folder }
    }

    fn files(&self, name: &str) -> TlsFiles {
        let Identity { cert, key } = self.authority.sign(name, &[]);
        TlsFiles { ca: Some(self.authority.ca.clone()), cert: Some(cert), key: Some(key), server_name: None }
    }

    fn options(&self, tls: TlsFiles) -> NatsOptions {
        NatsOptions { tls: Some(tls), ..options(&self.server.url()) }
    }
}

async fn use_it(bus: &NatsBus) {
    let mut subscription = bus.subscribe("s").await.unwrap();
    bus.publish("s", Bytes::new()).await.unwrap();
    assert!(subscription.next().await.is_some());
}

#[tokio::test]
async fn both_sides_show_certificates_and_new_files_are_used_at_the_next_connection() {
    for program in programs() {
        let mut setup = Setup::start(&program, &["127.0.0.1"]).await;
        let bus = connected(setup.options(setup.files("client"))).await;
        use_it(&bus).await;
        // The old authority is gone, and its files with it: only those that took their places let both sides in.
        let renewed = Authority::new(setup.folder.path(), "authority");
        renewed.sign("server", &["127.0.0.1"]);
        renewed.sign("client", &[]);
        setup.server.restart().await;
        until_connected(&bus).await;
        use_it(&bus).await;
    }
}

#[tokio::test]
async fn another_name_than_the_dialled_one_is_checked_if_it_is_set() {
    for program in programs() {
        let setup = Setup::start(&program, &[SERVER_NAME]).await;
        let named =
            |name: Option<&str>| TlsFiles { server_name: name.map(str::to_owned), ..setup.files("client") };
        use_it(&connected(setup.options(named(Some(SERVER_NAME)))).await).await;
        for wrong in [None, Some("other.internal")] {
            let bus = bus(setup.options(named(wrong))).await;
            let said = until_it_says(&bus, "certificate not valid for name").await;
            assert!(said.contains(wrong.unwrap_or("127.0.0.1")), "{said}");
            assert!(is_unavailable(&bus.publish("s", Bytes::new()).await));
        }
    }
}

#[tokio::test]
async fn strangers_are_refused_on_both_sides() {
    for program in programs() {
        let setup = Setup::start(&program, &["127.0.0.1"]).await;
        let folder = tempfile::tempdir().unwrap();
        let stranger = Authority::new(folder.path(), "stranger");
        let known = setup.files("client");
        let distrusting = TlsFiles { ca: Some(stranger.ca.clone()), ..known.clone() };
        until_it_says(&bus(setup.options(distrusting)).await, "invalid peer certificate").await;
        let Identity { cert, key } = stranger.sign("client", &[]);
        for (cert, key) in [(Some(cert), Some(key)), (None, None)] {
            let bus = bus(setup.options(TlsFiles { cert, key, ..known.clone() })).await;
            until_it_says(&bus, "cannot connect").await;
            assert!(!bus.health().connected);
        }
        // A client without TLS does not fall back to plain text.
        let plain = bus(options(&setup.server.url())).await;
        until_it_says(&plain, "cannot connect").await;
    }
}

#[tokio::test]
async fn tls_that_is_asked_for_is_not_given_up_when_the_server_has_none() {
    for program in programs() {
        let server = Nats::start(&program).await;
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "authority");
        let tls = TlsFiles { ca: Some(authority.ca), ..TlsFiles::default() };
        let bus = bus(NatsOptions { tls: Some(tls), ..options(&server.url()) }).await;
        until_it_says(&bus, "cannot connect").await;
        assert!(!bus.health().connected);
    }
}

#[tokio::test]
async fn files_that_are_not_there_are_named_at_once() {
    let tls = TlsFiles { ca: Some(PathBuf::from("/nowhere/ca.pem")), ..TlsFiles::default() };
    let options = NatsOptions { tls: Some(tls), ..options("nats://127.0.0.1:1") };
    let refused = NatsBus::connect(options, &ClusterName::from("test"), &TaskGroup::new()).await;
    let error = refused.err().expect("no bus");
    assert!(matches!(&error, NatsError::Tls(_)), "{error}");
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
}
