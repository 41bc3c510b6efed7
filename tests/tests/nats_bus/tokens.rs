//! What an operator of NATS hands out, made here so that no tool has to be installed: signed claims, credentials files.

use nkeys::KeyPair;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An operator with one account.
pub(crate) struct Operator {
    operator: KeyPair,
    account: KeyPair,
}

impl Operator {
    pub(crate) fn new() -> Self {
        Self { operator: KeyPair::new_operator(), account: KeyPair::new_account() }
    }

    /// The lines that make a server trust it.
    pub(crate) fn config(&self) -> String {
        let operator =
            signed(&self.operator, &self.operator, json!({"type": "operator", "version": 2}), None);
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        });
        let claims = json!({"type": "account", "version": 2, "limits": limits});
        let account = signed(&self.operator, &self.account, claims, None);
        let id = self.account.public_key();
        format!("operator: {operator}\nresolver: MEMORY\nresolver_preload: {{ {id}: {account} }}")
    }

    /// A credentials file of a new user, good for so long.
    pub(crate) fn credentials(&self, good_for: Duration) -> String {
        let user = KeyPair::new_user();
        let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}});
        let jwt = signed(&self.account, &user, claims, Some(good_for));
        let seed = user.seed().expect("a new key has its seed");
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }
}

/// `issuer`'s claims about `subject`.
fn signed(issuer: &KeyPair, subject: &KeyPair, claims: Value, good_for: Option<Duration>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs();
    let mut body = json!({
        "jti": subject.public_key(), "iat": now, "iss": issuer.public_key(), "sub": subject.public_key(),
        "name": "test", "nats": claims,
    });
    if let Some(good_for) = good_for {
        body["exp"] = json!(now + good_for.as_secs());
    }
    let head = base64url(json!({"typ": "JWT", "alg": "ed25519-nkey"}).to_string().as_bytes());
    let text = format!("{head}.{}", base64url(body.to_string().as_bytes()));
    let signature = issuer.sign(text.as_bytes()).expect("a key that signs");
    format!("{text}.{}", base64url(&signature))
}

/// Base64 with the URL's alphabet and without padding.
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}
