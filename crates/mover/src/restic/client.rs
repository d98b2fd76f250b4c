//! restic and one repository: which program, which address, and the files that hold what is secret.

use std::process::Command;

use plimsoll_store::{AwsKeys, AzureAccount, AzureIdentity, Location};
use secrecy::{ExposeSecret, SecretString};

use super::errors;
use crate::job::Repository;
use crate::mover::Session;
use crate::probe::Probe;
use crate::tool::{Exit, Program};
use crate::version::Version;
use crate::{MoverError, Result};

/// The first with `backup --json`.
const LEAST: Version = Version(0, 9, 5);
/// The first that reads repositories of version 2. Every repository that the leader makes is one.
const READS_VERSION_2: Version = Version(0, 14, 0);

/// restic, ready to work on one repository.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub session: &'a Session,
    pub program: Program,
    pub probe: Probe,
    pub name: String,
    address: String,
    options: Vec<String>,
    /// What the child gets beside: names of files with secrets, and for Azure, which reads no file, the secret itself.
    environment: Vec<(&'static str, SecretString)>,
}

impl<'a> Client<'a> {
    pub(super) fn open(session: &'a Session) -> Result<Self> {
        let program = Program::find("restic", "version", LEAST, session)?;
        let Repository { place, password } = &session.repository;
        let (name, location) = (place.name(), place.location());
        let unusable = |error: plimsoll_store::StoreError| MoverError::of_store(&error, &name);
        let mut options = options(&location).map_err(unusable)?;
        let password = session.private.write("password", password.expose())?;
        options.extend(["--password-file".into(), password.display().to_string()]);
        if let Some(pem) = &location.ca_cert {
            let file = session.private.write("ca.pem", pem)?;
            options.extend(["--cacert".into(), file.display().to_string()]);
        }
        options.extend(cache(session));
        let address = address(&location)?;
        let environment = environment(&location, session, &name)?;
        let probe = Probe::open(place)?;
        Ok(Self { session, program, probe, name, address, options, environment })
    }

    /// A restic command on this repository. The address is no secret.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program.command(self.session, ["--repo", &self.address]);
        command.args(&self.options).args(arguments);
        let fps = 1000 / self.session.interval.as_millis().clamp(50, 1000);
        command.env("RESTIC_PROGRESS_FPS", (fps * 2).to_string());
        command.envs(self.environment.iter().map(|(name, value)| (name, value.expose_secret())));
        command
    }

    /// The standard output of a command that ended well.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<String> {
        let (said, exit) = self.program.capture(self.command(arguments), self.session)?;
        if exit.status.success() { Ok(said) } else { Err(self.error(&exit)) }
    }

    pub(super) fn error(&self, exit: &Exit) -> MoverError {
        errors::classify(exit, &self.name, None).unwrap_or_else(|| self.program.failed(exit))
    }

    /// A missing or dead repository is named before restic tries it for a quarter of an hour.
    pub(super) fn require_repository(&self) -> Result<()> {
        if !self.probe.exists("config")? {
            return Err(MoverError::NoRepository { repository: self.name.clone() });
        }
        self.require_readable()
    }

    /// Refuses a restic that is older than the repository's format. Only such an old one is worth opening the repository twice.
    pub(super) fn require_readable(&self) -> Result<()> {
        if self.program.version >= READS_VERSION_2 {
            return Ok(());
        }
        let format = crate::builtin::repository_version(self.session)?;
        if format < 2 {
            return Ok(());
        }
        let (program, repository) = ("restic".into(), self.name.clone());
        let (version, least) = (self.program.version.to_string(), READS_VERSION_2.to_string());
        Err(MoverError::ProgramOlderThanRepository { program, version, least, repository, format })
    }

    /// Whether restic is at least this.
    pub(super) fn is(&self, major: u32, minor: u32) -> bool {
        self.program.version >= Version(major, minor, 0)
    }
}

/// restic's name for a place.
pub(crate) fn address(location: &Location) -> Result<String> {
    let prefix = location.prefix.trim_matches('/');
    match location.kind() {
        "directory" | "local" => Ok(format!("{}/{prefix}", location.path().unwrap_or_default().trim_end_matches('/'))),
        "aws" => {
            let own = || match location.setting("region") {
                Some(region) => format!("https://s3.{region}.amazonaws.com"),
                None => "https://s3.amazonaws.com".into(),
            };
            let endpoint = location.setting("s3Url").map_or_else(own, ToOwned::to_owned);
            Ok(format!("s3:{}/{}/{prefix}", endpoint.trim_end_matches('/'), location.bucket))
        }
        "gcp" if location.setting("storeEndpoint").is_some() => Err(MoverError::InvalidLocation {
            cause: "restic knows Google's own storage only, and no config storeEndpoint; the built-in mover does"
                .into(),
        }),
        "gcp" => Ok(format!("gs:{}:/{prefix}", location.bucket)),
        "azure" => Ok(format!("azure:{}:/{prefix}", location.bucket)),
        other => Err(MoverError::InvalidLocation {
            cause: format!(
                "the restic mover knows directories, S3, Google Cloud Storage and Azure, not provider {other:?}"
            ),
        }),
    }
}

