//! etcd for the tests: single members and clusters of every version found, with data of their own.
//!
//! What tests ask of the server itself (leases, compaction, users) goes through its JSON gateway, so that it does not
//! lean on the client under test.

use super::{
    PATIENCE, Program, free_port,
    process::{Launch, Process},
};
use anyhow::Context;
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

/// Every etcd there is: see [`Program::find_all`].
///
/// # Panics
/// There is none.
#[must_use]
pub fn programs() -> Vec<Program> {
    Program::find_all("SWITCHTOWER_TEST_ETCD", "etcd").unwrap_or_else(|error| panic!("{error:#}"))
}

/// What differs from a member without TLS and users.
#[derive(Clone, Debug, Default)]
pub struct EtcdSetup {
    /// The server's certificate and key, and whom it trusts to be clients: it then speaks only TLS, also at the gateway,
    /// which tests cannot use.
    pub tls: Option<EtcdTls>,
    /// More arguments.
    pub args: Vec<OsString>,
}

/// Files of a server that speaks TLS.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// Its certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who signs its clients' certificates; it then demands one.
    pub client_ca: Option<PathBuf>,
}

/// One running member.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    member: Member,
}

/// Where a member stands.
#[derive(Debug)]
struct Member {
    folder: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    tls: bool,
}

/// How often a start is tried on other ports.
const STARTS: usize = 5;

impl Etcd {
    /// Starts a member alone and waits until it serves.
    ///
    /// # Panics
    /// It does not come up.
    pub async fn start(program: &Program) -> Self {
        Self::start_with(program, &EtcdSetup::default()).await
    }

    /// Starts a member alone with a setup and waits until it serves.
    ///
    /// # Panics
    /// It does not come up.
    pub async fn start_with(program: &Program, setup: &EtcdSetup) -> Self {
        let members = start_members(program, setup, 1).await;
        members.into_iter().next().expect("one was started")
    }

    /// Starts `count` members as one cluster and waits until each serves.
    ///
    /// # Panics
    /// They do not come up.
    pub async fn start_cluster(program: &Program, count: usize) -> Vec<Self> {
        start_members(program, &EtcdSetup::default(), count).await
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.member.client
    }

    /// Where clients connect to, as an endpoint.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.member.endpoint()
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

    /// Kills it if it runs and starts it again with its data. Returns when it serves.
    ///
    /// # Panics
    /// It does not come up.
    pub async fn restart(&mut self) {
        self.process.restart().unwrap_or_else(|error| panic!("{error:#}"));
        self.until_ready().await.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// As [`restart`](Self::restart), with nothing left of its data. For a member that stands alone.
    ///
    /// # Panics
    /// It does not come up.
    pub async fn restart_empty(&mut self) {
        self.process.kill();
        std::fs::remove_dir_all(self.member.data()).expect("the data of a member that ran");
        self.restart().await;
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Asks the JSON gateway: `lease/leases`, `kv/compaction`.
    ///
    /// # Panics
    /// It refuses or does not answer.
    pub async fn ask(&self, path: &str, question: &Value) -> Value {
        let answer = post(self.member.client, path, question, None).await;
        answer.unwrap_or_else(|error| panic!("etcd refused {path} {question}: {error:#}"))
    }

    /// As [`ask`](Self::ask), as the user `root` once users are demanded. A token that runs out on the way is renewed.
    ///
    /// # Panics
    /// It refuses or does not answer.
    pub async fn ask_as_root(&self, password: &str, path: &str, question: &Value) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let root = json!({"name": "root", "password": password});
            let authenticated = self.ask("auth/authenticate", &root).await;
            let answer = post(self.member.client, path, question, authenticated["token"].as_str()).await;
            match answer {
                Ok(answer) => return answer,
                Err(error) if error.to_string().contains("auth token") && Instant::now() < end => {}
                Err(error) => panic!("etcd refused {path} {question}: {error:#}"),
            }
        }
    }

    /// Revokes all leases there are: what a loss of the lease store looks like to clients.
    ///
    /// # Panics
    /// It does not answer.
    pub async fn revoke_all_leases(&self) {
        let leases = self.ask("lease/leases", &json!({})).await;
        for lease in leases["leases"].as_array().into_iter().flatten() {
            // One that ran out meanwhile is as good as revoked.
            let _ = post(self.member.client, "lease/revoke", &json!({"ID": lease["ID"]}), None).await;
        }
    }

    /// Forgets all of the history up to now.
    ///
    /// # Panics
    /// It does not answer.
    pub async fn compact(&self) {
        let now = self.ask("kv/range", &json!({"key": "AA==", "limit": 1})).await;
        let revision = &now["header"]["revision"];
        let compacted = post(self.member.client, "kv/compaction", &json!({"revision": revision}), None).await;
        // Somebody may have compacted up to the same revision.
        let already = compacted.as_ref().is_err_and(|error| error.to_string().contains("has been compacted"));
        assert!(compacted.is_ok() || already, "cannot compact: {compacted:?}");
    }

