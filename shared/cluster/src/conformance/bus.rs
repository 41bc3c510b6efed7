//! The rules of [`EventBus`] as tests; see the trait. Called from each implementation's tests.

use super::{BusFactory, within};
use crate::{BusError, EventBus, Message, SUBSCRIPTION_LIMITS, Subscription};
use bytes::Bytes;
use std::time::Duration;

/// Longer than any healthy request takes.
const LONG: Duration = Duration::from_secs(30);

/// A deadline that is meant to pass.
const SHORT: Duration = Duration::from_millis(50);

async fn next(subscription: &mut Subscription) -> Message {
    within("a message", subscription.next()).await.expect("the subscription ended")
}

async fn publish(bus: &dyn EventBus, subject: &str, payload: &str) {
    bus.publish(subject, Bytes::copy_from_slice(payload.as_bytes())).await.unwrap();
}

async fn ask(
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
    assert_eq!(next(&mut exact).await.payload, "kv.7.0");
    assert_eq!(next(&mut exact).await.payload, "last");
    for subscription in [&mut all, &mut twin] {
        let mut heard = Vec::new();
        for _ in 0..4 {
            heard.push(next(subscription).await.payload);
        }
        // Two publishers have no order between them (rule 3).
        heard.sort_unstable();
        assert_eq!(heard, ["kv.7", "kv.7.0", "kv.8", "last"]);
        assert_eq!((subscription.try_next().is_none(), subscription.lagged()), (true, 0));
    }
}

/// A subscription that nobody reads loses messages, counts them, and holds up no one.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_13_a_slow_subscriber_is_told_what_it_lost(factory: &dyn BusFactory) {
    let connection = factory.connect("b13").await;
    let mut slow = connection.port().subscribe("s").await.unwrap();
    let sent = SUBSCRIPTION_LIMITS.items as u64 + 100;
    for number in 0..sent {
        publish(connection.port(), "s", &number.to_string()).await;
    }
    let mut received = 0;
    let mut last = String::new();
    while received + slow.lagged() < sent {
        last = String::from_utf8_lossy(&next(&mut slow).await.payload).into_owned();
        received += 1;
    }
    assert_eq!(received + slow.lagged(), sent);
    assert!(received <= SUBSCRIPTION_LIMITS.items as u64 && slow.lagged() >= 100);
    assert_eq!(last, (sent - 1).to_string(), "the newest is kept");
}

/// A request ends with the first answer.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_14_the_first_answer_ends_a_request(factory: &dyn BusFactory) {
    let (asker, answerer) = (factory.connect("b14").await, factory.connect("b14").await);
    let mut questions = answerer.port().subscribe("ask.>").await.unwrap();
    let answering = async {
        let question = next(&mut questions).await;
        assert_eq!((question.subject.as_str(), question.payload.as_ref()), ("ask.me", b"what?".as_slice()));
        question.respond(Bytes::from_static(b"this")).await.unwrap();
        // A second answer changes nothing and is no error.
        question.respond(Bytes::from_static(b"that")).await.unwrap();
    };
    let (answer, ()) = tokio::join!(ask(asker.port(), "ask.me", "what?", LONG), answering);
    assert_eq!(answer, Ok(Bytes::from_static(b"this")));
}

/// A request that nobody can hear fails at once; one that nobody answers, at its deadline.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_14_a_request_without_answer_ends_typed(factory: &dyn BusFactory) {
    let (asker, silent) = (factory.connect("b14-none").await, factory.connect("b14-none").await);
    let nobody = ask(asker.port(), "ask", "", LONG).await;
    assert_eq!(nobody, Err(BusError::NoResponders { subject: "ask".to_owned() }));

    let mut questions = silent.port().subscribe("ask").await.unwrap();
    let late = ask(asker.port(), "ask", "", SHORT).await;
    assert_eq!(late, Err(BusError::Deadline { subject: "ask".to_owned(), deadline_ms: SHORT.as_millis() }));
    // An answer past the deadline is no error for the one who gives it.
    next(&mut questions).await.respond(Bytes::new()).await.unwrap();

    drop(questions);
    // The bus may learn of the unsubscription a moment later.
    within("the subscription to be gone", async {
        while !matches!(ask(asker.port(), "ask", "", SHORT).await, Err(BusError::NoResponders { .. })) {}
    })
    .await;

    publish(silent.port(), "note", "").await;
    let mut notes = asker.port().subscribe("note").await.unwrap();
    publish(silent.port(), "note", "").await;
    let refused = next(&mut notes).await.respond(Bytes::new()).await;
    assert_eq!(refused, Err(BusError::NoReplyExpected { subject: "note".to_owned() }));
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

    bus.publish("s", payload.slice(1..)).await.unwrap();
    assert_eq!(next(&mut subscription).await.payload.len(), limit);
    let answering = async {
        let question = next(&mut subscription).await;
        assert!(matches!(question.respond(payload.clone()).await, Err(BusError::TooLarge { .. })));
        question.respond(payload.slice(1..)).await.unwrap();
    };
    let (answer, ()) = tokio::join!(ask(bus, "s", "", LONG), answering);
    assert_eq!(answer.map(|answer| answer.len()), Ok(limit));
}

/// While the bus cannot be reached calls fail; afterwards subscriptions go on.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_16_while_cut_calls_fail_and_subscriptions_resume(factory: &dyn BusFactory) {
    let (cut, other) = (factory.connect("b16").await, factory.connect("b16").await);
    let mut subscription = cut.port().subscribe("s").await.unwrap();
    cut.cut().await;
    let failed = [
        within("publish", cut.port().publish("s", Bytes::new())).await.err(),
        within("subscribe", cut.port().subscribe("t")).await.err(),
        ask(cut.port(), "s", "", LONG).await.err(),
    ];
    for error in failed {
        assert!(matches!(error, Some(BusError::Unavailable { .. })), "{error:?}");
    }
    publish(other.port(), "s", "missed").await;
    cut.restore().await;
    publish(other.port(), "s", "heard").await;
    // A bus may have kept what was sent meanwhile; rule 3 promises neither.
    while next(&mut subscription).await.payload != "heard" {}
}
