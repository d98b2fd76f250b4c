//! Profiles with their credentials.

use std::collections::BTreeMap;

use plimsoll_api::kanister::v1alpha1::Profile;
use plimsoll_blueprint::profile::{ProfileError, ResolvedProfile, resolve, secret_reference};
use serde_json::{Value, json};

fn profile(location: Value) -> Profile {
    serde_json::from_value(json!({
        "apiVersion": "cr.kanister.io/v1alpha1", "kind": "Profile", "metadata": { "name": "p", "namespace": "home" },
        "location": location,
        "credential": { "type": "keyPair", "keyPair": { "idField": "id", "secretField": "key",
            "secret": { "name": "aws", "namespace": "other" } } },
    }))
    .unwrap()
}

fn resolved_profile(location: Value, secret: &BTreeMap<String, Vec<u8>>) -> Result<ResolvedProfile, ProfileError> {
    ResolvedProfile::from_value(resolve(&profile(location), secret)?)
}

fn s3(endpoint: &str) -> ResolvedProfile {
    let location = json!({ "type": "s3Compliant", "bucket": "b", "endpoint": endpoint, "region": "eu-1" });
    let secret = BTreeMap::from([("id".to_owned(), b"me".to_vec()), ("key".to_owned(), b"hidden\n".to_vec())]);
    resolved_profile(location, &secret).unwrap()
}

#[test]
fn the_template_parameter_equals_kanisters() {
    assert_eq!(
        s3("http://127.0.0.1:9").params(),
        json!({
            "Location": { "type": "s3Compliant", "bucket": "b", "endpoint": "http://127.0.0.1:9", "prefix": "", "region": "eu-1" },
            "Credential": { "Type": "keyPair", "KeyPair": { "ID": "me", "Secret": "hidden" }, "Secret": null, "KopiaServerSecret": null },
            "SkipSSLVerify": false,
        })
    );
}

#[test]
fn a_repository_has_kanisters_address_with_or_without_the_bucket_in_its_path() {
    let resolved_profile = s3("minio.example:9000");
    assert_eq!(resolved_profile.with_bucket("time-log"), "b/time-log");
    assert_eq!(resolved_profile.with_bucket("/b/time-log/"), "b/time-log");
    assert_eq!(resolved_profile.without_bucket("b/x"), "x");
    assert_eq!(resolved_profile.without_bucket("bc/x"), "bc/x");
    let variables: BTreeMap<_, _> = resolved_profile.restic("b/time-log", "password").unwrap().into_iter().collect();
    assert_eq!(variables["RESTIC_REPOSITORY"], "s3:https://minio.example:9000/b/time-log");
    assert_eq!(variables["RESTIC_PASSWORD"], "password");
    let below = json!({ "type": "s3Compliant", "bucket": "b", "prefix": "/team//a/" });
    let keys = BTreeMap::from([("id".to_owned(), b"me".to_vec()), ("key".to_owned(), b"k".to_vec())]);
    let below = self::resolved_profile(below, &keys).unwrap();
    assert_eq!((below.location().prefix.as_str(), below.repository("b/x/").prefix.as_str()), ("team/a", "x"));
    let own: BTreeMap<_, _> = s3("").restic("b/x", "p").unwrap().into_iter().collect();
    assert_eq!(own["RESTIC_REPOSITORY"], "s3:s3.amazonaws.com/b/x");
}

#[test]
fn missing_fields_of_a_profile_are_errors() {
    assert_eq!(secret_reference(&profile(json!({}))).unwrap(), (Some("other".into()), "aws".into()));
    let none = BTreeMap::new();
    let keys = BTreeMap::from([("id".to_owned(), vec![]), ("key".to_owned(), vec![])]);
    for (location, secret, word) in [
        (json!({ "type": "s3Compliant" }), &none, "secret has no key \"id\""),
        (json!({ "type": "kopia", "bucket": "b" }), &keys, "Kopia server is not supported"),
        (json!({ "type": "ftp", "bucket": "b" }), &keys, "\"ftp\", expected s3Compliant"),
        (json!({ "type": "gcs" }), &keys, "no bucket"),
    ] {
        let error = resolved_profile(location, secret).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn the_debug_form_of_a_profile_has_no_secret() {
    assert!(!format!("{:?}", s3("")).contains("hidden"));
}
