//! Tokens of service accounts: JSON Web Tokens that this API issues to its pods and accepts from them.
//!
//! A token is valid until it expires, and only while its pod and its service account exist. The signing key lives as
//! long as the process: containers end with it, and get new tokens when they start again.

use crate::{Core, object::text, status_error::StatusError};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;

/// The audience of this API and the issuer of its tokens.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";
/// The kubelet replaces a token after this percentage of its lifetime.
const REFRESH_AFTER_PERCENT: i64 = 80;
/// A token is replaced after a day, whatever its lifetime.
const MAX_TOKEN_AGE: i64 = 24 * 60 * 60;

/// The claims of a token, as Kubernetes names them.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Claims {
    aud: Vec<String>,
    exp: i64,
    iat: i64,
    iss: String,
    jti: String,
    #[serde(rename = "kubernetes.io")]
    bound: Binding,
    nbf: i64,
    sub: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Binding {
    namespace: String,
    pod: ObjectReference,
    serviceaccount: ObjectReference,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
struct ObjectReference {
    name: String,
    uid: String,
}

impl ObjectReference {
    fn to(object: &Value) -> Self {
        Self { name: text(object, "/metadata/name").to_owned(), uid: text(object, "/metadata/uid").to_owned() }
    }
}

/// A request for a token of a pod.
pub(crate) struct TokenRequest<'a> {
    pub pod: &'a Value,
    pub account: &'a Value,
    pub audience: &'a str,
    pub seconds: i64,
}

/// Issues tokens and recognizes its own.
pub(crate) struct Issuer {
    key: String,
}

impl Issuer {
    pub fn new() -> Self {
        Self { key: format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple()) }
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(signed.as_bytes());
        mac
    }

    pub fn issue(&self, request: &TokenRequest<'_>, now: Timestamp) -> String {
        let (namespace, account) = (text(request.pod, "/metadata/namespace"), ObjectReference::to(request.account));
        let issued = now.as_second();
        let claims = Claims {
            aud: vec![request.audience.to_owned()],
            exp: issued.saturating_add(request.seconds),
            iat: issued,
            iss: AUDIENCE.to_owned(),
            jti: uuid::Uuid::new_v4().to_string(),
            nbf: issued,
            sub: format!("system:serviceaccount:{namespace}:{}", account.name),
            bound: Binding {
                namespace: namespace.to_owned(),
                pod: ObjectReference::to(request.pod),
                serviceaccount: account,
            },
        };
        let encode = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(json!({"alg": "HS256", "typ": "JWT"})), encode(json!(claims)));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.mac(&signed).finalize().into_bytes());
        format!("{signed}.{signature}")
    }

    /// The claims of a token of this issuer, if it is valid at this time.
    fn verify(&self, token: &str, now: Timestamp) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.mac(signed).verify_slice(&signature).ok()?;
        let (_, claims) = signed.split_once('.')?;
        let claims: Claims = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        (claims.nbf..claims.exp).contains(&now.as_second()).then_some(claims)
    }

    /// Whether a token matches a request and need not be replaced yet.
    pub fn is_fresh(&self, token: &str, request: &TokenRequest<'_>, now: Timestamp) -> bool {
        self.verify(token, now).is_some_and(|claims| {
            let age = now.as_second() - claims.iat;
            let wanted = claims.aud == [request.audience]
                && claims.exp - claims.iat == request.seconds
                && claims.bound.pod == ObjectReference::to(request.pod)
                && claims.bound.serviceaccount == ObjectReference::to(request.account);
            wanted
                && age < MAX_TOKEN_AGE
                && age.saturating_mul(100) < request.seconds.saturating_mul(REFRESH_AFTER_PERCENT)
        })
    }
}

impl Core {
    /// Whether a token was issued for this API to a pod and an account that still exist.
    pub fn accepts_token(&self, token: &str) -> Result<bool, StatusError> {
        let Some(claims) = self.tokens.verify(token, Timestamp::now()) else { return Ok(false) };
        let exists = |resource: &str, reference: &ObjectReference| -> Result<bool, StatusError> {
            let object = self.read_object(resource, &claims.bound.namespace, &reference.name)?;
            Ok(object.is_some_and(|object| text(&object, "/metadata/uid") == reference.uid))
        };
        let has_audience = claims.aud.iter().any(|audience| audience == AUDIENCE);
        Ok(has_audience
            && exists("pods", &claims.bound.pod)?
            && exists("serviceaccounts", &claims.bound.serviceaccount)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_700_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(START + second).unwrap()
    }

    fn object(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid of {name}")}})
    }

    #[test]
    fn a_token_is_valid_within_its_lifetime_and_only_unmodified() {
        let issuer = Issuer::new();
        let (pod, account) = (object("pod"), object("account"));
        let token =
            issuer.issue(&TokenRequest { pod: &pod, account: &account, audience: AUDIENCE, seconds: 600 }, at(0));
        for (second, good) in [(-1, false), (0, true), (599, true), (600, false)] {
            assert_eq!(issuer.verify(&token, at(second)).is_some(), good, "after {second} s");
        }
        assert!(Issuer::new().verify(&token, at(0)).is_none(), "another key");
        let parts: Vec<&str> = token.split('.').collect();
        let mut claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
        claims["exp"] = json!(START + 1_000_000);
        let longer = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
        let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let forged = [
            format!("{}.{longer}.{}", parts[0], parts[2]),
            format!("{none}.{}.", parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            String::new(),
        ];
        for token in forged {
            assert!(issuer.verify(&token, at(0)).is_none(), "{token}");
        }
    }

    #[test]
    fn a_token_is_replaced_before_it_expires_and_after_a_day() {
        let issuer = Issuer::new();
        let (pod, account, other) = (object("pod"), object("account"), object("other"));
        let hour = |seconds| TokenRequest { pod: &pod, account: &account, audience: AUDIENCE, seconds };
        let token = issuer.issue(&hour(3600), at(0));
        assert!(issuer.is_fresh(&token, &hour(3600), at(2879)));
        assert!(!issuer.is_fresh(&token, &hour(3600), at(2880)));
        assert!(!issuer.is_fresh(&token, &hour(7200), at(0)), "another lifetime was requested");
        assert!(!issuer.is_fresh(&token, &TokenRequest { audience: "vault", ..hour(3600) }, at(0)));
        assert!(!issuer.is_fresh(&token, &TokenRequest { account: &other, ..hour(3600) }, at(0)));
        let month = issuer.issue(&hour(30 * 86_400), at(0));
        assert!(issuer.is_fresh(&month, &hour(30 * 86_400), at(86_399)));
        assert!(!issuer.is_fresh(&month, &hour(30 * 86_400), at(86_400)));
    }
}
