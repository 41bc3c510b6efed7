//! SIGINT and SIGTERM. The first asks for an orderly end, the second for an end at once.
//!
//! Must not decide in which order things end: that is the caller's visible shutdown function. Called once, by `main`.

use crate::tasks::TaskGroup;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that was told twice: 128 + SIGINT, as shells report it.
pub const EXIT_CODE_FORCED: i32 = 130;

/// The handlers could not be installed.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for SIGINT and SIGTERM ({0}): check the process's signal limits")]
pub struct SignalError(#[from] io::Error);

/// The wish to shut down, as a token.
#[derive(Clone, Debug)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// Listens from now on. The first SIGINT or SIGTERM cancels [`token`](Self::token); a second one exits the process
    /// at once with code [`EXIT_CODE_FORCED`], whatever still runs.
    ///
    /// The token is also cancelled when `group`'s token is: a vital task that fails ends the process the same way.
    ///
    /// # Errors
    /// When the operating system refuses the handlers.
    pub fn listen(group: &TaskGroup) -> Result<Self, SignalError> {
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let token = group.shutdown_token().child_token();
        // A token of its own: the listener must live through the shutdown to see the second signal, and ends with the
        // runtime. So it belongs to a group that nobody waits for.
        TaskGroup::new().spawn_named("signals", follow(interrupt, terminate, token.clone()));
        Ok(Self { token })
    }

    /// Cancelled once the process shall end.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Waits until the process shall end.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }
}

async fn follow(mut interrupt: Signal, mut terminate: Signal, token: CancellationToken) {
    let name = either(&mut interrupt, &mut terminate).await;
    tracing::info!(signal = name, "shutting down; signal again to exit at once");
    token.cancel();
    let name = either(&mut interrupt, &mut terminate).await;
    tracing::warn!(signal = name, "second signal: exiting at once");
    std::process::exit(EXIT_CODE_FORCED);
}

async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> &'static str {
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader, Lines},
        process::{Child, ChildStdout, Command, Stdio},
    };

    /// The process that the test below signals; not a test of its own.
    #[tokio::test]
    #[ignore = "run as a child process by `the_first_signal_cancels_and_the_second_exits_with_130`"]
    async fn child_that_never_ends_by_itself() {
        let shutdown = Shutdown::listen(&TaskGroup::new()).unwrap();
        println!("\nlistening");
        shutdown.requested().await;
        println!("\ncancelled");
        std::future::pending::<()>().await;
    }

    fn wait_for_line(lines: &mut Lines<BufReader<ChildStdout>>, wanted: &str) {
        assert!(lines.any(|line| line.is_ok_and(|text| text == wanted)), "the child never said `{wanted}`");
    }

    fn send(signal: &str, child: &Child) {
        let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    #[test]
    fn the_first_signal_cancels_and_the_second_exits_with_130() {
        for (first, second) in [("-TERM", "-INT"), ("-INT", "-TERM")] {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "signals::tests::child_that_never_ends_by_itself",
                    "--ignored",
                    "--nocapture",
                ])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            wait_for_line(&mut lines, "listening");
            send(first, &child);
            wait_for_line(&mut lines, "cancelled");
            send(second, &child);
            assert_eq!(child.wait().unwrap().code(), Some(EXIT_CODE_FORCED));
        }
    }

    #[tokio::test]
    async fn a_vital_tasks_failure_is_a_wish_to_shut_down() {
        let group = TaskGroup::new();
        let shutdown = Shutdown::listen(&group).unwrap();
        group.spawn("vital", crate::OnError::ShutDown, async { Err("gone") });
        shutdown.requested().await;
        assert!(group.failure().is_some());
    }
}
