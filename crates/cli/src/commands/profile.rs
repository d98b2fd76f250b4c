//! `plimsoll profile create` and `validate`: Kanister's profiles.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use anyhow::Context;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_api::kanister::v1alpha1 as kanister;
use plimsoll_blueprint::params;
use plimsoll_blueprint::profile::ResolvedProfile;
use plimsoll_store::Store;
use serde_json::{Value, json};

use crate::args::Global;
use crate::args::options::ObjectFormat;
use crate::args::profile::{CreateProfile, Profile, ProfileLocation, ValidateProfile};
use crate::exit::Outcome;
use crate::{connect, output};

/// The object that a check writes.
const PROBE: &str = "plimsoll-profile-check";

/// Carries out one command.
pub async fn run(global: &Global, verb: Profile) -> anyhow::Result<Outcome> {
    match verb {
        Profile::Create(options) => create(global, &options).await,
        Profile::Validate(options) => validate(global, &options).await,
    }
}

/// A profile to create: its objects.
struct Plan {
    profile: kanister::Profile,
    secret: Secret,
}

async fn create(global: &Global, options: &CreateProfile) -> anyhow::Result<Outcome> {
    let plan = plan(&global.namespace, options, &mut std::io::stdin())?;
    let location = location(options);
    if location.dry_run {
        output::object(&plan.secret, ObjectFormat::Yaml)?;
        output::line("---");
        output::object(&plan.profile, ObjectFormat::Yaml)?;
        return Ok(Outcome::Success);
    }
    let client = connect::client(global).await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &global.namespace);
    let secret = secrets.create(&PostParams::default(), &plan.secret).await?;
    output::line(format!("secret/{} created", secret.name_any()));
    let stages = check(&client, &plan.profile, location.skip_validation).await;
    let created = match stages.iter().find_map(|stage| stage.result.as_ref()?.as_ref().err()) {
        None => {
            let profiles: Api<kanister::Profile> = Api::namespaced(client.clone(), &global.namespace);
            profiles.create(&PostParams::default(), &plan.profile).await.map_err(anyhow::Error::from)
        }
        Some(cause) => Err(anyhow::anyhow!("the profile cannot be used: {cause}")),
    };
    match created {
        Ok(profile) => {
            output::line(format!("profile/{} created", profile.name_any()));
            Ok(Outcome::Success)
        }
        Err(error) => {
            secrets.delete(&secret.name_any(), &DeleteParams::default()).await?;
            output::line(format!("secret/{} deleted", secret.name_any()));
            Err(error)
        }
    }
}

fn location(options: &CreateProfile) -> &ProfileLocation {
    match options {
        CreateProfile::S3compliant(options) => &options.location,
        CreateProfile::Gcp(options) => &options.location,
        CreateProfile::Azure(options) => &options.location,
    }
}

