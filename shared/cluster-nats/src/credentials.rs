//! Who we are, told to the server at every connection.
//!
//! Files are read anew each time, so that renewed credentials are used and a file that is missing for a moment is only a
//! failed attempt. Nothing read here may reach a log or an error.

use crate::{NatsError, NatsOptions};
use async_nats::{Auth, AuthError};
use nkeys::KeyPair;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// One way to authenticate, or none.
#[derive(Clone)]
pub(crate) enum Credentials {
    Nothing,
    Password { user: String, password: String },
    Token(String),
    SeedFile(PathBuf),
    CredsFile(PathBuf),
}

impl Credentials {
    /// What the options say, if they say one thing. Files are read once to see that they are good.
    pub(crate) fn new(options: &NatsOptions) -> Result<Self, NatsError> {
        let password = match (&options.user, &options.password) {
            (Some(user), Some(password)) => {
                Some(Self::Password { user: user.clone(), password: password.clone() })
            }
            (None, None) => None,
            (Some(_), None) => {
                return Err(NatsError::HalfCredentials { present: "user", missing: "password" });
            }
            (None, Some(_)) => {
                return Err(NatsError::HalfCredentials { present: "password", missing: "user" });
            }
        };
        let ways = [
            password,
            options.token.clone().map(Self::Token),
            options.nkey_seed_file.clone().map(Self::SeedFile),
            options.creds_file.clone().map(Self::CredsFile),
        ];
        let mut chosen = Self::Nothing;
        for way in ways.into_iter().flatten() {
            if !matches!(chosen, Self::Nothing) {
                return Err(NatsError::TwoCredentials { one: chosen.setting(), other: way.setting() });
            }
            chosen = way;
        }
        chosen.answer(b"")?;
        Ok(chosen)
    }

    /// The name of the setting.
    pub(crate) const fn setting(&self) -> &'static str {
        match self {
            Self::Nothing => "no credentials",
            Self::Password { .. } => "user and password",
            Self::Token(_) => "token",
            Self::SeedFile(_) => "nkey_seed_file",
            Self::CredsFile(_) => "creds_file",
        }
    }

    /// What to tell a server that sent `nonce`.
    pub(crate) fn auth(&self, nonce: &[u8]) -> Result<Auth, AuthError> {
        self.answer(nonce).map_err(AuthError::new)
    }

    fn answer(&self, nonce: &[u8]) -> Result<Auth, NatsError> {
        let mut auth = Auth::new();
        match self {
            Self::Nothing => {}
            Self::Password { user, password } => {
                (auth.username, auth.password) = (Some(user.clone()), Some(password.clone()));
            }
            Self::Token(token) => auth.token = Some(token.clone()),
            Self::SeedFile(path) => {
                let text = self.read(path)?;
                let pair = self.pair(path, text.trim())?;
                auth.nkey = Some(pair.public_key());
                auth.signature = Some(self.sign(path, &pair, nonce)?);
            }
            Self::CredsFile(path) => {
                let text = self.read(path)?;
                let (Some(jwt), Some(seed)) = (block(&text, "USER JWT"), block(&text, "NKEY SEED")) else {
                    return Err(self.wrong(
                        path,
                        "it has no blocks `USER JWT` and `USER NKEY SEED`, as `nsc` writes them",
                    ));
                };
                auth.jwt = Some(jwt.to_owned());
                auth.signature = Some(self.sign(path, &self.pair(path, seed)?, nonce)?);
            }
        }
        Ok(auth)
    }

    fn read(&self, path: &Path) -> Result<String, NatsError> {
        fs::read_to_string(path).map_err(|error| self.wrong(path, &error.to_string()))
    }

    fn pair(&self, path: &Path, seed: &str) -> Result<KeyPair, NatsError> {
        KeyPair::from_seed(seed).map_err(|_| self.wrong(path, "it holds no NKey seed (`SU…`)"))
    }

    fn sign(&self, path: &Path, pair: &KeyPair, nonce: &[u8]) -> Result<Vec<u8>, NatsError> {
        pair.sign(nonce).map_err(|_| self.wrong(path, "its NKey cannot sign"))
    }

    fn wrong(&self, path: &Path, reason: &str) -> NatsError {
        NatsError::CredentialsFile {
            setting: self.setting(),
            path: path.to_path_buf(),
            reason: reason.to_owned(),
        }
    }
}

/// The line inside of the block whose opening line ends with `label`.
fn block<'text>(text: &'text str, label: &str) -> Option<&'text str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| {
        let label_of = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----"));
        label_of.is_some_and(|name| name.ends_with(label))
    })?;
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with("---"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &tempfile::TempDir, contents: &str) -> PathBuf {
        let path = folder.path().join("file");
        fs::write(&path, contents).unwrap();
        path
    }

    #[test]
    fn one_way_is_taken_and_two_are_refused() {
        let way = |options: NatsOptions| Credentials::new(&options).map(|found| found.setting());
        assert_eq!(way(NatsOptions::default()).unwrap(), "no credentials");
        let token = NatsOptions { token: Some("t".to_owned()), ..NatsOptions::default() };
        assert_eq!(way(token.clone()).unwrap(), "token");
        let both = NatsOptions { user: Some("u".to_owned()), password: Some("p".to_owned()), ..token };
        let error = way(both).unwrap_err().to_string();
        assert!(error.contains("both user and password and token are set"), "{error}");
        let half = NatsOptions { user: Some("u".to_owned()), ..NatsOptions::default() };
        assert!(way(half).unwrap_err().to_string().contains("password is not"));
    }

    #[test]
    fn a_seed_signs_and_is_read_anew_every_time() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (KeyPair::new_user(), KeyPair::new_user());
        let path = file(&folder, &format!("{}\n", first.seed().unwrap()));
        let options = NatsOptions { nkey_seed_file: Some(path), ..NatsOptions::default() };
        let credentials = Credentials::new(&options).unwrap();
        for pair in [&first, &second] {
            file(&folder, &pair.seed().unwrap());
            let auth = credentials.auth(b"nonce").unwrap();
            assert_eq!(auth.nkey, Some(pair.public_key()));
            pair.verify(b"nonce", &auth.signature.unwrap()).unwrap();
        }
    }

    #[test]
    fn a_credentials_file_gives_jwt_and_signature() {
        let folder = tempfile::tempdir().unwrap();
        let pair = KeyPair::new_user();
        let creds = format!(
            "-----BEGIN NATS USER JWT-----\nabc.def\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            pair.seed().unwrap()
        );
        let credentials = Credentials::CredsFile(file(&folder, &creds));
        let auth = credentials.auth(b"nonce").unwrap();
        assert_eq!(auth.jwt.as_deref(), Some("abc.def"));
        pair.verify(b"nonce", &auth.signature.unwrap()).unwrap();
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named_without_its_contents() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "s3cret");
        for (credentials, wanted) in [
            (Credentials::SeedFile(path.clone()), "holds no NKey seed"),
            (Credentials::CredsFile(path.clone()), "`USER JWT`"),
            (Credentials::CredsFile(folder.path().join("nowhere")), "No such file"),
        ] {
            let error = credentials.answer(b"").err().expect("a file that is no good").to_string();
            assert!(error.contains(wanted) && error.contains(credentials.setting()), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
