//! TLS as the client library takes it.
//!
//! Without a `server_name` the library reads the files itself, for every connection. It checks a certificate against the
//! host that it dials and knows no other name, so with a `server_name` we give it a verifier of our own around the usual
//! one. Must never loosen what the usual one checks.

use crate::NatsError;
use async_nats::{
    ConnectOptions,
    rustls::{
        ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    },
};
use std::{fmt::Display, sync::Arc};
use switchtower_runtime::tls::{TlsContents, TlsFiles};

/// Adds TLS to the options, and demands it.
///
/// # Errors
/// Files or settings that cannot be used.
pub(crate) fn with_tls(options: ConnectOptions, files: &TlsFiles) -> Result<ConnectOptions, NatsError> {
    let contents = files.read()?;
    let mut options = options.require_tls(true);
    if let Some(name) = &contents.server_name {
        return Ok(options.tls_client_config(client_config(&contents, name)?));
    }
    if let Some(ca) = &files.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let (Some(cert), Some(key)) = (&files.cert, &files.key) {
        options = options.add_client_certificate(cert.clone(), key.clone());
    }
    Ok(options)
}

fn client_config(contents: &TlsContents, name: &str) -> Result<ClientConfig, NatsError> {
    let ca = contents.ca.as_deref().ok_or_else(|| wrong("server_name", "it needs tls.ca"))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca", ca)? {
        roots.add(certificate).map_err(|error| wrong("ca", error))?;
    }
    let name = ServerName::try_from(name.to_owned()).map_err(|error| wrong("server_name", error))?;
    let provider = Arc::new(ring::default_provider());
    let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let verifier = NamedVerifier { name, usual: usual.map_err(|error| wrong("ca", error))? };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("server_name", error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some((cert, key)) = &contents.identity else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong("key", error))?;
    builder.with_client_auth_cert(certificates("cert", cert)?, key).map_err(|error| wrong("cert", error))
}

fn certificates(setting: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, NatsError> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| wrong(setting, error))
}

fn wrong(setting: &'static str, reason: impl Display) -> NatsError {
    NatsError::TlsSetting { setting, reason: reason.to_string() }
}

/// The usual verifier, asked about another name than the one that was dialled.
#[derive(Debug)]
struct NamedVerifier {
    name: ServerName<'static>,
    usual: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for NamedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _dialled: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.usual.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}
