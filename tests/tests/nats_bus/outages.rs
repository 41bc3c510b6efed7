//! What the bus does when NATS is away, frozen, restarted, or smaller than before.

use crate::buses::{
    bus, connected, is_unavailable, options, quick, until_connected, until_disconnected, until_it_says,
};
use bytes::Bytes;
use futures::future::join_all;
use std::time::Duration;
use switchtower_cluster::{BusError, ClusterName, EventBus, Subscription};
use switchtower_nats::{NatsBus, NatsOptions};
use switchtower_runtime::TaskGroup;
use switchtower_tests::servers::{
    PATIENCE, eventually,
    nats::{Nats, programs},
    proxy::Proxy,
};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(5);

/// Ends a call that hangs, and the test with it.
async fn bounded<F: Future>(what: &str, call: F) -> F::Output {
    timeout(PATIENCE, call).await.unwrap_or_else(|_| panic!("{what} did not end"))
}

/// Publishes to a subscription until it hears something.
async fn until_heard(bus: &NatsBus, subject: &str, subscription: &mut Subscription) {
    eventually("a message", PATIENCE, async || {
        let _ = bus.publish(subject, Bytes::from_static(b"again")).await;
        timeout(Duration::from_millis(100), subscription.next()).await.is_ok_and(|message| message.is_some())
    })
    .await;
}

/// Answers every question with its payload, for ever.
async fn echo(mut questions: Subscription) {
    while let Some(question) = questions.next().await {
        let _ = question.respond(question.payload.clone()).await;
    }
}

#[tokio::test]
async fn b156_without_a_server_calls_fail_typed_and_all_is_well_when_it_comes() {
    for program in programs() {
        let mut server = Nats::start(&program).await;
        server.kill();
        let bus = bus(options(&server.url())).await;
        let failed = [
            bounded("publish", bus.publish("s", Bytes::new())).await.err(),
            bounded("subscribe", bus.subscribe("s")).await.err(),
            bounded("request", bus.request("s", Bytes::new(), PATIENCE)).await.err(),
        ];
        for error in failed {
            assert!(matches!(error, Some(BusError::Unavailable { .. })), "{error:?}");
        }
        let said = until_it_says(&bus, "cannot connect").await;
        assert!(said.contains(&server.url()) && said.contains("refused"), "{said}");
        assert!(!bus.health().connected);
        server.restart().await;
        until_connected(&bus).await;
        assert_eq!(bus.health().reconnects, 0);
        let mut subscription = bus.subscribe("s").await.unwrap();
        bus.publish("s", Bytes::new()).await.unwrap();
        assert!(bounded("a message", subscription.next()).await.is_some());
    }
}

#[tokio::test]
async fn b143_no_request_hangs_while_the_server_is_killed_and_restarted() {
    const RESTARTS: u64 = 15;
    for program in programs() {
        let mut server = Nats::start(&program).await;
        let tasks = TaskGroup::new();
        let cluster = ClusterName::from("test");
        let asker = NatsBus::connect(options(&server.url()), &cluster, &tasks).await.unwrap();
        let answerer = connected(options(&server.url())).await;
        let mut events = answerer.subscribe("event").await.unwrap();
        let answering = TaskGroup::new();
        answering.spawn_until_shutdown("echo", echo(answerer.subscribe("ask").await.unwrap()));
        until_connected(&asker).await;
        let tasks_at_rest = tasks.live();
        let (mut answered, mut unanswered) = (0_u64, 0_u64);
        for restart in 0..RESTARTS {
            let mut asking = async |burst: u64| {
                let ask = |number: u64| asker.request("ask", Bytes::from(number.to_string()), DEADLINE);
                let answers =
                    bounded("requests", join_all((0..20).map(|number| ask(burst * 20 + number)))).await;
                for (number, answer) in answers.into_iter().enumerate() {
                    match answer {
                        Ok(payload) => {
                            assert_eq!(payload, (burst * 20 + number as u64).to_string(), "another's answer");
                            answered += 1;
                        }
                        Err(_) => unanswered += 1,
                    }
                }
            };
            // The requests of one burst are under way while the server dies.
            tokio::join!(asking(restart), async {
                tokio::task::yield_now().await;
                server.kill();
            });
            server.restart().await;
            until_connected(&asker).await;
            until_connected(&answerer).await;
            until_heard(&asker, "event", &mut events).await;
            let echoed = bounded("a request", asker.request("ask", Bytes::from_static(b"x"), DEADLINE)).await;
            assert_eq!(echoed, Ok(Bytes::from_static(b"x")));
        }
        let what = format!("{RESTARTS} reconnects ({answered} requests answered, {unanswered} not)");
        eventually(&what, PATIENCE, async || asker.health().reconnects >= RESTARTS).await;
        eventually("no task to be left over", PATIENCE, async || tasks.live() <= tasks_at_rest).await;
        assert!(answering.shutdown(PATIENCE).await.is_empty());
    }
}