/// The fields of a Secret that are a name and a key.
type KeyFields = [(&'static str, String); 2];
/// The type of a Secret whose keys are fixed, and one more field of it.
type TypedField = Option<(&'static str, &'static str, String)>;

/// The objects. A Secret with a role or a cloud has one of Kanister's types, whose keys are fixed.
fn plan(namespace: &str, options: &CreateProfile, input: &mut dyn std::io::Read) -> anyhow::Result<Plan> {
    let place = location(options);
    let (kind, word, fields, typed): (&str, &str, KeyFields, TypedField) = match options {
        CreateProfile::S3compliant(options) => {
            let key = secret_text(&options.secret_key, input)?;
            let fields = [("aws_access_key_id", options.access_key.clone()), ("aws_secret_access_key", key)];
            let typed = options.role.clone().map(|role| ("secrets.kanister.io/aws", "role", role));
            ("s3Compliant", "s3", fields, typed)
        }
        CreateProfile::Gcp(options) => {
            let file = &options.service_key;
            let key = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            ("gcs", "gcp", [("project-id", options.project_id.clone()), ("service-account.json", key)], None)
        }
        CreateProfile::Azure(options) => {
            let key = secret_text(&options.storage_key, input)?;
            let fields = [("azure_storage_account_id", options.storage_account.clone()), ("azure_storage_key", key)];
            let cloud = options.storage_env.clone();
            let typed = cloud.map(|cloud| ("secrets.kanister.io/azure", "azure_storage_environment", cloud));
            ("azure", "azure", fields, typed)
        }
    };
    let random = uuid::Uuid::new_v4().simple().to_string();
    let suffix = &random[..5];
    let secret_name = format!("{word}-secret-{suffix}");
    let [(id_field, _), (secret_field, _)] = &fields;
    let reference = json!({ "name": secret_name, "namespace": namespace });
    let credential = match &typed {
        Some(_) => json!({ "type": "secret", "secret": reference }),
        None => json!({ "type": "keyPair",
            "keyPair": { "idField": id_field, "secretField": secret_field, "secret": reference } }),
    };
    let profile = json!({
        "apiVersion": "cr.kanister.io/v1alpha1",
        "kind": "Profile",
        "metadata": { "name": place.name.clone().unwrap_or_else(|| format!("{word}-profile-{suffix}")), "namespace": namespace },
        "location": { "type": kind, "bucket": place.bucket, "endpoint": place.endpoint.clone().unwrap_or_default(),
            "prefix": place.prefix.clone().unwrap_or_default(), "region": place.region.clone().unwrap_or_default() },
        "credential": credential,
        "skipSSLVerify": place.skip_ssl_verification,
    });
    let mut data: BTreeMap<String, String> = fields.map(|(key, value)| (key.to_owned(), value)).into();
    data.extend(typed.iter().map(|(_, key, value)| ((*key).to_owned(), value.clone())));
    let metadata =
        ObjectMeta { name: Some(secret_name), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
    let type_ = typed.map(|(kind, ..)| kind.to_owned());
    Ok(Plan {
        profile: serde_json::from_value(profile)?,
        secret: Secret { metadata, string_data: Some(data), type_, ..Secret::default() },
    })
}

/// A secret in an argument, or from standard input.
fn secret_text(argument: &str, input: &mut dyn std::io::Read) -> anyhow::Result<String> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let mut text = String::new();
    input.read_to_string(&mut text).context("cannot read the key from standard input")?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// One check and how it ended; `None` if it was not made.
struct Stage {
    name: &'static str,
    result: Option<Result<(), String>>,
}

async fn validate(global: &Global, options: &ValidateProfile) -> anyhow::Result<Outcome> {
    let namespace = options.resource_namespace.as_deref().unwrap_or(&global.namespace);
    let (profile, client) = match (&options.name, &options.filename) {
        (Some(name), _) => {
            let client = connect::client(global).await?;
            let api: Api<kanister::Profile> = Api::namespaced(client.clone(), namespace);
            (api.get(name).await?, Some(client))
        }
        (None, file) => {
            let client = if options.schema_validation_only { None } else { Some(connect::client(global).await?) };
            (read_profile(file.as_deref().unwrap_or(Path::new("-")), namespace)?, client)
        }
    };
    let stages = match &client {
        Some(client) => check(client, &profile, options.schema_validation_only).await,
        None => check_schema_only(&profile),
    };
    for Stage { name, result } in &stages {
        output::line(match result {
            Some(Ok(())) => format!("{name}: passed"),
            Some(Err(cause)) => format!("{name}: failed: {cause}"),
            None => format!("{name}: skipped"),
        });
    }
    let failed = stages.iter().any(|stage| matches!(stage.result, Some(Err(_))));
    Ok(if failed { Outcome::Refused } else { Outcome::Success })
}

fn read_profile(file: &Path, namespace: &str) -> anyhow::Result<kanister::Profile> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let value: Value = serde_saphyr::from_str(&text).with_context(|| format!("{} is not YAML", file.display()))?;
    let mut profile: kanister::Profile =
        serde_json::from_value(value).with_context(|| format!("{} is no Profile", file.display()))?;
    profile.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
    Ok(profile)
}

const STAGES: [&str; 4] = ["fields", "credentials", "read access to the bucket", "write access to the bucket"];

fn check_schema_only(profile: &kanister::Profile) -> Vec<Stage> {
    let schema = Stage { name: STAGES[0], result: Some(check_schema(profile)) };
    let skipped = STAGES[1..].iter().map(|name| Stage { name, result: None });
    std::iter::once(schema).chain(skipped).collect()
}

/// Makes the checks in turn, up to the first that fails.
async fn check(client: &Client, profile: &kanister::Profile, schema_only: bool) -> Vec<Stage> {
    let mut stages = check_schema_only(profile);
    if schema_only || matches!(stages[0].result, Some(Err(_))) {
        return stages;
    }
    let resolved = match params::open_profile(client, profile).await {
        Ok(resolved) => resolved,
        Err(error) => {
            stages[1].result = Some(Err(error.to_string()));
            return stages;
        }
    };
    stages[1].result = Some(Ok(()));
    // A Kopia server has no bucket.
    if resolved.kopia_server().is_some() {
        return stages;
    }
    stages[2].result = Some(read_access(&resolved).await);
    if let Some(Ok(())) = stages[2].result {
        stages[3].result = Some(write_access(&resolved).await);
    }
    stages
}

fn check_schema(profile: &kanister::Profile) -> Result<(), String> {
    let mut value = serde_json::to_value(profile).unwrap_or_default();
    value["apiVersion"] = json!("cr.kanister.io/v1alpha1");
    value["kind"] = json!("Profile");
    plimsoll_api::validate::check(&value).map_err(|invalid| invalid.lines().join("; "))
}

async fn read_access(profile: &ResolvedProfile) -> Result<(), String> {
    let store = Store::open(&profile.location()).map_err(|error| error.to_string())?;
    match store.list("").next().await {
        Some(Err(error)) => Err(error.to_string()),
        _ => Ok(()),
    }
}

async fn write_access(profile: &ResolvedProfile) -> Result<(), String> {
    let probe = async {
        let store = Store::open(&profile.location())?;
        store.put(PROBE, "plimsoll profile validate").await?;
        store.delete(PROBE).await
    };
    probe.await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Arguments, Command};

    fn planned(line: &str, input: &str) -> Plan {
        let words = ["plimsoll", "profile", "create"].into_iter().chain(line.split_whitespace());
        let Command::Profile(Profile::Create(options)) = Arguments::parse_from(words).command else { panic!("{line}") };
        plan("home", &options, &mut input.as_bytes()).unwrap()
    }

    #[test]
    fn kanctls_flags_make_its_objects() {
        let Plan { profile, secret } = planned(
            "s3compliant -b backups -e https://minio -p team -r eu-1 -a id -s - --skip-SSL-verification --name s3",
            "key\n",
        );
        assert_eq!(secret.string_data.as_ref().unwrap()["aws_secret_access_key"], "key");
        assert_eq!(secret.type_, None);
        let value = serde_json::to_value(&profile).unwrap();
        assert_eq!(value["metadata"]["name"], "s3");
        assert_eq!(
            value["location"],
            json!({ "type": "s3Compliant", "bucket": "backups", "endpoint": "https://minio",
            "prefix": "team", "region": "eu-1" })
        );
        let pair = &value["credential"]["keyPair"];
        assert_eq!(
            (&pair["idField"], &pair["secretField"]),
            (&json!("aws_access_key_id"), &json!("aws_secret_access_key"))
        );
        assert_eq!(pair["secret"], json!({ "name": secret.name_any(), "namespace": "home" }));
        assert_eq!(value["skipSSLVerify"], true);
        assert_eq!(check_schema(&profile), Ok(()));
    }

    #[test]
    fn a_role_and_a_cloud_are_in_a_secret_of_kanisters_types() {
        let role = planned("s3compliant -b b -a id -s key -R arn:role", "");
        assert_eq!(role.secret.type_.as_deref(), Some("secrets.kanister.io/aws"));
        assert_eq!(role.secret.string_data.as_ref().unwrap()["role"], "arn:role");
        let cloud = planned("azure -b b -a account -s key --storage-env AzureChinaCloud", "");
        let value = serde_json::to_value(&cloud.profile).unwrap();
        assert_eq!((&value["location"]["type"], &value["credential"]["type"]), (&json!("azure"), &json!("secret")));
        assert_eq!(cloud.secret.type_.as_deref(), Some("secrets.kanister.io/azure"));
    }
}
