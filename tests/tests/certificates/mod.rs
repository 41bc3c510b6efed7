//! Certificates for tests: an authority that lives as long as its test, and what it signs, as PEM files.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::path::{Path, PathBuf};

/// Signs certificates, and writes them into one folder.
pub(crate) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub(crate) ca: PathBuf,
}

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// A new one. `name` tells its files from those of others in the folder.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, name);
        let ca =
            write(folder, &format!("{name}.ca.pem"), &params.self_signed(&key).expect("a certificate").pem());
        Self { folder: folder.to_path_buf(), issuer: Issuer::new(params, key), ca }
    }

    /// A certificate for a name and hosts: DNS names or IP addresses. Signed anew under the same name, it replaces the
    /// files of the former.
    pub(crate) fn sign(&self, name: &str, hosts: &[&str]) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names and addresses");
        params.distinguished_name.push(DnType::CommonName, name);
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            cert: write(&self.folder, &format!("{name}.cert.pem"), &cert.pem()),
            key: write(&self.folder, &format!("{name}.key.pem"), &key.serialize_pem()),
        }
    }
}

fn write(folder: &Path, file: &str, contents: &str) -> PathBuf {
    let path = folder.join(file);
    std::fs::write(&path, contents).expect("a file in a test's folder");
    path
}
