//! The rules of the bus about requests, and about connections that come and go, as tests; see the trait
//! [`EventBus`](crate::EventBus). Called from each implementation's tests.

use super::{
    BusFactory,
    bus::{LONG, ask, next, publish},
    within,
};
use crate::BusError;
use bytes::Bytes;
use std::time::Duration;

/// A deadline that is meant to pass.
const SHORT: Duration = Duration::from_millis(50);

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

/// An answer that comes late is no error and is never taken for the answer to another request.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_14_a_late_answer_goes_nowhere(factory: &dyn BusFactory) {
    let (asker, answerer) = (factory.connect("b14-late").await, factory.connect("b14-late").await);
    let mut questions = answerer.port().subscribe("ask").await.unwrap();
    let late = ask(asker.port(), "ask", "1", SHORT).await;
    assert!(matches!(late, Err(BusError::Deadline { .. })), "{late:?}");
    let first = next(&mut questions).await;
    let answering = async {
        let second = next(&mut questions).await;
        first.respond(Bytes::from_static(b"to 1")).await.unwrap();
        second.respond(Bytes::from_static(b"to 2")).await.unwrap();
    };
    let (answer, ()) = tokio::join!(ask(asker.port(), "ask", "2", LONG), answering);
    assert_eq!(answer, Ok(Bytes::from_static(b"to 2")));
}

/// Many requests at a time each get their own answer.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_14_answers_find_their_requests(factory: &dyn BusFactory) {
    const QUESTIONS: usize = 64;
    let (asker, answerer) = (factory.connect("b14-many").await, factory.connect("b14-many").await);
    let mut questions = answerer.port().subscribe("ask").await.unwrap();
    let bus = asker.port();
    let asking = (0..QUESTIONS).map(|number| async move {
        let answer = bus.request("ask", Bytes::from(number.to_string()), LONG).await;
        assert_eq!(answer, Ok(Bytes::from(format!("to {number}"))));
    });
    let answering = async {
        let mut asked = Vec::new();
        for _ in 0..QUESTIONS {
            asked.push(next(&mut questions).await);
        }
        // The last is answered first.
        for question in asked.iter().rev() {
            let answer = [b"to ", question.payload.as_ref()].concat();
            question.respond(answer.into()).await.unwrap();
        }
    };
    within("all answers", async { tokio::join!(all(asking), answering) }).await;
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

/// While the bus cannot be reached calls fail; afterwards subscriptions go on, every time.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_16_while_cut_calls_fail_and_subscriptions_resume(factory: &dyn BusFactory) {
    let (cut, other) = (factory.connect("b16").await, factory.connect("b16").await);
    let mut subscription = cut.port().subscribe("s").await.unwrap();
    let mut questions = cut.port().subscribe("ask").await.unwrap();
    for round in 0..3 {
        assert!(cut.port().health().connected);
        cut.cut().await;
        let failed = [
            within("publish", cut.port().publish("s", Bytes::new())).await.err(),
            within("subscribe", cut.port().subscribe("t")).await.err(),
            ask(cut.port(), "s", "", LONG).await.err(),
        ];
        for error in failed {
            assert!(matches!(error, Some(BusError::Unavailable { .. })), "{error:?}");
        }
        assert!(!cut.port().health().connected);
        publish(other.port(), "s", "missed").await;
        cut.restore().await;
        let heard = format!("heard {round}");
        publish(other.port(), "s", &heard).await;
        // A bus may have kept what was sent meanwhile; rule 3 promises neither.
        while next(&mut subscription).await.payload != heard {}

        let answering = async { next(&mut questions).await.respond(Bytes::from_static(b"back")).await };
        let (answer, answered) = tokio::join!(ask(other.port(), "ask", "", LONG), answering);
        assert_eq!((answer, answered), (Ok(Bytes::from_static(b"back")), Ok(())));
    }
}

/// A request whose asker loses the connection ends in bounded time, and leaves nothing behind that harms the next.
///
/// # Panics
/// Where the contract is broken.
pub async fn rule_16_a_request_under_way_when_the_connection_goes_ends(factory: &dyn BusFactory) {
    /// What a request may take when its answer cannot come any more.
    const DEADLINE: Duration = Duration::from_secs(3);
    let (asker, answerer) = (factory.connect("b16-way").await, factory.connect("b16-way").await);
    let mut questions = answerer.port().subscribe("ask").await.unwrap();
    let cutting = async {
        let question = next(&mut questions).await;
        asker.cut().await;
        question.respond(Bytes::from_static(b"too late")).await.unwrap();
    };
    let (answer, ()) = tokio::join!(ask(asker.port(), "ask", "", DEADLINE), cutting);
    assert!(matches!(answer, Err(BusError::Unavailable { .. } | BusError::Deadline { .. })), "{answer:?}");
    asker.restore().await;
    let answering = async { next(&mut questions).await.respond(Bytes::from_static(b"in time")).await };
    let (answer, answered) = tokio::join!(ask(asker.port(), "ask", "", LONG), answering);
    assert_eq!((answer, answered), (Ok(Bytes::from_static(b"in time")), Ok(())));
}

/// Runs futures side by side to their ends.
async fn all<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut running: Vec<_> = futures.map(|future| Some(Box::pin(future))).collect();
    std::future::poll_fn(|context| {
        for slot in &mut running {
            if slot.as_mut().is_some_and(|future| future.as_mut().poll(context).is_ready()) {
                *slot = None;
            }
        }
        if running.iter().all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}
