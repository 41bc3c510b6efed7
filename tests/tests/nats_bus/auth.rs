//! Who we are: every way to authenticate, wrong credentials, renewed ones, and as few rights as the page says.

use crate::{
    buses::{bus, connected, options, until_connected, until_it_says},
    tokens::Operator,
};
use bytes::Bytes;
use nkeys::KeyPair;
use std::{fs, time::Duration};
use switchtower_cluster::{ClusterName, EventBus};
use switchtower_nats::{NatsBus, NatsOptions};
use switchtower_runtime::TaskGroup;
use switchtower_tests::servers::{
    PATIENCE, eventually,
    nats::{Nats, programs},
};
use tokio::time::timeout;

const HOUR: Duration = Duration::from_secs(3_600);

fn password(url: &str, password: &str) -> NatsOptions {
    let (user, password) = (Some("tower".to_owned()), Some(password.to_owned()));
    NatsOptions { user, password, ..options(url) }
}

fn users(password: &str) -> String {
    format!("authorization {{ users: [{{ user: tower, password: \"{password}\" }}] }}")
}

/// A message and an answer go through.
async fn use_it(bus: &NatsBus) {
    let mut subscription = bus.subscribe("s").await.unwrap();
    let answering = async { subscription.next().await.unwrap().respond(Bytes::from_static(b"yes")).await };
    let asking = async { tokio::join!(bus.request("s", Bytes::new(), PATIENCE), answering) };
    let (answer, answered) = timeout(PATIENCE, asking).await.expect("an answer");
    assert_eq!((answer, answered), (Ok(Bytes::from_static(b"yes")), Ok(())));
}

#[tokio::test]
async fn a_user_with_a_password_is_let_in() {
    for program in programs() {
        let server = Nats::start_with(&program, &users("s3cret")).await;
        use_it(&connected(password(&server.url(), "s3cret")).await).await;
    }
}

#[tokio::test]
async fn a_token_lets_in() {
    for program in programs() {
        let server = Nats::start_with(&program, "authorization { token: \"t0ken\" }").await;
        let options = NatsOptions { token: Some("t0ken".to_owned()), ..options(&server.url()) };
        use_it(&connected(options).await).await;
    }
}

#[tokio::test]
async fn an_nkey_lets_in() {
    for program in programs() {
        let pair = KeyPair::new_user();
        let config = format!("authorization {{ users: [{{ nkey: {} }}] }}", pair.public_key());
        let server = Nats::start_with(&program, &config).await;
        let seed = server.folder().join("seed");
        fs::write(&seed, pair.seed().unwrap()).unwrap();
        let options = NatsOptions { nkey_seed_file: Some(seed), ..options(&server.url()) };
        use_it(&connected(options).await).await;
    }
}

#[tokio::test]
async fn b04_credentials_that_run_out_are_renewed_from_their_file() {
    for program in programs() {
        let operator = Operator::new();
        let server = Nats::start_with(&program, &operator.config()).await;
        let file = server.folder().join("creds");
        fs::write(&file, operator.credentials(Duration::from_secs(5))).unwrap();
        let options = NatsOptions { creds_file: Some(file.clone()), ..options(&server.url()) };
        let bus = connected(options).await;
        use_it(&bus).await;
        let mut subscription = bus.subscribe("kept").await.unwrap();
        // Whoever renews credentials writes the file; the server throws us out when the old ones run out.
        fs::write(&file, operator.credentials(HOUR)).unwrap();
        eventually("the old ones to run out", PATIENCE, async || bus.health().reconnects > 0).await;
        until_connected(&bus).await;
        use_it(&bus).await;
        bus.publish("kept", Bytes::new()).await.unwrap();
        assert!(timeout(PATIENCE, subscription.next()).await.expect("a message").is_some());
        let said = bus.health().last_error.unwrap_or_default();
        assert!(said.contains("Authentication Expired"), "{said}");
    }
}

#[tokio::test]
async fn wrong_credentials_are_named_without_showing_them_and_tried_again() {
    for program in programs() {
        let mut server = Nats::start_with(&program, &users("right")).await;
        let bus = bus(password(&server.url(), "wr0ng")).await;
        let said = until_it_says(&bus, "does not accept user and password").await;
        assert!(said.contains(&server.url()) && !said.contains("wr0ng"), "{said}");
        let refused = bus.publish("s", Bytes::new()).await.unwrap_err().to_string();
        assert!(refused.contains("does not accept user and password"), "{refused}");
        // The server learns of our password, and nobody restarts us.
        server.restart_with(&users("wr0ng")).await;
        until_connected(&bus).await;
        use_it(&bus).await;
    }
}

#[tokio::test]
async fn the_rights_that_the_documentation_names_are_enough_and_others_are_reported() {
    for program in programs() {
        let rights = r#"{ allow: ["switchtower.test.>", "_INBOX.switchtower.test.>"] }"#;
        let config = format!(
            "authorization {{ users: [{{ user: tower, password: p, \
             permissions: {{ publish: {rights}, subscribe: {rights} }} }}] }}"
        );
        let server = Nats::start_with(&program, &config).await;
        let bus = connected(password(&server.url(), "p")).await;
        use_it(&bus).await;
        assert_eq!(bus.health().last_error, None);

        let (options, name) = (password(&server.url(), "p"), ClusterName::from("other"));
        let other = NatsBus::connect(options, &name, &TaskGroup::new()).await.unwrap();
        let said = until_it_says(&other, "Permissions Violation").await;
        assert!(said.contains("switchtower.other."), "{said}");
        assert!(other.subscribe("s").await.is_err());
    }
}
