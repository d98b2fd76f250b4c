//! Profiles with their credentials.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::kanister::v1alpha1::Profile;
use plimsoll_blueprint::profile::{ProfileError, ResolvedProfile, Secrets, resolve, secret_references};
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
    let secrets = Secrets::from([((Some("other".into()), "aws".into()), secret.clone())]);
    ResolvedProfile::from_value(resolve(&profile(location), &secrets)?)
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
    assert_eq!(secret_references(&profile(json!({}))).unwrap(), [(Some("other".into()), "aws".into())]);
    let none = BTreeMap::new();
    let keys = BTreeMap::from([("id".to_owned(), vec![]), ("key".to_owned(), vec![])]);
    for (location, secret, word) in [
        (json!({ "type": "s3Compliant" }), &none, "secret has no key \"id\""),
        (json!({ "type": "kopia", "bucket": "b" }), &keys, "location type kopia requires a credential of type kopia"),
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

#[test]
fn restic_has_the_variables_of_google_azure_and_a_role_to_assume() {
    let resolved = |kind: &str, data: Value| {
        let data: serde_json::Map<String, Value> = data
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, text)| (key.clone(), json!(BASE64_STANDARD.encode(text.as_str().unwrap()))))
            .collect();
        ResolvedProfile::from_value(json!({
            "Location": { "type": kind, "bucket": "b" },
            "Credential": { "Type": "secret", "KeyPair": null, "Secret": { "data": data } },
        }))
    };
    let restic = |kind: &str, data: Value| -> BTreeMap<&'static str, String> {
        resolved(kind, data).unwrap().restic("b/x", "p").unwrap().into_iter().collect()
    };
    let role =
        restic("s3Compliant", json!({ "aws_access_key_id": "i", "aws_secret_access_key": "k", "role": "arn:r" }));
    assert_eq!(role["RESTIC_AWS_ASSUME_ROLE_ARN"], "arn:r");
    let google =
        restic("gcs", json!({ "project-id": "shop", "service-account.json": "{\n \"private_key\": \"a\\nb\"\n}" }));
    assert_eq!((google["RESTIC_REPOSITORY"].as_str(), google["GOOGLE_PROJECT_ID"].as_str()), ("gs:b:/x", "shop"));
    assert_eq!(google["PLIMSOLL_GOOGLE_KEY"], r#"{"private_key":"a\nb"}"#, "one line");
    let azure = |data: Value| restic("azure", data);
    let key = azure(json!({ "azure_storage_account_id": "a", "azure_storage_key": "k",
        "azure_storage_environment": "AZUREUSGOVERNMENTCLOUD" }));
    assert_eq!(
        (key["AZURE_ACCOUNT_KEY"].as_str(), key["AZURE_ENDPOINT_SUFFIX"].as_str()),
        ("k", "core.usgovcloudapi.net")
    );
    let federated = azure(json!({ "azure_storage_account_id": "a" }));
    assert!(!federated.contains_key("AZURE_ACCOUNT_KEY") && !federated.contains_key("AZURE_ENDPOINT_SUFFIX"));
    let unknown = resolved("azure", json!({ "azure_storage_account_id": "a", "azure_storage_environment": "Moon" }));
    assert!(unknown.unwrap_err().to_string().contains("azure_storage_environment \"Moon\""));
}

#[test]
fn a_profile_of_a_kopia_server_has_no_object_storage() {
    let certificate =
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----", BASE64_STANDARD.encode("x"));
    let key = |key: &str, secret: &str| json!({ "key": key, "secret": { "name": secret, "namespace": "kanister" } });
    let profile: Profile = serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "home" },
        "location": { "type": "kopia", "endpoint": "https://kopia:51515" },
        "credential": { "type": "kopia", "kopiaServerSecret": { "username": "u", "hostname": "h",
            "userPassphrase": key("pass", "users"), "tlsCert": key("tls.crt", "tls"),
            "connectOptions": { "dataStoreGeneralMetadataCacheSize": 7 } } },
    }))
    .unwrap();
    let references = secret_references(&profile).unwrap();
    let secrets: Secrets = references
        .iter()
        .cloned()
        .zip([("pass", "hidden".to_owned()), ("tls.crt", certificate.clone())])
        .map(|(reference, (key, value))| (reference, BTreeMap::from([(key.to_owned(), value.into_bytes())])))
        .collect();
    let value = resolve(&profile, &secrets).unwrap();
    assert_eq!(
        value["Credential"]["KopiaServerSecret"],
        json!({ "Username": "u", "Hostname": "h", "Password": "hidden",
        "Cert": certificate, "ConnectOptions": { "dataStoreGeneralMetadataCacheSize": 7 } })
    );
    let resolved = ResolvedProfile::from_value(value).unwrap();
    let server = resolved.kopia_server().unwrap();
    assert_eq!(
        (server.url.as_str(), server.password(), server.metadata_cache_mb),
        ("https://kopia:51515", "hidden", 7)
    );
    assert!(resolved.secrets().contains(&"hidden".to_owned()));
    let error = resolved.require_store().unwrap_err().to_string();
    assert_eq!(error, "object storage in a profile of a Kopia server is not supported");
    assert!(s3("").kopia_server().is_none() && s3("").require_store().is_ok());
}
