//! The port's calls on one connection.
//!
//! Checks what the contract checks, turns relative subjects into the server's and errors into the port's. Must not keep
//! state of its own: the connection and its inbox have it.

use crate::{
    NatsError, NatsOptions,
    connection::{Outgoing, Wire},
    inbox::Reply,
    subscriptions::forward,
};
use async_nats::{Subject, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use switchtower_cluster::{
    BusError, ClusterName, EventBus, Headers, PortHealth, Responder, SUBSCRIPTION_LIMITS, Subscription,
    check_pattern, check_subject,
};
use switchtower_runtime::{CancellationToken, TaskGroup};

/// [`EventBus`] on NATS: one process's connection to one cluster. Clones are the same connection, which ends with the last
/// of them.
#[derive(Clone)]
pub struct NatsBus {
    handle: Arc<Handle>,
}

struct Handle {
    wire: Arc<Wire>,
    tasks: TaskGroup,
}

impl NatsBus {
    /// Checks the options and begins to connect. No server need be there: the attempts go on in the background, with
    /// growing waits and for ever, calls fail with `Unavailable` meanwhile, and [`EventBus::health`] says what is wrong.
    ///
    /// When the token of `tasks` is cancelled, what was published is still brought to the server if that is possible
    /// within [`NatsOptions::call_limit`]; then the connection is closed and subscriptions end. Give it a group whose turn
    /// in the shutdown comes after everyone who publishes.
    ///
    /// # Errors
    /// Options that cannot work, or files of theirs that cannot be read: nothing that trying again would mend.
    pub async fn connect(
        options: NatsOptions,
        cluster: &ClusterName,
        tasks: &TaskGroup,
    ) -> Result<Self, NatsError> {
        let tasks = tasks.child("nats");
        let (wire, replies) = Wire::connect(options, cluster).await?;
        tasks.spawn_named("replies", take_replies(Arc::clone(&wire), replies));
        tasks.spawn_named("close", close_when(tasks.shutdown_token(), Arc::clone(&wire)));
        Ok(Self { handle: Arc::new(Handle { wire, tasks }) })
    }

    fn wire(&self) -> &Arc<Wire> {
        &self.handle.wire
    }
}

#[async_trait]
impl EventBus for NatsBus {
    async fn publish_with(&self, subject: &str, headers: Headers, payload: Bytes) -> Result<(), BusError> {
        check_subject(subject)?;
        let wire = self.wire();
        wire.check_size(subject, &payload)?;
        let outgoing = Outgoing { headers, payload, ..Outgoing::new(wire.absolute(subject)) };
        wire.send("publish a message", outgoing).await
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        const OPERATION: &str = "subscribe";
        check_pattern(pattern)?;
        let wire = self.wire();
        wire.check_connected(OPERATION)?;
        let (sender, subscription) = Subscription::channel(SUBSCRIPTION_LIMITS);
        let sender = Arc::new(sender);
        let opening = wire.subscriptions.open(wire.client(), wire.absolute(pattern), Some(&sender));
        let opened = wire.in_time(OPERATION, opening).await?;
        let (number, subscriber) = opened.map_err(|_| wire.unavailable(OPERATION))?;
        // The task begins now, so that nothing that comes in while we wait fills the library's queue.
        let forwarding = forward(Arc::clone(wire), number, subscriber, sender);
        self.handle.tasks.spawn_named("subscription", forwarding);
        wire.round_trip(OPERATION).await?;
        Ok(subscription)
    }

    async fn request_with(
        &self,
        subject: &str,
        headers: Headers,
        payload: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, BusError> {
        const OPERATION: &str = "send a request";
        check_subject(subject)?;
        let wire = self.wire();
        wire.check_size(subject, &payload)?;
        let waiting = wire.inbox.expect(wire.connections());
        let reply = Some(waiting.subject().into());
        let outgoing = Outgoing { reply, headers, payload, ..Outgoing::new(wire.absolute(subject)) };
        let asking = async {
            wire.send(OPERATION, outgoing).await?;
            match waiting.reply().await {
                Reply::Answer(payload) => Ok(payload),
                Reply::NoResponders => Err(BusError::NoResponders { subject: subject.to_owned() }),
                Reply::Lost => Err(wire.unavailable(OPERATION)),
            }
        };
        let deadline_ms = deadline.as_millis();
        let in_time = tokio::time::timeout(deadline, asking).await;
        in_time.map_err(|_| BusError::Deadline { subject: subject.to_owned(), deadline_ms })?
    }

    fn max_payload(&self) -> usize {
        self.wire().max_payload()
    }

    fn health(&self) -> PortHealth {
        self.wire().health()
    }
}

/// Answers one request.
pub(crate) struct NatsResponder {
    pub(crate) wire: Arc<Wire>,
    /// Of the request, for errors.
    pub(crate) subject: String,
    pub(crate) reply: Subject,
}

#[async_trait]
impl Responder for NatsResponder {
    async fn respond(&self, payload: Bytes) -> Result<(), BusError> {
        self.wire.check_size(&self.subject, &payload)?;
        let outgoing = Outgoing { payload, ..Outgoing::new(self.reply.clone()) };
        self.wire.send("answer a request", outgoing).await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.wire.end();
    }
}

async fn take_replies(wire: Arc<Wire>, mut replies: Subscriber) {
    loop {
        tokio::select! {
            reply = replies.next() => match reply {
                Some(reply) => wire.inbox.deliver(reply),
                None => return,
            },
            () = wire.ended() => return,
        }
    }
}

async fn close_when(shutdown: CancellationToken, wire: Arc<Wire>) {
    tokio::select! {
        () = shutdown.cancelled() => wire.close().await,
        () = wire.ended() => {}
    }
}
