//! How to reach NATS, as the configuration says it.
//!
//! Checks what can be checked without a server. Secrets are never shown, also not by `Debug`.

use crate::NatsError;
use async_nats::ServerAddr;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, time::Duration};
use switchtower_runtime::{config::milliseconds, retry::RetryTimes, tls::TlsFiles};

/// Where NATS is, who we are, and how long things may take. At most one way to authenticate may be set.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatsOptions {
    /// Servers of one NATS cluster: `nats://HOST:PORT`, or `tls://HOST:PORT`. More are learnt from them.
    pub servers: Vec<String>,
    /// User, with `password`.
    pub user: Option<String>,
    /// Password of `user`. Secret.
    pub password: Option<String>,
    /// Token. Secret.
    pub token: Option<String>,
    /// File with an NKey seed (`SU…`). Read for every connection.
    pub nkey_seed_file: Option<PathBuf>,
    /// Credentials file with a user's JWT and seed, as `nsc` writes it. Read for every connection.
    pub creds_file: Option<PathBuf>,
    /// TLS. Absent: only if the server demands it, checked against the system's certificates. The files are read for
    /// every connection, but once if a `server_name` is set.
    pub tls: Option<TlsFiles>,
    /// How long one attempt to connect may take.
    #[serde(rename = "connect_timeout_ms", with = "milliseconds")]
    pub connect_timeout: Duration,
    /// After so long without a word from the server it is asked for one. Two unanswered questions end the connection, so
    /// a dead one is noticed after three times as long.
    #[serde(rename = "ping_interval_ms", with = "milliseconds")]
    pub ping_interval: Duration,
    /// How long a call may wait for a connection that takes no data.
    #[serde(rename = "call_limit_ms", with = "milliseconds")]
    pub call_limit: Duration,
    /// The wait before the first attempt to reconnect, on average.
    #[serde(rename = "reconnect_first_ms", with = "milliseconds")]
    pub reconnect_first: Duration,
    /// The longest wait between attempts, on average.
    #[serde(rename = "reconnect_max_ms", with = "milliseconds")]
    pub reconnect_max: Duration,
    /// The largest payload to send, in bytes. The server's own limit holds too, if it is less.
    pub max_payload_bytes: usize,
}

impl Default for NatsOptions {
    fn default() -> Self {
        let RetryTimes { first, max } = RetryTimes::default();
        Self {
            servers: Vec::new(),
            user: None,
            password: None,
            token: None,
            nkey_seed_file: None,
            creds_file: None,
            tls: None,
            connect_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(5),
            call_limit: Duration::from_secs(2),
            reconnect_first: first,
            reconnect_max: max,
            max_payload_bytes: 1024 * 1024,
        }
    }
}

impl NatsOptions {
    /// Options for one server, or several separated by commas, with everything else as it is by default.
    #[must_use]
    pub fn new(servers: &str) -> Self {
        let servers = servers.split(',').map(|server| server.trim().to_owned()).collect();
        Self { servers, ..Self::default() }
    }

    pub(crate) const fn retry_times(&self) -> RetryTimes {
        RetryTimes { first: self.reconnect_first, max: self.reconnect_max }
    }

    /// The addresses, if they and the numbers are good.
    pub(crate) fn check(&self) -> Result<Vec<ServerAddr>, NatsError> {
        let positive = [
            ("connect_timeout_ms", self.connect_timeout.is_zero()),
            ("ping_interval_ms", self.ping_interval.is_zero()),
            ("call_limit_ms", self.call_limit.is_zero()),
            ("max_payload_bytes", self.max_payload_bytes == 0),
        ];
        if let Some((setting, _)) = positive.into_iter().find(|(_, zero)| *zero) {
            return Err(NatsError::Zero { setting });
        }
        if self.servers.is_empty() {
            return Err(NatsError::NoServer);
        }
        self.servers.iter().map(|server| address(server)).collect()
    }
}

fn address(server: &str) -> Result<ServerAddr, NatsError> {
    // What stands before an `@` may be a password.
    let shown = server.rsplit_once('@').map_or(server, |(_, host)| host);
    let wrong = |reason: &str| NatsError::Server { server: shown.to_owned(), reason: reason.to_owned() };
    if shown != server {
        return Err(wrong("credentials do not belong in the address, set `user` and `password` or `token`"));
    }
    let address: ServerAddr = server.parse().map_err(|error: std::io::Error| wrong(&error.to_string()))?;
    if !matches!(address.scheme(), "nats" | "tls") {
        return Err(wrong("it begins with neither `nats://` nor `tls://`"));
    }
    if address.host().is_empty() {
        return Err(wrong("it names no host"));
    }
    Ok(address)
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |secret: &Option<String>| secret.as_ref().map(|_| "***");
        f.debug_struct("NatsOptions")
            .field("servers", &self.servers)
            .field("user", &self.user)
            .field("password", &hidden(&self.password))
            .field("token", &hidden(&self.token))
            .field("nkey_seed_file", &self.nkey_seed_file)
            .field("creds_file", &self.creds_file)
            .field("tls", &self.tls)
            .field("connect_timeout", &self.connect_timeout)
            .field("ping_interval", &self.ping_interval)
            .field("call_limit", &self.call_limit)
            .field("reconnect_first", &self.reconnect_first)
            .field("reconnect_max", &self.reconnect_max)
            .field("max_payload_bytes", &self.max_payload_bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_errors_show_no_password() {
        let checked = |server: &str| NatsOptions::new(server).check();
        for good in
            ["nats://127.0.0.1:4222", "localhost", "tls://nats.example:4222", "a:1, b:2", "nats://[::1]:4222"]
        {
            assert!(checked(good).is_ok(), "{good}");
        }
        for wrong in ["http://a:1", "ws://a:1", "nats://a:b", "nats://", "", "a:1,"] {
            assert!(
                matches!(checked(wrong), Err(NatsError::Server { .. })),
                "{wrong:?}: {:?}",
                checked(wrong)
            );
        }
        let error = checked("nats://me:s3cret@host:4222").unwrap_err().to_string();
        assert!(
            error.contains("host:4222") && error.contains("`password`") && !error.contains("s3cret"),
            "{error}"
        );
        assert!(matches!(NatsOptions::default().check(), Err(NatsError::NoServer)));
    }

    #[test]
    fn zero_is_refused_by_name() {
        let options = NatsOptions { ping_interval: Duration::ZERO, ..NatsOptions::new("a") };
        assert_eq!(options.check().unwrap_err().to_string(), "ping_interval_ms is 0: it must be positive");
    }

    #[test]
    fn debug_hides_secrets_and_serde_takes_what_it_writes() {
        let options = NatsOptions {
            user: Some("me".to_owned()),
            password: Some("s3cret".to_owned()),
            token: Some("t0ken".to_owned()),
            ..NatsOptions::new("nats://a:1")
        };
        let shown = format!("{options:?}");
        assert!(shown.contains("\"me\"") && !shown.contains("s3cret") && !shown.contains("t0ken"), "{shown}");
        let written = serde_json::to_value(&options).unwrap();
        assert_eq!(written["ping_interval_ms"], 5_000);
        assert_eq!(serde_json::from_value::<NatsOptions>(written).unwrap(), options);
        assert!(serde_json::from_str::<NatsOptions>(r#"{"server": "a"}"#).is_err());
    }
}
