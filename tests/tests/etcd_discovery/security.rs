//! Users whose tokens run out, and TLS with certificates on both sides.

use crate::{
    follower::Follower,
    rig::{Link, TTL, on_every_version, on_every_version_with, options, put},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use std::path::{Path, PathBuf};
use switchtower_cluster::{Discovery, DiscoveryError};
use switchtower_etcd::{EtcdDiscovery, EtcdOptions};
use switchtower_runtime::{TaskGroup, tls::TlsFiles};
use switchtower_tests::servers::{
    PATIENCE,
    etcd::{Etcd, EtcdSetup, EtcdTls},
    eventually,
};

const PASSWORD: &str = "open-sesame";

fn as_root(options: &mut EtcdOptions) {
    options.username = Some("root".to_owned());
    options.password = Some(PASSWORD.to_owned());
}

/// Works as root while tokens run out, the store of users changes and the server forgets all tokens.
async fn works_on(mut etcd: Etcd) {
    etcd.enable_users(PASSWORD).await;
    let link = Link::connect_with(&etcd, "c", as_root).await;
    let lease = link.discovery.grant(TTL).await.unwrap();
    link.put_leased("workers/1", "me", &lease).await;
    let mut follower = Follower::start(&link.discovery).await;
    for round in 0..3 {
        // Changes the revision of the users, with which etcd refuses signed tokens; longer than unsigned ones live.
        let user = json!({"name": format!("u{round}"), "password": "p"});
        etcd.ask_as_root(PASSWORD, "auth/user/add", &user).await;
        link.put("round", &round.to_string()).await;
        follower.until("the round", |seen| seen.has("round", &round.to_string())).await;
        follower.listen(TTL).await;
        link.put("later", &round.to_string()).await;
    }
    etcd.restart().await;
    link.until_connected(true).await;
    eventually("a call after the restart", PATIENCE, async || link.discovery.list("").await.is_ok()).await;
    link.put_leased("workers/1", "still me", &lease).await;
    follower.until("the change", |seen| seen.has("workers/1", "still me")).await;
    follower.listen(TTL * 2).await;
    assert!(follower.has("workers/1", "still me"));
}

#[tokio::test]
async fn b04_tokens_that_the_server_forgets_are_renewed() {
    on_every_version(works_on).await;
}

#[tokio::test]
async fn b04_signed_tokens_that_run_out_or_grow_old_are_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("jwt.key");
    std::fs::write(&key, "a shared secret of the server's").unwrap();
    let token = format!("jwt,priv-key={},sign-method=HS256,ttl=1s", key.display());
    let setup = EtcdSetup { args: vec!["--auth-token".into(), token.into()], ..EtcdSetup::default() };
    on_every_version_with(&setup, works_on).await;
}

#[tokio::test]
async fn users_that_are_demanded_later_are_used_and_needless_ones_are_not() {
    on_every_version(async |etcd| {
        let link = Link::connect_with(&etcd, "c", as_root).await;
        link.put("before", "1").await;
        let mut follower = Follower::start(&link.discovery).await;
        etcd.enable_users(PASSWORD).await;
        link.put("after", "2").await;
        follower.until("the change", |seen| seen.has("after", "2")).await;
    })
    .await;
}

#[tokio::test]
async fn a_wrong_password_is_said_and_not_shown() {
    on_every_version(async |etcd| {
        etcd.enable_users("another").await;
        let link = Link::start(etcd.address(), "c", as_root).await;
        let failed = link.discovery.get("k").await;
        let Err(error @ DiscoveryError::Unavailable { .. }) = failed else {
            panic!("{failed:?}");
        };
        let health = link.discovery.health();
        let shown = format!("{error} {error:?} {health:?} {:?}", link.discovery);
        assert!(shown.contains("authentication failed"), "{shown}");
        assert!(!shown.contains(PASSWORD), "{shown}");
    })
    .await;
}

