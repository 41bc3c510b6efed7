//! The files of a TLS client: who is trusted, and who we are.
//!
//! Reads and checks files so that a mistake is named at start; must not open a connection or choose a TLS library (the
//! adapters hand the contents to their client). A key's contents never appear in an error or a log.

use serde::{Deserialize, Serialize};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Where a TLS client's files are, as the configuration says it. All in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsFiles {
    /// Certificates that servers are checked against. Absent: those of the system, where the client supports that.
    pub ca: Option<PathBuf>,
    /// Our own certificate, with its chain, for servers that ask clients who they are. Needs `key`.
    pub cert: Option<PathBuf>,
    /// The key of `cert`.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must carry, if it is not the host in its address.
    pub server_name: Option<String>,
}

/// What the files say.
#[derive(Clone, Default)]
pub struct TlsContents {
    /// PEM of the trusted certificates.
    pub ca: Option<Vec<u8>>,
    /// PEM of our certificate and of its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// As in [`TlsFiles::server_name`].
    pub server_name: Option<String>,
}

/// Why TLS files are no good.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read.
    #[error("cannot read tls.{setting} `{}`: {source}; check the path and its permissions", path.display())]
    Unreadable {
        /// `ca`, `cert` or `key`.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file without what it should hold.
    #[error("tls.{setting} `{}` holds no {wanted} in PEM (a block `-----BEGIN …-----`)", path.display())]
    NoPem {
        /// `ca`, `cert` or `key`.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
    },
    /// A certificate without a key, or a key without a certificate.
    #[error("tls.{present} is set but tls.{missing} is not: a client certificate needs both")]
    Half {
        /// The setting that is there.
        present: &'static str,
        /// The setting that is not.
        missing: &'static str,
    },
}

impl TlsFiles {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// One that cannot be read, holds no PEM of its kind, or stands alone where two are needed.
    pub fn read(&self) -> Result<TlsContents, TlsError> {
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some((read("cert", cert, CERTIFICATE)?, read("key", key, PRIVATE_KEY)?))
            }
            (None, None) => None,
            (Some(_), None) => return Err(TlsError::Half { present: "cert", missing: "key" }),
            (None, Some(_)) => return Err(TlsError::Half { present: "key", missing: "cert" }),
        };
        let ca = self.ca.as_ref().map(|ca| read("ca", ca, CERTIFICATE)).transpose()?;
        Ok(TlsContents { ca, identity, server_name: self.server_name.clone() })
    }
}

/// Shows what there is, and no key.
impl fmt::Debug for TlsContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsContents")
            .field("ca_bytes", &self.ca.as_ref().map(Vec::len))
            .field("has_identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

/// What a file should hold: how errors call it, and how its PEM label ends.
type Wanted = (&'static str, &'static str);

const CERTIFICATE: Wanted = ("certificate", "CERTIFICATE-----");
/// `PRIVATE KEY`, `EC PRIVATE KEY`, `RSA PRIVATE KEY`.
const PRIVATE_KEY: Wanted = ("private key", "PRIVATE KEY-----");

fn read(setting: &'static str, path: &Path, (wanted, label): Wanted) -> Result<Vec<u8>, TlsError> {
    let contents = std::fs::read(path).map_err(|source| TlsError::Unreadable {
        setting,
        path: path.to_path_buf(),
        source,
    })?;
    let text = String::from_utf8_lossy(&contents);
    let found =
        text.lines().map(str::trim_end).any(|line| line.starts_with("-----BEGIN ") && line.ends_with(label));
    if found { Ok(contents) } else { Err(TlsError::NoPem { setting, path: path.to_path_buf(), wanted }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERT: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";

    fn file(folder: &tempfile::TempDir, name: &str, contents: &str) -> Option<PathBuf> {
        let path = folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        Some(path)
    }

    #[test]
    fn files_are_read_and_no_key_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            ca: file(&folder, "ca", CERT),
            cert: file(&folder, "cert", CERT),
            key: file(&folder, "key", KEY),
            server_name: Some("etcd".to_owned()),
        };
        let contents = files.read().unwrap();
        assert_eq!(contents.identity, Some((CERT.into(), KEY.into())));
        assert_eq!(contents.ca.as_deref(), Some(CERT.as_bytes()));
        let shown = format!("{contents:?}");
        assert!(shown.contains("has_identity: true") && !shown.contains("secret"), "{shown}");
        assert!(TlsFiles::default().read().unwrap().identity.is_none());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (file(&folder, "cert", CERT), file(&folder, "key", KEY));
        let missing = Some(folder.path().join("nowhere"));
        let wrong = |files: TlsFiles| files.read().unwrap_err().to_string();
        let half = wrong(TlsFiles { cert: cert.clone(), ..TlsFiles::default() });
        assert_eq!(half, "tls.cert is set but tls.key is not: a client certificate needs both");
        let half = wrong(TlsFiles { key: key.clone(), ..TlsFiles::default() });
        assert!(half.starts_with("tls.key is set but tls.cert is not"), "{half}");
        let absent = wrong(TlsFiles { ca: missing, ..TlsFiles::default() });
        assert!(absent.starts_with("cannot read tls.ca `") && absent.contains("nowhere"), "{absent}");
        let swapped = wrong(TlsFiles { cert: key, key: cert, ..TlsFiles::default() });
        assert!(swapped.contains("holds no certificate"), "{swapped}");
        assert!(!swapped.contains("c2VjcmV0"), "{swapped}");
    }
}