/// How restic learns who it is: never by its command line.
fn environment(location: &Location, session: &Session, name: &str) -> Result<Vec<(&'static str, SecretString)>> {
    let unusable = |error: plimsoll_store::StoreError| MoverError::of_store(&error, name);
    let written = |content: &str| -> Result<SecretString> {
        Ok(session.private.write("credentials", content.as_bytes())?.display().to_string().into())
    };
    match location.kind() {
        "aws" => {
            let Some(keys) = location.aws_keys().map_err(unusable)? else { return Ok(Vec::new()) };
            let file = written(&shared_file(&keys))?;
            Ok(vec![("AWS_SHARED_CREDENTIALS_FILE", file), ("AWS_PROFILE", "default".into())])
        }
        "gcp" => {
            let Some(key) = location.google_key().map_err(unusable)? else { return Ok(Vec::new()) };
            Ok(vec![("GOOGLE_APPLICATION_CREDENTIALS", written(key.expose_secret())?)])
        }
        "azure" => azure(location.azure_account().map_err(unusable)?),
        _ => Ok(Vec::new()),
    }
}

/// restic puts `blob.` in front of the suffix by itself.
fn azure(account: AzureAccount) -> Result<Vec<(&'static str, SecretString)>> {
    let mut all = vec![("AZURE_ACCOUNT_NAME", account.name.into())];
    if let Some(domain) = account.domain {
        let Some(suffix) = domain.strip_prefix("blob.") else {
            let cause =
                format!("restic knows Azure's accounts only as https://ACCOUNT.blob.SUFFIX, not below {domain}");
            return Err(MoverError::InvalidLocation { cause });
        };
        all.push(("AZURE_ENDPOINT_SUFFIX", suffix.into()));
    }
    match account.identity {
        AzureIdentity::Machine => {}
        AzureIdentity::Key(key) => all.push(("AZURE_ACCOUNT_KEY", key)),
        AzureIdentity::Principal { tenant, client, secret } => {
            all.push(("AZURE_TENANT_ID", tenant.into()));
            all.push(("AZURE_CLIENT_ID", client.into()));
            all.push(("AZURE_CLIENT_SECRET", secret));
        }
    }
    Ok(all)
}

fn options(location: &Location) -> plimsoll_store::Result<Vec<String>> {
    let mut options = Vec::new();
    if location.kind() == "aws" {
        if location.flag("s3ForcePathStyle")? == Some(true) {
            options.extend(["-o".into(), "s3.bucket-lookup=path".into()]);
        }
        if let Some(region) = location.setting("region") {
            options.extend(["-o".into(), format!("s3.region={region}")]);
        }
        if location.flag("insecureSkipTLSVerify")? == Some(true) {
            options.push("--insecure-tls".into());
        }
    }
    Ok(options)
}

fn cache(session: &Session) -> Vec<String> {
    match &session.cache {
        Some(directory) => vec!["--cache-dir".into(), directory.join("restic").display().to_string()],
        None => vec!["--no-cache".into()],
    }
}

fn shared_file(keys: &AwsKeys) -> String {
    let mut text = format!(
        "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
        keys.id,
        keys.secret.expose_secret()
    );
    if let Some(token) = &keys.token {
        text.push_str(&format!("aws_session_token = {}\n", token.expose_secret()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_address_whatever_its_slashes() {
        assert_eq!(address(&Location::directory("/backups/", "/a/restic/b/")).expect("knows"), "/backups/a/restic/b");
        let mut s3 = Location { provider: "velero.io/aws".into(), bucket: "b".into(), ..Location::default() };
        s3.prefix = "restic/shop".into();
        assert_eq!(address(&s3).expect("knows"), "s3:https://s3.amazonaws.com/b/restic/shop");
        s3.config.insert("region".into(), "eu-west-1".into());
        assert_eq!(address(&s3).expect("knows"), "s3:https://s3.eu-west-1.amazonaws.com/b/restic/shop");
        s3.config.insert("s3Url".into(), "http://10.0.0.1:9000/".into());
        assert_eq!(address(&s3).expect("knows"), "s3:http://10.0.0.1:9000/b/restic/shop");
        s3.config.clear();
        for (provider, expected) in [("gcp", "gs:b:/restic/shop"), ("azure", "azure:b:/restic/shop")] {
            s3.provider = provider.into();
            assert_eq!(address(&s3).expect("knows"), expected);
        }
        s3.provider = "tape".into();
        assert!(address(&s3).expect_err("does not know").to_string().contains("tape"));
    }

    #[test]
    fn azures_key_goes_to_restic_by_its_environment() {
        let account = |domain: Option<&str>| AzureAccount {
            name: "shop".into(),
            domain: domain.map(str::to_owned),
            identity: AzureIdentity::Key("key".to_owned().into()),
        };
        let told = azure(account(Some("blob.core.chinacloudapi.cn"))).expect("knows");
        let told: Vec<_> = told.iter().map(|(name, value)| (*name, value.expose_secret())).collect();
        let suffix = ("AZURE_ENDPOINT_SUFFIX", "core.chinacloudapi.cn");
        assert_eq!(told, [("AZURE_ACCOUNT_NAME", "shop"), suffix, ("AZURE_ACCOUNT_KEY", "key")]);
        assert!(
            azure(account(Some("example"))).expect_err("restic cannot").to_string().contains("https://ACCOUNT.blob.")
        );
    }
}
