//! What goes wrong with etcd: at start for whoever configures it, and later in words that the port understands.
//!
//! The only place that reads etcd's messages. Must not carry a credential: etcd's own words hold none.

use etcd_client::Error;
use std::error::Error as _;
use switchtower_cluster::DiscoveryError;
use switchtower_runtime::tls::TlsError;

/// Why a connection to etcd cannot even be tried.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// Nowhere to connect to.
    #[error("etcd.endpoints is empty: name at least one member, for example `http://127.0.0.1:2379`")]
    NoEndpoints,
    /// An endpoint that is no address.
    #[error("etcd endpoint `{endpoint}` is not valid: {reason}")]
    InvalidEndpoint {
        /// What was given, without a user and password in it.
        endpoint: String,
        /// What is wrong, and what would be right.
        reason: &'static str,
    },
    /// A user without a password, or the other way round.
    #[error("only one of etcd.username and etcd.password is set: set both or none")]
    HalfUser,
    /// A time in which nothing can happen.
    #[error("etcd.{setting} is 0: give it at least some hundred milliseconds")]
    ZeroTime {
        /// The setting.
        setting: &'static str,
    },
    /// TLS without anybody to trust.
    #[error("etcd.tls.ca is not set: name the file with the certificates that sign etcd's own")]
    NoAuthority,
    /// TLS files that are no good.
    #[error("etcd: {0}")]
    Tls(#[from] TlsError),
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No answer, or one that says that another attempt may go better.
    Unreachable(String),
    /// The token that proves who we are is no longer good; a new session gets a new one.
    StaleToken(String),
    /// The lease is gone.
    LeaseGone,
    /// The history that was asked for is gone.
    Compacted,
    /// The answer is larger than what is read at once.
    TooLarge,
    /// The watch's reader is too slow; it starts over.
    Overflow,
    /// The same call will be refused again.
    Refused(String),
}

impl Fault {
    /// No answer within a time.
    pub(crate) fn timed_out(what: &str, limit: std::time::Duration) -> Self {
        Self::Unreachable(format!("{what} took longer than {} ms", limit.as_millis()))
    }

    /// In the port's words.
    pub(crate) fn into_error(self, operation: &'static str) -> DiscoveryError {
        match self {
            Self::Refused(reason) => DiscoveryError::Refused { operation, reason },
            other => DiscoveryError::Unavailable { operation, reason: other.to_string() },
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unreachable(reason) | Self::StaleToken(reason) | Self::Refused(reason) => reason,
            Self::LeaseGone => "the lease was lost",
            Self::Compacted => "the history was compacted meanwhile",
            Self::TooLarge => "the answer is too large",
            Self::Overflow => "the reader is too slow",
        })
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::GRpcStatus(status) => {
                let reason = with_causes(status.message(), status.source());
                // The code's number, for its type belongs to a crate that only `etcd-client` uses.
                from_status(i32::from(status.code()), reason)
            }
            // What the client makes of a keep-alive that is answered with a TTL of 0.
            Error::LeaseKeepAliveError(reason) if reason == "lease not found" => Self::LeaseGone,
            Error::TransportError(error) => {
                Self::Unreachable(with_causes(&error.to_string(), error.source()))
            }
            other => Self::Unreachable(other.to_string()),
        }
    }
}

// gRPC's codes, as its specification numbers them.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNIMPLEMENTED: i32 = 12;
const UNAUTHENTICATED: i32 = 16;

fn from_status(code: i32, reason: String) -> Fault {
    let says = |words: &str| reason.contains(words);
    // Which code comes with these depends on where in etcd the token is found to be old, and on the version.
    if says("revision of auth store is old") || says("auth: revision in header is old") {
        return Fault::StaleToken(reason);
    }
    match code {
        UNAUTHENTICATED => Fault::StaleToken(reason),
        // A session from before users were enabled.
        INVALID_ARGUMENT if says("user name is empty") => Fault::StaleToken(reason),
        NOT_FOUND if says("lease not found") => Fault::LeaseGone,
        OUT_OF_RANGE if says("compacted") => Fault::Compacted,
        OUT_OF_RANGE if says("message length too large") => Fault::TooLarge,
        INVALID_ARGUMENT | PERMISSION_DENIED | FAILED_PRECONDITION | OUT_OF_RANGE | UNIMPLEMENTED => {
            Fault::Refused(reason)
        }
        _ => Fault::Unreachable(reason),
    }
}

/// Whether etcd refuses a password because it demands none.
pub(crate) fn users_are_disabled(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(reason) if reason.contains("authentication is not enabled"))
}

/// "transport error" helps nobody: what lies beneath says what failed, and how. What was said is not repeated.
fn with_causes(top: &str, mut cause: Option<&(dyn std::error::Error + 'static)>) -> String {
    let mut said = vec![top.to_owned()];
    while let Some(error) = cause {
        said.push(error.to_string());
        cause = error.source();
    }
    let mut texts: Vec<String> = Vec::new();
    for text in said {
        if !text.is_empty() && text != "transport error" && !texts.iter().any(|former| former.contains(&text))
        {
            texts.push(text);
        }
    }
    if texts.is_empty() { "the connection failed".to_owned() } else { texts.join(": ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b04_etcds_messages_are_told_apart() {
        let fault = |code, reason: &str| from_status(code, reason.to_owned());
        let stale = Fault::StaleToken("etcdserver: invalid auth token".to_owned());
        assert_eq!(fault(UNAUTHENTICATED, "etcdserver: invalid auth token"), stale);
        let old = "etcdserver: revision of auth store is old";
        assert_eq!(fault(INVALID_ARGUMENT, old), Fault::StaleToken(old.to_owned()));
        let old = "auth: revision in header is old";
        assert_eq!(fault(2, old), Fault::StaleToken(old.to_owned()));
        assert_eq!(fault(NOT_FOUND, "etcdserver: requested lease not found"), Fault::LeaseGone);
        let gone = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(fault(OUT_OF_RANGE, gone), Fault::Compacted);
        let large = "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes";
        assert_eq!(fault(OUT_OF_RANGE, large), Fault::TooLarge);
        let disabled = fault(FAILED_PRECONDITION, "etcdserver: authentication is not enabled");
        assert!(users_are_disabled(&disabled));
        assert!(matches!(fault(PERMISSION_DENIED, "etcdserver: permission denied"), Fault::Refused(_)));
        assert!(matches!(fault(14, "etcdserver: leader changed"), Fault::Unreachable(_)));
    }

    #[test]
    fn causes_are_named_once() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(with_causes("transport error", Some(&refused)), "connection refused");
        assert_eq!(with_causes("cannot: connection refused", Some(&refused)), "cannot: connection refused");
        assert_eq!(with_causes("transport error", None), "the connection failed");
    }

    #[test]
    fn errors_name_what_was_attempted() {
        let refused = Fault::Refused("etcdserver: permission denied".to_owned()).into_error("put a record");
        let text = refused.to_string();
        assert!(text.contains("cannot put a record") && text.contains("permission"), "{text}");
        let late = Fault::timed_out("the call", std::time::Duration::from_secs(3)).into_error("get a record");
        assert!(
            matches!(&late, DiscoveryError::Unavailable { reason, .. } if reason.contains("3000 ms")),
            "{late}"
        );
    }
}
