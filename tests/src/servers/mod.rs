//! Real servers for the tests: found, started on free ports with data of their own, broken in every way that tests
//! ask for, and killed when their handles drop.
//!
//! Knows nothing of the ports that are tested on them. [`process`] is any child process, [`proxy`] stands between a
//! client and a server and fails as networks do; the modules beside them know one server each.

pub mod etcd;
pub mod nats;
pub mod process;
pub mod proxy;

use anyhow::Context;
use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// How long anything that should happen may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server's program: one of the versions found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl Program {
    /// Every version there is: those that the environment variable `variable` lists, separated by colons; without it those
    /// that `tests/run` put into `tests/.servers`; without these the one on `PATH` or in `/usr/sbin`.
    ///
    /// # Errors
    /// There is none, or one that is listed does not exist; says what to do.
    pub fn find_all(variable: &str, name: &str) -> anyhow::Result<Vec<Self>> {
        if let Some(listed) = std::env::var_os(variable).filter(|listed| !listed.is_empty()) {
            let programs: Vec<Self> = std::env::split_paths(&listed).map(|path| Self { path }).collect();
            let missing = programs.iter().find(|program| !program.path.is_file());
            anyhow::ensure!(missing.is_none(), "{variable} names {missing:?}, which is not there");
            return Ok(programs);
        }
        let installed = Self::installed(name);
        if !installed.is_empty() {
            return Ok(installed);
        }
        let searched = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&searched).chain([PathBuf::from("/usr/sbin")]);
        let path = folders.map(|folder| folder.join(name));
        let found = path.into_iter().find(|path| path.is_file()).with_context(|| {
            format!("no `{name}` found: run `tests/run` once, or set {variable} to one or more programs")
        })?;
        Ok(vec![Self { path: found }])
    }

    fn installed(name: &str) -> Vec<Self> {
        let versions = ["debian", "pypi"].map(|version| format!("tests/.servers/{name}-{version}"));
        let paths = versions.map(|version| crate::repository().join(version));
        paths.into_iter().filter(|path| path.is_file()).map(|path| Self { path }).collect()
    }

    /// Its file's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}

/// A port of the loopback address that nobody listens on, and that no other test will be given while this process lives:
/// a server that was killed finds its port free, and nobody else answers on it meanwhile.
///
/// Ports come in blocks. A process holds a block by listening on its first port, and gives every other port in it once.
/// All lie below the range from which systems give ports to clients.
///
/// # Panics
/// No block is free.
#[must_use]
pub fn free_port() -> u16 {
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if ports.next == ports.end {
            ports.take_block();
        }
        let port = ports.next;
        ports.next += 1;
        if listen(port).is_some() {
            return port;
        }
    }
}

/// The ports of this process.
static PORTS: Mutex<Ports> = Mutex::new(Ports { held: Vec::new(), next: 0, end: 0 });

struct Ports {
    /// Listens on the first port of every block that was taken.
    held: Vec<TcpListener>,
    next: u16,
    end: u16,
}

impl Ports {
    const FIRST: u16 = 10_000;
    const BLOCKS: u16 = 400;
    const PER_BLOCK: u16 = 50;

    fn take_block(&mut self) {
        let start = RandomState::new().hash_one(std::process::id()) % u64::from(Self::BLOCKS);
        let start = u16::try_from(start).unwrap_or(0);
        let firsts =
            (0..Self::BLOCKS).map(|step| (start + step) % Self::BLOCKS * Self::PER_BLOCK + Self::FIRST);
        let (first, held) = firsts
            .into_iter()
            .find_map(|first| Some((first, listen(first)?)))
            .expect("a free block of ports between 10000 and 30000");
        self.held.push(held);
        (self.next, self.end) = (first + 1, first + Self::PER_BLOCK);
    }
}

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

/// Waits until `condition` holds.
///
/// # Panics
/// It does not hold within `deadline`; names `what`.
pub async fn eventually(what: &str, deadline: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + deadline;
    loop {
        match tokio::time::timeout_at(end, condition()).await {
            Ok(true) => return,
            Ok(false) if Instant::now() < end => sleep(Duration::from_millis(20)).await,
            _ => panic!("waited {deadline:?} in vain: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ports_are_free_below_those_of_clients_and_given_once() {
        let ports: BTreeSet<u16> = (0..200).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 200);
        assert!(ports.iter().all(|port| (10_000..30_000).contains(port) && listen(*port).is_some()));
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_what_to_do() {
        let error = Program::find_all("SWITCHTOWER_TEST_NOTHING", "no-such-server").unwrap_err().to_string();
        assert!(error.contains("no-such-server") && error.contains("tests/run"), "{error}");
    }

    #[tokio::test]
    #[should_panic(expected = "in vain: the impossible")]
    async fn what_never_holds_ends_the_test() {
        eventually("the impossible", Duration::from_millis(50), async || false).await;
    }
}