#[tokio::test]
async fn a_user_without_permission_is_told_so() {
    on_every_version(async |etcd| {
        etcd.enable_users(PASSWORD).await;
        let guest = json!({"name": "guest", "password": "g"});
        etcd.ask_as_root(PASSWORD, "auth/user/add", &guest).await;
        let link = Link::start(etcd.address(), "c", |options| {
            options.username = Some("guest".to_owned());
            options.password = Some("g".to_owned());
        })
        .await;
        let error = link.discovery.get("k").await.unwrap_err().to_string();
        assert!(error.contains("permission denied"), "{error}");
    })
    .await;
}

/// An authority, and what it has signed.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { folder: tempfile::tempdir().unwrap(), issuer };
        authority.write("ca", &authority.issuer.pem());
        authority
    }

    /// A certificate for a name or an address, and its key.
    fn sign(&self, file: &str, subject: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let cert = self.write(&format!("{file}.pem"), &certificate.pem());
        (cert, self.write(&format!("{file}.key"), &key.serialize_pem()))
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca")
    }

    fn write(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path
    }
}

async fn connects(etcd: &Etcd, tls: TlsFiles) -> EtcdDiscovery {
    let options = EtcdOptions { tls: Some(tls), ..options([etcd.endpoint()]) };
    let discovery = EtcdDiscovery::connect(options, &"c".into(), &TaskGroup::new()).unwrap();
    let settled = async || discovery.health().connected || discovery.health().last_error.is_some();
    eventually("a connection or an error", PATIENCE, settled).await;
    discovery
}

fn server(cert: &Path, key: &Path, client_ca: Option<PathBuf>) -> EtcdSetup {
    let tls = EtcdTls { cert: cert.to_path_buf(), key: key.to_path_buf(), client_ca };
    EtcdSetup { tls: Some(tls), ..EtcdSetup::default() }
}

#[tokio::test]
async fn tls_with_certificates_on_both_sides() {
    let authority = Authority::new();
    // The server's certificate serves as a client's too, as etcd's own gateway needs it to.
    let (cert, key) = authority.sign("server", "etcd.test");
    let (client_cert, client_key) = authority.sign("client", "client");
    on_every_version_with(&server(&cert, &key, Some(authority.ca())), async |etcd| {
        let files = TlsFiles {
            ca: Some(authority.ca()),
            cert: Some(client_cert.clone()),
            key: Some(client_key.clone()),
            server_name: Some("etcd.test".to_owned()),
        };
        let discovery = connects(&etcd, files.clone()).await;
        assert!(discovery.health().connected, "{:?}", discovery.health());
        let lease = discovery.grant(TTL).await.unwrap();
        put(&discovery, "k", "1", Some(&lease)).await;
        let follower = Follower::start(&discovery).await;
        assert!(follower.has("k", "1"));

        let anonymous = TlsFiles { cert: None, key: None, ..files.clone() };
        assert!(!connects(&etcd, anonymous).await.health().connected, "a client without a certificate");
        let wrong_name = TlsFiles { server_name: None, ..files.clone() };
        assert!(
            !connects(&etcd, wrong_name).await.health().connected,
            "the address is not in the certificate"
        );
        let stranger = TlsFiles { ca: Some(Authority::new().ca()), ..files };
        let mistrusted = EtcdOptions { tls: Some(stranger), ..options([etcd.endpoint()]) };
        // The stranger's folder is gone, so its file is missing: said at once.
        let error = EtcdDiscovery::connect(mistrusted, &"c".into(), &TaskGroup::new()).unwrap_err();
        assert!(error.to_string().contains("cannot read tls.ca"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn tls_of_an_unknown_authority_is_refused_in_words() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (cert, key) = authority.sign("server", "127.0.0.1");
    on_every_version_with(&server(&cert, &key, None), async |etcd| {
        let good = TlsFiles { ca: Some(authority.ca()), ..TlsFiles::default() };
        assert!(connects(&etcd, good).await.health().connected);
        let bad = TlsFiles { ca: Some(stranger.ca()), ..TlsFiles::default() };
        let health = connects(&etcd, bad).await.health();
        let error = health.last_error.unwrap_or_default();
        assert!(!health.connected && error.contains("certificate"), "{error}");
    })
    .await;
}
