//! The token that opens the dashboard.

use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::error::Error;

/// The Secret in the server's namespace that holds it, under the key `token`.
pub const SECRET: &str = "plimsoll-dashboard";
const KEY: &str = "token";
const LEAST: usize = 16;

/// Opens the dashboard to whoever knows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A new one that nobody can guess.
    pub fn random() -> Self {
        Self(hex::encode(rand::random::<[u8; 24]>()))
    }

    /// The one that somebody chose.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// For the one line in which it is told.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether this is it. Takes as long for a wrong one as for the right one.
    pub fn is(&self, offered: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let differing = own.iter().zip(offered).fold(own.len() ^ offered.len(), |sum, (a, b)| sum | usize::from(a ^ b));
        differing == 0
    }

    /// The server's own: from its Secret, which is made if there is none.
    pub async fn of_server(client: &Client, namespace: &str) -> Result<Self, Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        if let Some(token) = Self::find(client, namespace).await? {
            return Ok(token);
        }
        let secret = Secret {
            metadata: ObjectMeta { name: Some(SECRET.to_owned()), ..ObjectMeta::default() },
            data: Some([(KEY.to_owned(), ByteString(Self::random().0.into_bytes()))].into()),
            ..Secret::default()
        };
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => {}
            // Another server was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Error::api(format!("create secret {SECRET}"), error)),
        }
        Self::find(client, namespace).await?.ok_or_else(|| Error::BadToken(SECRET.into()))
    }

    /// The server's own, if it has made one and the reader may see it.
    pub async fn find(client: &Client, namespace: &str) -> Result<Option<Self>, Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let found = secrets.get_opt(SECRET).await.map_err(|e| Error::api(format!("read secret {SECRET}"), e))?;
        let Some(secret) = found else { return Ok(None) };
        let token = secret.data.and_then(|mut data| data.remove(KEY)).and_then(|token| String::from_utf8(token.0).ok());
        let token = token.map(|token| token.trim().to_owned()).filter(|token| token.len() >= LEAST);
        token.map(|token| Some(Self(token))).ok_or_else(|| Error::BadToken(SECRET.into()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_opens_and_it_is_never_shown_by_accident() {
        let token = Token::random();
        assert!(token.is(token.reveal().as_bytes()));
        for wrong in ["", &token.reveal()[1..], &format!("{}0", token.reveal())] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
        assert_ne!(token, Token::random());
        assert!(!format!("{token:?}").contains(token.reveal()));
    }
}
