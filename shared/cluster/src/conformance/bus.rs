//! The rules of [`EventBus`] about messages as tests; those about requests and outages are in
//! [`requests`](super::requests). Called from each implementation's tests.

use super::{BusFactory, within};
use crate::{
    BusError, EventBus, Headers, MAX_HEADERS, MAX_HEADERS_BYTES, Message, SUBSCRIPTION_LIMITS, Subscription,
};
use bytes::Bytes;
use std::time::Duration;

/// Longer than any healthy request takes.
pub(super) const LONG: Duration = Duration::from_secs(30);

pub(super) async fn next(subscription: &mut Subscription) -> Message {
    within("a message", subscription.next()).await.expect("the subscription ended")
}

pub(super) async fn publish(bus: &dyn EventBus, subject: &str, payload: &str) {
    bus.publish(subject, Bytes::copy_from_slice(payload.as_bytes())).await.unwrap();
}

pub(super) async fn ask(
    bus: &dyn EventBus,
    subject: &str,
    payload: &'static str,
    deadline: Duration,
) -> Result<Bytes, BusError> {
    within("the end of a request", bus.request(subject, Bytes::from_static(payload.as_bytes()), deadline))
        .await
}

/// Two clusters on one bus, with names as alike as can be, never hear each other.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_04_clusters_never_hear_each_other(factory: &dyn BusFactory) {
    let names = ["b4", "b4.a", "b4/a", "b4%2Ea", "b4.>", "*", ">", ""];
    let (mut connections, mut subscriptions) = (Vec::new(), Vec::new());
    for name in names {
        let connection = factory.connect(name).await;
        subscriptions.push(connection.port().subscribe(">").await.unwrap());
        connections.push(connection);
    }
    for (connection, name) in connections.iter().zip(names) {
        publish(connection.port(), "a.subject", name).await;
        // Ends what this cluster may hear: anything of another one would have come before it, or comes in its place.
        publish(connection.port(), "end", name).await;
    }
    for (subscription, name) in subscriptions.iter_mut().zip(names) {
        for subject in ["a.subject", "end"] {
            let message = next(subscription).await;
            assert_eq!((message.subject.as_str(), message.payload.as_ref()), (subject, name.as_bytes()));
        }
        assert!(subscription.try_next().is_none());
    }
    let alone = factory.connect("b4-alone").await;
    assert!(matches!(ask(alone.port(), "a.subject", "", LONG).await, Err(BusError::NoResponders { .. })));
}

/// What is published after `subscribe` returned arrives, from another connection and from the same.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_11_a_subscription_is_in_force_when_it_returns(factory: &dyn BusFactory) {
    let (one, two) = (factory.connect("b11").await, factory.connect("b11").await);
    for round in 0..20 {
        let subject = format!("s.{round}");
        let mut subscription = one.port().subscribe(&subject).await.unwrap();
        publish(two.port(), &subject, "from another").await;
        assert_eq!(next(&mut subscription).await.payload, "from another");
        publish(one.port(), &subject, "from itself").await;
        let message = next(&mut subscription).await;
        assert_eq!((message.subject, message.payload.as_ref()), (subject, b"from itself".as_slice()));
        assert!(message.reply.is_none());
    }
}

/// Every matching subscription gets a message once; others and dropped ones do not.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_12_every_matching_subscription_gets_every_message(factory: &dyn BusFactory) {
    let (one, two) = (factory.connect("b12").await, factory.connect("b12").await);
    let mut exact = one.port().subscribe("kv.7.0").await.unwrap();
    let mut all = two.port().subscribe("kv.>").await.unwrap();
    let mut twin = two.port().subscribe("kv.>").await.unwrap();
    drop(one.port().subscribe("kv.>").await.unwrap());
    for subject in ["kv.7", "kv", "kvx.7", "kv.7.0", "load.7", "kv.8"] {
        publish(one.port(), subject, subject).await;
    }
    publish(two.port(), "kv.7.0", "last").await;
    let everything: &[&str] = &["kv.7", "kv.7.0", "kv.8", "last"];
    for (subscription, wanted) in
        [(&mut exact, &["kv.7.0", "last"][..]), (&mut all, everything), (&mut twin, everything)]
    {
        let mut heard = Vec::new();
        for _ in wanted {
            heard.push(next(subscription).await.payload);
        }
        // Two publishers have no order between them (rule 3).
        heard.sort_unstable();
        assert_eq!(heard, wanted);
        assert_eq!((subscription.try_next().is_none(), subscription.lagged()), (true, 0));
    }
}

