//! How a task ends: drives its future and turns what it returns or throws into one value. Called by `tasks` alone.

use std::{
    any::Any,
    fmt::Display,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

/// How a task failed.
pub(super) enum Failure {
    /// It returned this error.
    Error(String),
    /// It panicked with this message.
    Panic(String),
}

/// Drives `future` to its end and catches what it throws. It is not polled again after a panic.
pub(super) async fn run<F, E>(future: F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
        Ok(Poll::Ready(Err(error))) => Poll::Ready(Err(Failure::Error(error.to_string()))),
        Err(payload) => Poll::Ready(Err(Failure::Panic(panic_message(payload.as_ref())))),
    })
    .await
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "a value that is no text".to_owned())
}
