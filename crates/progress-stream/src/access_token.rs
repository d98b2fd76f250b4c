//! The token that protects the dashboard and the trees.

use std::fmt;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::error::Error;
use crate::leader::TOKEN_HEADER;

/// The Secret in the server's namespace that holds the token, under the key `token`.
pub const TOKEN_SECRET: &str = "plimsoll-dashboard";
const TOKEN_KEY: &str = "token";
const MIN_TOKEN_BYTES: usize = 16;

/// Gives access to the dashboard and the trees.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(String);

impl AccessToken {
    /// A new random token.
    pub fn generate() -> Self {
        Self(hex::encode(rand::random::<[u8; 24]>()))
    }

    /// A token that was configured.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that prints it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub fn matches(&self, offered: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differing = own.iter().zip(offered).fold(own.len() ^ offered.len(), |sum, (a, b)| sum | usize::from(a ^ b));
        differing == 0
    }

    /// Reads the server's token from its Secret; creates the Secret if it does not exist.
    pub async fn read_or_create(client: &Client, namespace: &str) -> Result<Self, Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        if let Some(token) = Self::read(client, namespace).await? {
            return Ok(token);
        }
        let secret = Secret {
            metadata: ObjectMeta { name: Some(TOKEN_SECRET.to_owned()), ..ObjectMeta::default() },
            data: Some([(TOKEN_KEY.to_owned(), ByteString(Self::generate().0.into_bytes()))].into()),
            ..Secret::default()
        };
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => {}
            // Another replica created it first.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Error::api(format!("create secret {TOKEN_SECRET}"), error)),
        }
        Self::read(client, namespace).await?.ok_or_else(|| Error::InvalidToken(TOKEN_SECRET.into()))
    }

    /// Reads the server's token; nothing if its Secret does not exist.
    pub async fn read(client: &Client, namespace: &str) -> Result<Option<Self>, Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let secret = secrets.get_opt(TOKEN_SECRET).await;
        let Some(secret) = secret.map_err(|error| Error::api(format!("read secret {TOKEN_SECRET}"), error))? else {
            return Ok(None);
        };
        let token =
            secret.data.and_then(|mut data| data.remove(TOKEN_KEY)).and_then(|token| String::from_utf8(token.0).ok());
        let token = token.map(|token| token.trim().to_owned()).filter(|token| token.len() >= MIN_TOKEN_BYTES);
        token.map(|token| Some(Self(token))).ok_or_else(|| Error::InvalidToken(TOKEN_SECRET.into()))
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

/// Whether a request carries the token, in our own header or as a bearer token.
pub fn presents_token(headers: &HeaderMap, token: &AccessToken) -> bool {
    let own = headers.get(TOKEN_HEADER).map(HeaderValue::as_bytes);
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    [own, bearer].into_iter().flatten().any(|offered| token.matches(offered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_matches_and_debug_output_does_not_contain_it() {
        let token = AccessToken::generate();
        assert!(token.matches(token.reveal().as_bytes()));
        for wrong in ["", &token.reveal()[1..], &format!("{}0", token.reveal())] {
            assert!(!token.matches(wrong.as_bytes()), "{wrong}");
        }
        assert_ne!(token, AccessToken::generate());
        assert!(!format!("{token:?}").contains(token.reveal()));
    }
}