#[tokio::test]
async fn b07_a_frozen_server_is_noticed_and_calls_end() {
    for program in programs() {
        let server = Nats::start(&program).await;
        let bus = connected(quick(&server.url())).await;
        let mut subscription = bus.subscribe("s").await.unwrap();
        let waiting = bus.clone();
        let mut questions = bus.subscribe("ask").await.unwrap();
        let asked = waiting.request("ask", Bytes::new(), PATIENCE);
        let freezing = async {
            // The question is out, and nobody answers it.
            questions.next().await.unwrap();
            server.stop();
            until_disconnected(&bus).await;
        };
        let (asked, ()) = bounded("what was under way", async { tokio::join!(asked, freezing) }).await;
        assert!(is_unavailable(&asked), "{asked:?}");
        assert!(is_unavailable(&bounded("publish", bus.publish("s", Bytes::new())).await));
        assert!(is_unavailable(&bounded("subscribe", bus.subscribe("t")).await.map(drop)));
        server.cont();
        until_connected(&bus).await;
        until_heard(&bus, "s", &mut subscription).await;
        assert!(bus.health().reconnects >= 1);
    }
}

#[tokio::test]
async fn a_connection_that_takes_no_data_does_not_queue_without_bound() {
    let program = programs().remove(0);
    let server = Nats::start(&program).await;
    let proxy = Proxy::start(server.address()).await.unwrap();
    // Its pings are so rare that only the limit of a call can end one.
    let patient = NatsOptions {
        ping_interval: Duration::from_secs(600),
        ..quick(&format!("nats://{}", proxy.address()))
    };
    let bus = connected(patient).await;
    proxy.stall().await;
    let payload = Bytes::from(vec![0; bus.max_payload()]);
    let mut queued = 0;
    let refused = loop {
        match bounded("publish", bus.publish("s", payload.clone())).await {
            Ok(()) => queued += 1,
            Err(error) => break error,
        }
        assert!(queued < 1_000, "1,000 large messages are queued for a connection that takes nothing");
    };
    assert!(matches!(&refused, BusError::Unavailable { .. }), "{refused:?}");
    assert!(is_unavailable(&bounded("subscribe", bus.subscribe("t")).await.map(drop)));
    assert!(is_unavailable(&bounded("request", bus.request("t", Bytes::new(), PATIENCE)).await));
    proxy.pass().await;
    until_connected(&bus).await;
}

#[tokio::test]
async fn a_black_hole_is_noticed_and_left_when_it_opens() {
    for program in programs() {
        let server = Nats::start(&program).await;
        let proxy = Proxy::start(server.address()).await.unwrap();
        let bus = connected(quick(&format!("nats://{}", proxy.address()))).await;
        let mut subscription = bus.subscribe("s").await.unwrap();
        proxy.stall().await;
        until_disconnected(&bus).await;
        until_it_says(&bus, "timed out").await;
        proxy.pass().await;
        until_connected(&bus).await;
        until_heard(&bus, "s", &mut subscription).await;
    }
}

