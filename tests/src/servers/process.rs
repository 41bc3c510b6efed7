//! A child process of a test: its output in a file, killed and reaped when its handle drops.
//!
//! Must outlive nothing: a child that was stopped is killed too. Knows no server; those build on it.

use super::{Program, eventually};
use anyhow::Context;
use std::{
    ffi::OsString,
    fmt,
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub program: Program,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables it gets beside those of the test.
    pub envs: Vec<(OsString, OsString)>,
    /// Where standard output and standard error go; every start appends.
    pub log: PathBuf,
}

/// A running (or stopped, or killed) child.
pub struct Process {
    launch: Launch,
    child: Child,
}

impl Process {
    /// Starts it. It may not be ready yet: see [`until_ready`](Self::until_ready).
    ///
    /// # Errors
    /// The program or its log file cannot be opened.
    pub fn start(launch: Launch) -> anyhow::Result<Self> {
        let child = spawn(&launch)?;
        Ok(Self { launch, child })
    }

    /// Waits until `ready` holds.
    ///
    /// # Errors
    /// The process ended before that, or it took longer than `deadline`; shows the end of its log.
    pub async fn until_ready(
        &mut self,
        deadline: Duration,
        mut ready: impl AsyncFnMut() -> bool,
    ) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + deadline;
        loop {
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("{} ended with {status}; its log:\n{}", self.launch.program, self.log_end());
            }
            match tokio::time::timeout_at(end, ready()).await {
                Ok(true) => return Ok(()),
                Ok(false) if tokio::time::Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                _ => anyhow::bail!(
                    "{} was not ready within {deadline:?}; its log:\n{}",
                    self.launch.program,
                    self.log_end()
                ),
            }
        }
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Freezes it: connections stay open and nothing moves.
    ///
    /// # Panics
    /// It cannot be signalled.
    pub fn stop(&self) {
        self.signal("STOP");
    }

    /// Lets a frozen one go on.
    ///
    /// # Panics
    /// It cannot be signalled.
    pub fn cont(&self) {
        self.signal("CONT");
    }

    /// Asks it to end, as an operator's or a supervisor's SIGTERM does.
    ///
    /// # Panics
    /// It cannot be signalled.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Kills it and waits until it is gone. Killing it twice is fine.
    pub fn kill(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it if it runs, and starts it again with the same arguments.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill();
        self.child = spawn(&self.launch)?;
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It did not end within `deadline`.
    pub async fn ended(&mut self, deadline: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.launch.program);
        let mut status = None;
        eventually(&what, deadline, async || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })
        .await;
        status.expect("`eventually` returned")
    }

    /// Everything it has written so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(&self.launch.log)
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn signal(&self, signal: &str) {
        // The shell's own `kill`: a machine may lack the program.
        let status = Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.child.id())]).status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "cannot send {signal} to {}",
            self.launch.program
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("launch", &self.launch).field("id", &self.id()).finish()
    }
}

fn spawn(launch: &Launch) -> anyhow::Result<Child> {
    let output = open(&launch.log)?;
    let errors = output.try_clone()?;
    Command::new(&launch.program.path)
        .args(&launch.args)
        .envs(launch.envs.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("cannot start {}", launch.program))
}

fn open(log: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(log);
    opened.with_context(|| format!("cannot open {}", log.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(folder: &tempfile::TempDir, script: &str) -> Launch {
        Launch {
            program: Program { path: PathBuf::from("/bin/sh") },
            args: vec!["-c".into(), script.into()],
            envs: Vec::new(),
            log: folder.path().join("log"),
        }
    }

    #[tokio::test]
    async fn a_start_that_fails_shows_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::start(launch(&folder, "echo port in use; exit 3")).unwrap();
        let error = process.until_ready(super::super::PATIENCE, async || false).await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains("port in use") && error.contains('3'), "{error}");
    }

    #[tokio::test]
    async fn a_stopped_process_dies_with_its_handle() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::start(launch(&folder, "echo up; while :; do :; done")).unwrap();
        let log = folder.path().join("log");
        let up = async || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("up"));
        process.until_ready(super::super::PATIENCE, up).await.unwrap();
        process.stop();
        let id = process.id();
        drop(process);
        let alive = Command::new("sh").args(["-c", &format!("kill -0 {id} 2>/dev/null")]).status().unwrap();
        assert!(!alive.success(), "process {id} still lives");
    }
}
