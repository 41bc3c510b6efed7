//! The one task that keeps a session with one of the endpoints, and how calls get at it.
//!
//! A session is given up when its endpoint gives no sign of life, when a call finds its token stale, or when a call
//! fails and the probe that follows fails too. Must not know what is stored. Calls, watches and leases use it.

use crate::{EtcdOptions, error::Fault, session::Session};
use etcd_client::ConnectOptions;
use futures::FutureExt;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use switchtower_cluster::HealthRecord;
use switchtower_runtime::{
    CancellationToken,
    retry::{Backoff, Failures},
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout, timeout_at},
};

/// Whether a call that got no answer may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It changes nothing, or nothing the second time.
    Freely,
    /// It may have changed something, and a second change would be another one.
    Never,
}

/// The connection to a cluster of etcd members.
pub(crate) struct Connection {
    pub(crate) options: EtcdOptions,
    /// What every key begins with: `/switchtower/<escaped cluster>/`.
    pub(crate) root: String,
    pub(crate) health: HealthRecord,
    /// Cancelled when the connection ends for good.
    pub(crate) closed: CancellationToken,
    with_user: ConnectOptions,
    without_user: ConnectOptions,
    /// The last session; `None` while there is none.
    sessions: watch::Sender<Option<Arc<Session>>>,
    suspicion: Notify,
}

impl Connection {
    /// A connection that nobody keeps yet: see [`run`](Self::run).
    pub(crate) fn new(options: EtcdOptions, root: String) -> Result<Self, crate::EtcdError> {
        let with_user = options.connect_options()?;
        let anonymous = EtcdOptions { username: None, password: None, ..options.clone() };
        Ok(Self {
            without_user: anonymous.connect_options()?,
            with_user,
            options,
            root,
            health: HealthRecord::default(),
            closed: CancellationToken::new(),
            sessions: watch::channel(None).0,
            suspicion: Notify::new(),
        })
    }

    /// Keeps a session with one endpoint after the other, for ever.
    pub(crate) async fn run(&self) {
        let mut backoff = Backoff::new(self.options.retry_times());
        let mut failures = Failures::default();
        let mut said = Vec::new();
        for endpoint in self.options.endpoints.iter().cycle() {
            match self.one_session(endpoint, &mut failures).await {
                Served::Well => {
                    backoff.reset();
                    said.clear();
                }
                Served::Badly(fault) => said.push(format!("{endpoint}: {fault}")),
            }
            if said.len() >= self.options.endpoints.len() {
                let round = said.join("; ");
                self.health.disconnected(&round);
                failures.failed("connecting to etcd", &round);
                said.clear();
                sleep(backoff.next_delay()).await;
            }
        }
    }

    /// A session from its first answer to its end. A panic in the client is its end too.
    async fn one_session(&self, endpoint: &str, failures: &mut Failures) -> Served {
        let session = match guarded(Box::pin(self.open(endpoint))).await {
            Ok(session) => Arc::new(session),
            Err(fault) => return Served::Badly(fault),
        };
        tracing::info!(endpoint, "connected to etcd");
        *failures = Failures::default();
        self.health.connected();
        self.sessions.send_replace(Some(Arc::clone(&session)));
        let mut proven = false;
        let fault = guarded(self.guard(&session, &mut proven)).await.err();
        let fault = fault.unwrap_or_else(|| Fault::StaleToken("the credentials are renewed".to_owned()));
        session.lost.cancel();
        if !matches!(fault, Fault::StaleToken(_)) {
            session.dead.cancel();
        }
        self.sessions.send_replace(None);
        self.health.disconnected(format!("{endpoint}: {fault}"));
        tracing::warn!(endpoint, error = %fault, "lost the connection to etcd");
        if proven { Served::Well } else { Served::Badly(fault) }
    }

    async fn open(&self, endpoint: &str) -> Result<Session, Fault> {
        let limit = self.options.connect_timeout;
        let opening = async {
            let session = Session::open(endpoint, &self.with_user, &self.without_user).await?;
            session.probe(&self.root).await?;
            Ok(session)
        };
        timeout(limit, opening).await.unwrap_or_else(|_| Err(Fault::timed_out("connecting", limit)))
    }