/// A subscription that nobody reads loses messages, counts them, and holds up no one.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_13_a_slow_subscriber_is_told_what_it_lost(factory: &dyn BusFactory) {
    const LOST: u64 = 100;
    let connection = factory.connect("b13").await;
    let mut slow = connection.port().subscribe("s").await.unwrap();
    let sent = SUBSCRIPTION_LIMITS.items as u64 + LOST;
    for number in 0..sent {
        publish(connection.port(), "s", &number.to_string()).await;
    }
    // All of them have to have come before the first is read.
    within("the lost messages to be counted", async {
        while slow.lagged() < LOST {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for number in LOST..sent {
        assert_eq!(next(&mut slow).await.payload, number.to_string(), "the newest are kept");
    }
    assert_eq!((slow.lagged(), slow.try_next().is_none()), (LOST, true));
}

/// What cannot be sent is refused by name, and the connection's other traffic does not notice.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_15_what_cannot_be_sent_is_refused(factory: &dyn BusFactory) {
    let connection = factory.connect("b15").await;
    let bus = connection.port();
    let mut subscription = bus.subscribe(">").await.unwrap();
    for subject in ["", "a..b", ".a", "a b", "a.*", "a.>", ">", "a\r\nPUB b 0"] {
        let published = bus.publish(subject, Bytes::new()).await;
        let asked = ask(bus, subject, "", LONG).await;
        for error in [published.err(), asked.err()] {
            assert!(matches!(error, Some(BusError::InvalidSubject { .. })), "{subject:?}: {error:?}");
        }
    }
    for pattern in ["", "*", "a.*.b", ">.a", "a>"] {
        assert!(
            matches!(bus.subscribe(pattern).await.err(), Some(BusError::InvalidSubject { .. })),
            "{pattern:?}"
        );
    }
    let limit = bus.max_payload();
    let too_large = BusError::TooLarge { subject: "s".to_owned(), bytes: limit + 1, limit };
    let payload = Bytes::from(vec![7; limit + 1]);
    assert_eq!(bus.publish("s", payload.clone()).await, Err(too_large.clone()));
    assert_eq!(bus.request("s", payload.clone(), LONG).await, Err(too_large));

    // Headers, as many as there may be, do not count.
    bus.publish_with("s", most_headers(), payload.slice(1..)).await.unwrap();
    assert_eq!(next(&mut subscription).await.payload.len(), limit);
    let answering = async {
        let question = next(&mut subscription).await;
        assert!(matches!(question.respond(payload.clone()).await, Err(BusError::TooLarge { .. })));
        question.respond(payload.slice(1..)).await.unwrap();
    };
    let (answer, ()) = tokio::join!(ask(bus, "s", "", LONG), answering);
    assert_eq!(answer.map(|answer| answer.len()), Ok(limit));
}

/// Headers arrive with messages and with questions, and not with others.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_18_headers_travel_with_their_message(factory: &dyn BusFactory) {
    let (one, two) = (factory.connect("b18").await, factory.connect("b18").await);
    let mut subscription = two.port().subscribe("s").await.unwrap();
    let mut headers = Headers::new();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (name, value) in [("traceparent", trace), ("tracestate", "a=1"), ("tracestate", "b=2"), ("x", "")] {
        headers.append(name, value).unwrap();
    }
    one.port().publish_with("s", headers.clone(), Bytes::from_static(b"with")).await.unwrap();
    let message = next(&mut subscription).await;
    assert_eq!(message.payload, "with");
    assert_eq!(sorted(&message.headers), sorted(&headers));
    assert_eq!(message.headers.get("traceparent"), Some(trace));
    let states = message.headers.iter().filter(|(name, _)| *name == "tracestate");
    assert_eq!(states.map(|(_, value)| value).collect::<Vec<_>>(), ["a=1", "b=2"]);

    publish(one.port(), "s", "without").await;
    assert!(next(&mut subscription).await.headers.is_empty());

    one.port().publish_with("s", most_headers(), Bytes::new()).await.unwrap();
    assert_eq!(sorted(&next(&mut subscription).await.headers), sorted(&most_headers()));

    let answering = async {
        let question = next(&mut subscription).await;
        assert_eq!(question.headers.get("traceparent"), Some(trace));
        question.respond(Bytes::from_static(b"seen")).await.unwrap();
    };
    let asking = one.port().request_with("s", headers.clone(), Bytes::new(), LONG);
    let (answer, ()) = tokio::join!(within("the answer", asking), answering);
    assert_eq!(answer, Ok(Bytes::from_static(b"seen")));
}

/// As many headers, and as long ones, as there may be.
fn most_headers() -> Headers {
    let mut headers = Headers::new();
    for number in 0..MAX_HEADERS {
        let name = format!("n{number:02}");
        let value = "v".repeat(MAX_HEADERS_BYTES / MAX_HEADERS - name.len());
        headers.append(&name, &value).unwrap();
    }
    headers
}

fn sorted(headers: &Headers) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    pairs.sort_by(|left, right| left.0.cmp(&right.0));
    pairs
}
