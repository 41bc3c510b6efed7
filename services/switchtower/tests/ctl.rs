//! `switchtower ctl` against the admin API of a running `switchtower up --admin`.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Ends a test that hangs; far longer than anything takes.
const HANG: Duration = Duration::from_secs(60);

/// A running `up`, killed when dropped.
struct Up {
    process: Child,
    http: String,
    admin: String,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Up {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_switchtower"))
            .args(["up", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "2", "--ranks", "2"])
            .args(["--speed", "100"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        // Whoever stops reading ends the status lines, so that they need no reader here.
        let addresses: Vec<String> = line
            .split("http://")
            .skip(1)
            .map(|rest| rest.trim_end_matches(", admin API on ").to_owned())
            .collect();
        let up = Self { process, http: addresses[0].clone(), admin: addresses[1].clone() };
        up.eventually("readiness", || up.get(&up.admin, "/readyz").0 == 200);
        up
    }

    fn eventually(&self, what: &str, condition: impl Fn() -> bool) {
        let began = Instant::now();
        while !condition() {
            assert!(began.elapsed() < HANG, "never came: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The status and body of a GET.
    fn get(&self, address: &str, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
        let (status, _, body) = exchange(address, &request);
        (status, body)
    }

    /// Sends a small completion through the router: the status, and the row that served it.
    fn complete(&self, prompt: &str) -> (u16, String) {
        let body =
            serde_json::json!({"model": "switchtower-demo", "prompt": prompt, "max_tokens": 2}).to_string();
        let head =
            "POST /v1/completions HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-type: application/json";
        let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let (status, head, _) = exchange(&self.http, &request);
        let row = head.lines().find_map(|line| line.strip_prefix("x-switchtower-worker: "));
        (status, row.unwrap_or_default().to_owned())
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        ctl(&format!("http://{}", self.admin), arguments)
    }

    /// The array that `ctl --json` prints.
    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.ctl(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
        answer[arguments[0]].as_array().unwrap().clone()
    }

    fn table(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn ctl(url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchtower"));
    command.args(["ctl", "--url", url]).args(arguments).output().unwrap()
}

/// The status, head and body of the answer to `request`.
fn exchange(address: &str, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// A failure in one line with this exit code.
fn failed(output: &Output, code: i32, said: &str) {
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), line.lines().count()), (Some(code), 1), "{line}");
    assert!(line.contains(said), "{line}");
}

#[test]
fn what_is_there_is_shown_as_tables_and_as_json() {
    let up = Up::start();
    let prompt = "All trains call at the tower before they leave the yard. ".repeat(20);
    assert_eq!(up.complete(&prompt).0, 200);

    let workers = up.json(&["workers"]);
    assert_eq!(workers.iter().map(|row| row["worker_id"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert!(workers.iter().all(|row| row["ranks"] == 2 && row["drained"] == false), "{workers:?}");
    let table = up.table(&["workers"]);
    assert!(table.starts_with("WORKER_ID") && table.lines().count() == 3, "{table}");

    assert_eq!(up.json(&["loads"]).len(), 4);
    assert_eq!(up.table(&["refused"]), "refused: none\n");
    assert!(up.table(&["config"]).contains("router.policy"));

    // The engine's blocks come over the bus.
    up.eventually("the blocks", || up.json(&["index"]).iter().any(|row| row["blocks"] != 0));
    let blocks = |row: &Value| row["device"].as_u64().unwrap();
    let overlap = up.json(&["overlap", "--prompt", &prompt]);
    assert_eq!(overlap.len(), 4);
    let best = overlap.iter().max_by_key(|row| blocks(row)).unwrap();
    assert!(blocks(best) > 0 && blocks(best) <= best["prompt_blocks"].as_u64().unwrap(), "{best}");
    let other = up.json(&["overlap", "--tokens", "1,2,3"]);
    assert!(other.iter().all(|row| blocks(row) == 0), "{other:?}");
}

#[test]
fn b164_a_drained_worker_gets_nothing_until_it_is_resumed() {
    let up = Up::start();
    let outcome = |arguments: &[&str]| up.json(arguments)[0]["outcome"].clone();
    assert_eq!(outcome(&["drain", "1", "--reason", "a new kernel"]), "drained");
    assert_eq!(outcome(&["drain", "1", "--reason", "a new kernel"]), "already_drained");
    let first = up.json(&["workers"])[0].clone();
    assert_eq!((&first["drained"], &first["drain_reason"]), (&true.into(), &"a new kernel".into()));

    for number in 0..10 {
        let (status, worker) = up.complete(&format!("{number} is a prompt of its own"));
        assert!(status == 200 && worker.starts_with("2/"), "a drained worker got a request: {worker}");
    }

    assert_eq!(outcome(&["resume", "1"]), "resumed");
    assert_eq!(outcome(&["resume", "1"]), "not_drained");
    assert_eq!(up.json(&["workers"])[0]["drained"], false);
    failed(&up.ctl(&["drain", "77"]), 1, "77");
    failed(&up.ctl(&["drain", "1", "--reason", &"x".repeat(300)]), 1, "reason");
}

#[test]
fn what_cannot_be_asked_or_is_not_answered_is_one_line() {
    let up = Up::start();
    failed(&up.ctl(&["overlap", "--model", "none", "--prompt", "x"]), 1, "no model `none`");
    failed(&up.ctl(&["overlap"]), 64, "--prompt");
    failed(&up.ctl(&["overlap", "--prompt", "x", "--tokens", "1"]), 64, "--tokens");
    failed(&up.ctl(&["drain", "first"]), 64, "first");
    failed(&up.ctl(&["wrokers"]), 64, "wrokers");
    failed(&ctl(&format!("http://{}", up.http), &["workers"]), 1, "/admin/workers");
    for url in ["here", "https://127.0.0.1:1", "http://u:p@127.0.0.1:1", "http://127.0.0.1:1/path"] {
        failed(&ctl(url, &["workers"]), 64, "http://HOST:PORT");
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    failed(&ctl(&format!("http://{nobody}"), &["workers"]), 1, "does not answer");
}

#[test]
fn the_admin_address_answers_probes_and_scrapers() {
    let up = Up::start();
    assert_eq!(up.get(&up.admin, "/healthz"), (200, "live\n".to_owned()));
    assert!(up.get(&up.admin, "/metrics").1.contains("switchtower_rows"));
    let (status, body) = up.get(&up.admin, "/admin/nothing");
    let body: Value = serde_json::from_str(body.trim()).unwrap();
    assert_eq!((status, body["error"]["code"].as_str()), (404, Some("unknown_url")));
    assert_eq!(up.get(&up.admin, "/admin/overlap").0, 405);
    assert_eq!(up.get(&up.http, "/admin/workers").0, 404, "the admin API is on its own address alone");
}
