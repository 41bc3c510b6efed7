//! How to reach etcd, as the configuration says it.
//!
//! Checks what can be checked without a server, and turns it into what `etcd-client` takes. The password is never shown,
//! also not by `Debug`.

use crate::EtcdError;
use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use switchtower_runtime::{config::milliseconds, retry::RetryTimes, tls::TlsFiles};

/// Where etcd is, who we are, and how long things may take.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdOptions {
    /// The members of one etcd cluster: `http://HOST:PORT`, or `https://HOST:PORT` with `tls`. One is used at a time.
    pub endpoints: Vec<String>,
    /// User, with `password`.
    pub username: Option<String>,
    /// Password of `username`. Secret.
    pub password: Option<String>,
    /// TLS, for `https` endpoints; needs at least `ca`.
    pub tls: Option<TlsFiles>,
    /// How long one attempt to connect to one endpoint may take, the first answer included.
    #[serde(rename = "connect_timeout_ms", with = "milliseconds")]
    pub connect_timeout: Duration,
    /// How long a call may take before it fails; a change may wait as long again for the one before it.
    #[serde(rename = "call_timeout_ms", with = "milliseconds")]
    pub call_timeout: Duration,
    /// How often the endpoint in use is asked for a sign of life.
    #[serde(rename = "probe_interval_ms", with = "milliseconds")]
    pub probe_interval: Duration,
    /// How long the sign of life may take. An endpoint that is frozen or unreachable is given up after at most both.
    #[serde(rename = "probe_timeout_ms", with = "milliseconds")]
    pub probe_timeout: Duration,
    /// How often the stream of a watch is asked for a sign of life; one that gives none until the next time is opened
    /// again.
    #[serde(rename = "progress_interval_ms", with = "milliseconds")]
    pub progress_interval: Duration,
    /// The wait after the first round over all endpoints that failed, on average.
    #[serde(rename = "retry_first_ms", with = "milliseconds")]
    pub retry_first: Duration,
    /// The longest wait between rounds, on average.
    #[serde(rename = "retry_max_ms", with = "milliseconds")]
    pub retry_max: Duration,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            username: None,
            password: None,
            tls: None,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(3),
            probe_interval: Duration::from_secs(2),
            probe_timeout: Duration::from_secs(2),
            progress_interval: Duration::from_secs(5),
            retry_first: Duration::from_millis(100),
            retry_max: Duration::from_secs(3),
        }
    }
}

/// Shows everything but the password.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "(hidden)"))
            .field("tls", &self.tls)
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("probe_interval", &self.probe_interval)
            .field("probe_timeout", &self.probe_timeout)
            .field("progress_interval", &self.progress_interval)
            .field("retry_first", &self.retry_first)
            .field("retry_max", &self.retry_max)
            .finish()
    }
}

/// HTTP/2 pings for the streams of a session that was given up but is still held somewhere. Servers close connections
/// that ping more often than every five seconds; the probe is what notices a dead endpoint in time.
const PING_INTERVAL: Duration = Duration::from_secs(10);

impl EtcdOptions {
    /// How failed rounds are spaced.
    pub(crate) fn retry_times(&self) -> RetryTimes {
        RetryTimes { first: self.retry_first, max: self.retry_max }
    }

