//! NATS servers for the tests: every version found, each with a configuration of its own that a test may change.
//!
//! Knows no client: readiness is the greeting that a server sends on its own.

use super::{
    PATIENCE, Program, free_port,
    process::{Launch, Process},
};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

/// How often a start is tried on other ports.
const STARTS: usize = 5;

/// Every NATS server there is: see [`Program::find_all`].
///
/// # Panics
/// There is none.
#[must_use]
pub fn programs() -> Vec<Program> {
    Program::find_all("SWITCHTOWER_TEST_NATS", "nats-server").unwrap_or_else(|error| panic!("{error:#}"))
}

/// One running server.
#[derive(Debug)]
pub struct Nats {
    process: Process,
    folder: TempDir,
    address: SocketAddr,
}

impl Nats {
    /// Starts a server without users and TLS, and waits until it serves.
    ///
    /// # Panics
    /// It does not come up.
    pub async fn start(program: &Program) -> Self {
        Self::start_with(program, "").await
    }

    /// Starts a server with these lines in its configuration, and waits until it serves.
    ///
    /// # Panics
    /// It does not come up.
    pub async fn start_with(program: &Program, config: &str) -> Self {
        let mut error = None;
        for _ in 0..STARTS {
            match Self::try_start(program, config).await {
                Ok(started) => return started,
                Err(failure) => error = Some(failure),
            }
        }
        panic!("NATS did not start: {error:?}");
    }

    async fn try_start(program: &Program, config: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        write_config(folder.path(), address, config)?;
        let launch = Launch {
            program: program.clone(),
            args: vec!["--config".into(), folder.path().join("config").into()],
            envs: Vec::new(),
            log: folder.path().join("log"),
        };
        let mut started = Self { process: Process::start(launch)?, folder, address };
        started.until_ready().await?;
        Ok(started)
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients connect to, as an address of NATS.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// A folder that lives as long as this handle, for files that the configuration names.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Freezes it.
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Lets it go on.
    pub fn cont(&self) {
        self.process.cont();
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Kills it if it runs and starts it again on its port. Returns when it serves.
    ///
    /// # Panics
    /// It does not come up.
    pub async fn restart(&mut self) {
        self.process.restart().unwrap_or_else(|error| panic!("{error:#}"));
        self.until_ready().await.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// As [`restart`](Self::restart), with these lines in its configuration from now on.
    ///
    /// # Panics
    /// It does not come up.
    pub async fn restart_with(&mut self, config: &str) {
        self.process.kill();
        write_config(self.folder.path(), self.address, config).expect("a file in a temporary folder");
        self.restart().await;
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    async fn until_ready(&mut self) -> anyhow::Result<()> {
        let address = self.address;
        self.process.until_ready(PATIENCE, async || greets(address).await).await
    }
}

fn write_config(folder: &Path, address: SocketAddr, config: &str) -> std::io::Result<()> {
    fs::write(folder.join("config"), format!("listen: \"{address}\"\n{config}\n"))
}

/// Whether a server says its first word.
async fn greets(address: SocketAddr) -> bool {
    let greeting = async {
        let mut word = [0; 4];
        TcpStream::connect(address).await?.read_exact(&mut word).await?;
        Ok::<_, std::io::Error>(&word == b"INFO")
    };
    timeout(Duration::from_secs(5), greeting).await.is_ok_and(|greeting| greeting.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_version_starts_and_restarts_and_takes_a_configuration() {
        for program in programs() {
            let mut nats = Nats::start(&program).await;
            nats.restart().await;
            nats.kill();
            assert!(!greets(nats.address()).await);
            nats.restart_with("max_payload: 4096").await;
            let mut hello = vec![0; 2048];
            let mut stream = TcpStream::connect(nats.address()).await.unwrap();
            let count = stream.read(&mut hello).await.unwrap();
            assert!(String::from_utf8_lossy(&hello[..count]).contains("\"max_payload\":4096"), "{program}");
        }
    }
}