    /// Asks for signs of life until there is none, or until the session is given up by a call.
    async fn guard(&self, session: &Session, proven: &mut bool) -> Result<(), Fault> {
        loop {
            tokio::select! {
                () = session.lost.cancelled() => return Ok(()),
                () = sleep(self.options.probe_interval) => {}
                () = self.suspicion.notified() => {}
            }
            // An answer that is an error may be an election; no answer is none.
            if let Err(fault) = self.probe(session).await {
                if !matches!(fault, Fault::Unreachable(_)) {
                    return Err(fault);
                }
                self.probe(session).await?;
            }
            *proven = true;
        }
    }

    async fn probe(&self, session: &Session) -> Result<(), Fault> {
        let limit = self.options.probe_timeout;
        match timeout(limit, session.probe(&self.root)).await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::Refused(format!("no sign of life within {} ms", limit.as_millis()))),
        }
    }

    /// Has the endpoint asked for a sign of life at once.
    pub(crate) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// The session; waits for one.
    pub(crate) async fn session(&self) -> Arc<Session> {
        let mut sessions = self.sessions.subscribe();
        loop {
            let current = sessions.borrow_and_update().clone();
            if let Some(session) = current.filter(|session| !session.lost.is_cancelled()) {
                return session;
            }
            if sessions.changed().await.is_err() {
                // The sender lives in `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// One call, within the time that calls have, on as many sessions as it takes: on another one if the token was
    /// stale, and if the call may be repeated also if it got no answer.
    pub(crate) async fn call<T, F, Fut>(&self, repeat: Repeat, op: F) -> Result<T, Fault>
    where
        F: Fn(Arc<Session>) -> Fut,
        Fut: Future<Output = Result<T, Fault>>,
    {
        let limit = self.options.call_timeout;
        let end = Instant::now() + limit;
        let mut last = None;
        let attempts = async {
            let mut renewed = false;
            loop {
                let session = self.session().await;
                let outcome = tokio::select! {
                    outcome = op(Arc::clone(&session)) => outcome,
                    () = session.dead.cancelled() => Err(Fault::Unreachable("the connection was lost".to_owned())),
                };
                match outcome {
                    Err(Fault::StaleToken(_)) if !renewed => {
                        renewed = true;
                        session.lost.cancel();
                    }
                    Err(fault @ Fault::Unreachable(_)) => {
                        self.suspect();
                        if repeat == Repeat::Never {
                            return Err(fault);
                        }
                        last = Some(fault);
                        sleep(self.options.retry_first).await;
                    }
                    outcome => return outcome,
                }
            }
        };
        let outcome = timeout_at(end, attempts).await;
        outcome.unwrap_or_else(|_| {
            self.suspect();
            Err(last.or_else(|| self.lost()).unwrap_or_else(|| Fault::timed_out("the call", limit)))
        })
    }

    /// Why there is no connection, while there is none.
    fn lost(&self) -> Option<Fault> {
        let health = self.health.now();
        let error = health.last_error.filter(|_| !health.connected)?;
        Some(Fault::Unreachable(error))
    }
}

/// How a session went.
enum Served {
    /// It gave at least one sign of life after the first.
    Well,
    /// Not even that.
    Badly(Fault),
}

/// `future`, bounded.
pub(crate) async fn within<T>(
    what: &str,
    limit: Duration,
    future: impl Future<Output = Result<T, impl Into<Fault>>>,
) -> Result<T, Fault> {
    match timeout(limit, future).await {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_) => Err(Fault::timed_out(what, limit)),
    }
}

/// `future`, with a panic in it (the client has some, for answers it does not expect) as a fault like others: whoever
/// serves the cluster's records starts over and does not die.
pub(crate) async fn guarded<T>(future: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let outcome = AssertUnwindSafe(future).catch_unwind().await;
    outcome.unwrap_or_else(|_| Err(Fault::Unreachable("the client panicked".to_owned())))
}