#[tokio::test]
async fn b104_what_is_too_large_is_refused_and_the_connection_does_not_notice() {
    for program in programs() {
        let mut server = Nats::start_with(&program, "max_payload: 16384").await;
        let bus = connected(options(&server.url())).await;
        let limit = bus.max_payload();
        assert!(limit > 8_192 && limit < 16_384, "{limit}");
        let answering = TaskGroup::new();
        answering.spawn_until_shutdown("echo", echo(bus.subscribe("ask").await.unwrap()));
        for bytes in [limit + 1, 16_384, 16_385, 1_000_000, 8_000_000] {
            let large = Bytes::from(vec![0; bytes]);
            let refused = BusError::TooLarge { subject: "ask".to_owned(), bytes, limit };
            assert_eq!(bus.publish("ask", large.clone()).await, Err(refused.clone()));
            assert_eq!(bus.request("ask", large, DEADLINE).await, Err(refused));
            let small = bus.request("ask", Bytes::from_static(b"small"), DEADLINE).await;
            assert_eq!(small, Ok(Bytes::from_static(b"small")));
        }
        let largest = Bytes::from(vec![7; limit]);
        assert_eq!(bus.request("ask", largest.clone(), DEADLINE).await, Ok(largest));
        assert_eq!(bus.health().reconnects, 0);

        // The limit is the server's, and changes with it.
        server.restart_with("max_payload: 8192").await;
        eventually("the new limit", PATIENCE, async || bus.max_payload() < 8_192).await;
        until_connected(&bus).await;
        let refused = bus.publish("ask", Bytes::from(vec![0; limit])).await;
        assert!(matches!(refused, Err(BusError::TooLarge { .. })), "{refused:?}");
        assert!(answering.shutdown(PATIENCE).await.is_empty());
        drop(bus);

        let small = NatsOptions { max_payload_bytes: 1_000, ..options(&server.url()) };
        let bus = connected(small).await;
        assert_eq!(bus.max_payload(), 1_000, "our own limit holds when it is less");
    }
}

#[tokio::test]
async fn what_was_published_before_the_shutdown_arrives() {
    const MESSAGES: u32 = 2_000;
    for program in programs() {
        let server = Nats::start(&program).await;
        let listener = connected(options(&server.url())).await;
        let mut subscription = listener.subscribe("s").await.unwrap();
        let tasks = TaskGroup::new();
        let bus = NatsBus::connect(options(&server.url()), &ClusterName::from("test"), &tasks).await.unwrap();
        until_connected(&bus).await;
        let mut own = bus.subscribe("own").await.unwrap();
        for number in 0..MESSAGES {
            bus.publish("s", Bytes::from(number.to_string())).await.unwrap();
        }
        assert!(tasks.shutdown(PATIENCE).await.is_empty());
        assert!(is_unavailable(&bus.publish("s", Bytes::new()).await));
        assert!(!bus.health().connected);
        assert!(bounded("the end of a subscription", own.next()).await.is_none());
        for number in 0..MESSAGES {
            let message = bounded("a message", subscription.next()).await.unwrap();
            assert_eq!(message.payload, number.to_string());
        }
    }
}

#[tokio::test]
async fn a_shutdown_without_a_server_ends_too() {
    let program = programs().remove(0);
    let mut server = Nats::start(&program).await;
    server.kill();
    let tasks = TaskGroup::new();
    let bus = NatsBus::connect(quick(&server.url()), &ClusterName::from("test"), &tasks).await.unwrap();
    until_it_says(&bus, "cannot connect").await;
    assert_eq!(tasks.shutdown(PATIENCE).await, Vec::<String>::new());
}

#[tokio::test]
async fn tasks_and_subscriptions_end_with_the_last_handle() {
    let program = programs().remove(0);
    let server = Nats::start(&program).await;
    let tasks = TaskGroup::new();
    let bus = NatsBus::connect(options(&server.url()), &ClusterName::from("test"), &tasks).await.unwrap();
    until_connected(&bus).await;
    let mut subscription = bus.subscribe("s").await.unwrap();
    drop(bus.subscribe("t").await.unwrap());
    drop(bus);
    assert!(bounded("the end of a subscription", subscription.next()).await.is_none());
    eventually("all tasks to end", PATIENCE, async || tasks.live() == 0).await;
}

#[tokio::test]
async fn another_server_is_taken_when_one_goes() {
    for program in programs() {
        let (mut one, mut two) = (Nats::start(&program).await, Nats::start(&program).await);
        let bus = connected(options(&format!("{},{}", one.url(), two.url()))).await;
        let mut subscription = bus.subscribe("s").await.unwrap();
        for _ in 0..2 {
            one.kill();
            until_connected(&bus).await;
            until_heard(&bus, "s", &mut subscription).await;
            one.restart().await;
            std::mem::swap(&mut one, &mut two);
        }
        assert!(bus.health().reconnects >= 1);
    }
}
