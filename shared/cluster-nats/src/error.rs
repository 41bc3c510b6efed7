//! What is wrong with the options: found before anything is connected, and not by trying again.
//!
//! No message shows a credential.

use std::path::PathBuf;
use switchtower_runtime::tls::TlsError;

/// Why a bus cannot be made from its options.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// No server is named.
    #[error("no NATS server is given: name at least one, for example `nats://127.0.0.1:4222`")]
    NoServer,
    /// An address that is none.
    #[error("`{server}` is no NATS server: {reason}; write for example `nats://127.0.0.1:4222`")]
    Server {
        /// What was given, without what may be a password.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// More than one way to authenticate.
    #[error("both {one} and {other} are set: choose one way to authenticate with NATS")]
    TwoCredentials {
        /// A setting.
        one: &'static str,
        /// Another.
        other: &'static str,
    },
    /// A password without a user, or a user without a password.
    #[error("{present} is set but {missing} is not: NATS needs both")]
    HalfCredentials {
        /// The setting that is there.
        present: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// A credentials file that is no good.
    #[error("cannot use {setting} `{}`: {reason}", path.display())]
    CredentialsFile {
        /// The setting.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS files that are no good.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// TLS settings that cannot work.
    #[error("tls.{setting} cannot be used: {reason}")]
    TlsSetting {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A time or size of zero.
    #[error("{setting} is 0: it must be positive")]
    Zero {
        /// The setting.
        setting: &'static str,
    },
    /// A cluster's name that leaves no room in a subject.
    #[error(
        "the cluster's name has {bytes} bytes once escaped, more than the {limit} that fit in a subject: choose a shorter one"
    )]
    ClusterName {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The client library refused.
    #[error("cannot set up the NATS client: {reason}")]
    Client {
        /// What it says.
        reason: String,
    },
}