    /// Creates the user `root` with a password, and demands users from now on.
    ///
    /// # Panics
    /// It refuses.
    pub async fn enable_users(&self, password: &str) {
        self.ask("auth/user/add", &json!({"name": "root", "password": password})).await;
        self.ask("auth/role/add", &json!({"name": "root"})).await;
        self.ask("auth/user/grant", &json!({"user": "root", "role": "root"})).await;
        self.ask("auth/enable", &json!({})).await;
    }

    async fn until_ready(&mut self) -> anyhow::Result<()> {
        let (client, tls) = (self.member.client, self.member.tls);
        let ready = async || if tls { listens(client).await } else { serves(client).await };
        self.process.until_ready(PATIENCE, ready).await
    }
}

impl Member {
    fn new(tls: bool) -> Self {
        let local = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, client: local(), peer: local(), tls }
    }

    fn endpoint(&self) -> String {
        format!("http{}://{}", if self.tls { "s" } else { "" }, self.client)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn launch(&self, program: &Program, setup: &EtcdSetup, cluster: (&str, &str)) -> Launch {
        let (name, members) = cluster;
        let peer = format!("http://{}", self.peer);
        let mut args = Vec::new();
        let mut set = |flag: &str, value: &dyn AsRef<Path>| {
            args.push(OsString::from(format!("--{flag}")));
            args.push(value.as_ref().as_os_str().to_owned());
        };
        set("name", &name);
        set("data-dir", &self.data());
        set("listen-client-urls", &self.endpoint());
        set("advertise-client-urls", &self.endpoint());
        set("listen-peer-urls", &peer);
        set("initial-advertise-peer-urls", &peer);
        set("initial-cluster", &members);
        // Short enough that a test need not wait, long enough for a busy machine.
        set("heartbeat-interval", &"100");
        set("election-timeout", &"1000");
        if let Some(tls) = &setup.tls {
            set("cert-file", &tls.cert);
            set("key-file", &tls.key);
            if let Some(ca) = &tls.client_ca {
                set("trusted-ca-file", ca);
                args.push("--client-cert-auth".into());
            }
        }
        args.extend(setup.args.iter().cloned());
        Launch { program: program.clone(), args, envs: Vec::new(), log: self.folder.path().join("log") }
    }
}

async fn start_members(program: &Program, setup: &EtcdSetup, count: usize) -> Vec<Etcd> {
    let mut error = None;
    for _ in 0..STARTS {
        match try_start_members(program, setup, count).await {
            Ok(members) => return members,
            Err(failure) => error = Some(failure),
        }
    }
    panic!("etcd did not start: {error:?}");
}

async fn try_start_members(program: &Program, setup: &EtcdSetup, count: usize) -> anyhow::Result<Vec<Etcd>> {
    let members: Vec<Member> = (0..count).map(|_| Member::new(setup.tls.is_some())).collect();
    let names: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    let cluster = members.iter().zip(&names).map(|(member, name)| format!("{name}=http://{}", member.peer));
    let cluster = cluster.collect::<Vec<_>>().join(",");
    let mut started = Vec::new();
    for (member, name) in members.into_iter().zip(&names) {
        let process = Process::start(member.launch(program, setup, (name, &cluster)))?;
        started.push(Etcd { process, member });
    }
    for etcd in &mut started {
        etcd.until_ready().await?;
    }
    Ok(started)
}

async fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_ok()
}

/// Whether it answers a read that needs a leader. Users may be demanded: a refusal is an answer too.
async fn serves(address: SocketAddr) -> bool {
    let asked = post(address, "kv/range", &json!({"key": "AA==", "limit": 1}), None).await;
    match asked {
        Ok(_) => true,
        Err(error) => error.to_string().contains("user name is empty"),
    }
}

/// One question to the JSON gateway.
async fn post(
    address: SocketAddr,
    path: &str,
    question: &Value,
    token: Option<&str>,
) -> anyhow::Result<Value> {
    let body = question.to_string();
    let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
    let request = format!(
        "POST /v3/{path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n{token}\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = timeout(Duration::from_secs(10), exchange(address, &request)).await??;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the headers")?;
    let status = head.lines().next().unwrap_or_default();
    anyhow::ensure!(status.contains(" 200 "), "{status}: {body}");
    // Long answers come in chunks; the JSON text is what lies between the first brace and the last.
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        unchunk(body)
    } else {
        body.to_owned()
    };
    Ok(serde_json::from_str(&body)?)
}

async fn exchange(address: SocketAddr, request: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8(answer)?)
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || size > rest.len() {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_version_starts_restarts_and_forgets() {
        for program in programs() {
            let mut etcd = Etcd::start(&program).await;
            etcd.ask("kv/put", &json!({"key": "YQ==", "value": "YQ=="})).await;
            let read = json!({"key": "YQ=="});
            etcd.restart().await;
            assert_eq!(etcd.ask("kv/range", &read).await["count"], "1", "{program}");
            etcd.compact().await;
            etcd.restart_empty().await;
            assert_eq!(etcd.ask("kv/range", &read).await["count"], Value::Null, "{program}");
        }
    }
}