    /// Checks everything and reads the TLS files.
    pub(crate) fn connect_options(&self) -> Result<ConnectOptions, EtcdError> {
        self.check_endpoints()?;
        self.check_times()?;
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.connect_timeout)
            .with_keep_alive(PING_INTERVAL, self.probe_timeout)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        match (&self.username, &self.password) {
            (Some(username), Some(password)) => options = options.with_user(username, password),
            (None, None) => {}
            _ => return Err(EtcdError::HalfUser),
        }
        if let Some(tls) = self.tls()? {
            options = options.with_tls(tls);
        }
        Ok(options)
    }

    fn check_endpoints(&self) -> Result<(), EtcdError> {
        if self.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoints);
        }
        let scheme = if self.tls.is_some() { "https://" } else { "http://" };
        for endpoint in &self.endpoints {
            let reason = match endpoint.strip_prefix(scheme) {
                None if self.tls.is_some() => "with `tls` set it must begin with `https://`",
                None if endpoint.starts_with("https://") => "`https` needs `tls` with at least `tls.ca`",
                None => "it must begin with `http://` or `https://`",
                Some(address) if address.contains('@') => "set `username` and `password` instead",
                Some(address) if address.trim_end_matches('/').contains('/') => "it must have no path",
                Some(address) if !has_port(address) => "it must end with a port: `http://HOST:2379`",
                Some(_) => continue,
            };
            return Err(EtcdError::InvalidEndpoint { endpoint: without_user(endpoint), reason });
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), EtcdError> {
        let times = [
            ("connect_timeout_ms", self.connect_timeout),
            ("call_timeout_ms", self.call_timeout),
            ("probe_interval_ms", self.probe_interval),
            ("probe_timeout_ms", self.probe_timeout),
            ("progress_interval_ms", self.progress_interval),
        ];
        match times.into_iter().find(|(_, time)| time.is_zero()) {
            Some((setting, _)) => Err(EtcdError::ZeroTime { setting }),
            None => Ok(()),
        }
    }

    fn tls(&self) -> Result<Option<TlsOptions>, EtcdError> {
        let Some(files) = &self.tls else {
            return Ok(None);
        };
        let contents = files.read()?;
        let ca = contents.ca.ok_or(EtcdError::NoAuthority)?;
        let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
        if let Some((cert, key)) = contents.identity {
            tls = tls.identity(Identity::from_pem(cert, key));
        }
        if let Some(name) = contents.server_name {
            tls = tls.domain_name(name);
        }
        Ok(Some(tls))
    }
}

fn has_port(address: &str) -> bool {
    let port = address.trim_end_matches('/').rsplit_once(':');
    port.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// What may be shown of an endpoint that holds what it should not.
fn without_user(endpoint: &str) -> String {
    match endpoint.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(endpoint: &str) -> EtcdOptions {
        EtcdOptions { endpoints: vec![endpoint.to_owned()], ..EtcdOptions::default() }
    }

    #[test]
    fn endpoints_are_checked_and_a_password_in_one_is_not_shown() {
        for good in ["http://127.0.0.1:2379", "http://etcd:2379/", "http://[::1]:2379"] {
            assert!(options(good).connect_options().is_ok(), "{good}");
        }
        for (bad, hint) in [
            ("127.0.0.1:2379", "must begin with"),
            ("https://h:2379", "tls.ca"),
            ("http://h", "port"),
            ("http://:1", "port"),
            ("http://h:2379/v3", "path"),
            ("http://me:secret@h:2379", "username"),
        ] {
            let error = options(bad).connect_options().unwrap_err().to_string();
            assert!(error.contains(hint) && !error.contains("secret"), "{bad}: {error}");
        }
        let none = EtcdOptions::default().connect_options().unwrap_err().to_string();
        assert!(none.contains("etcd.endpoints"), "{none}");
    }

    #[test]
    fn half_a_user_a_zero_time_and_tls_without_an_authority_are_refused() {
        let plain = options("http://h:1");
        let half = EtcdOptions { username: Some("u".into()), ..plain.clone() };
        assert!(matches!(half.connect_options(), Err(EtcdError::HalfUser)));
        let zero = EtcdOptions { probe_timeout: Duration::ZERO, ..plain };
        assert!(zero.connect_options().unwrap_err().to_string().contains("probe_timeout_ms"));
        let tls = EtcdOptions { tls: Some(TlsFiles::default()), ..options("https://h:1") };
        assert!(matches!(tls.connect_options(), Err(EtcdError::NoAuthority)));
    }

    #[test]
    fn the_password_is_not_shown() {
        let secret = EtcdOptions { password: Some("hunter2".into()), ..options("http://h:1") };
        let shown = format!("{secret:?}");
        assert!(shown.contains("(hidden)") && !shown.contains("hunter2"), "{shown}");
    }
}
