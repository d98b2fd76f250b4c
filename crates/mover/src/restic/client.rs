//! restic with one repository: the program, the repository URL, and the files with secrets.

use std::cell::Cell;
use std::process::Command;

use plimsoll_store::{AwsKeys, AzureAccount, AzureIdentity, Location};
use secrecy::ExposeSecret;

use super::errors;
use super::messages::strip_progress;
use crate::job::Repository;
use crate::mover::Session;
use crate::probe::Probe;
use crate::program::{Exit, Program};
use crate::version::Version;
use crate::{MoverError, Result};

/// The first version with `backup --json`.
const MIN_VERSION: Version = Version(0, 9, 5);
/// The first version that reads repositories of format version 2, which the leader initializes.
const FORMAT_2_VERSION: Version = Version(0, 14, 0);

/// restic with one repository.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub session: &'a Session,
    pub program: Program,
    pub probe: Probe,
    pub name: String,
    address: String,
    options: Vec<String>,
    /// Additional environment variables. They contain paths of files with secrets, never secrets.
    environment: Vec<(&'static str, String)>,
    /// Set when the store rejected a lock file.
    no_lock: Cell<bool>,
}

impl<'a> Client<'a> {
    pub(super) fn open(session: &'a Session) -> Result<Self> {
        let program = Program::find("restic", "version", MIN_VERSION, strip_progress, session)?;
        let Repository { location: repository_location, password } = &session.repository;
        let (name, location) = (repository_location.name(), repository_location.location());
        let invalid = |error: plimsoll_store::StoreError| MoverError::from_store(&error, &name);
        let mut options = options(&location).map_err(invalid)?;
        let password = session.private.write("password", password.expose())?;
        options.extend(["--password-file".into(), password.display().to_string()]);
        if let Some(pem) = &location.ca_cert {
            let file = session.private.write("ca.pem", pem)?;
            options.extend(["--cacert".into(), file.display().to_string()]);
        }
        options.extend(cache(session));
        let address = address(&location)?;
        let environment = environment(&location, session, &name)?;
        let probe = Probe::open(repository_location)?;
        Ok(Self { session, program, probe, name, address, options, environment, no_lock: Cell::new(false) })
    }

    /// As [`Self::open`], for a repository that must exist.
    pub(super) fn open_repository(session: &'a Session) -> Result<Self> {
        let client = Self::open(session)?;
        client.require_repository()?;
        Ok(client)
    }

    /// A restic command on this repository. The URL is not secret.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program.command(self.session, ["--repo", &self.address]);
        command.args(&self.options).args(self.no_lock.get().then_some("--no-lock")).args(arguments);
        let fps = 1000 / self.session.interval.as_millis().clamp(50, 1000);
        command.env("RESTIC_PROGRESS_FPS", (fps * 2).to_string());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command and returns its standard output.
    pub(super) fn execute(&self, arguments: &[&str]) -> Result<String> {
        let (output, exit) = self.program.capture(self.command(arguments), self.session)?;
        if exit.status.success() { Ok(output) } else { Err(self.error(&exit)) }
    }

    /// Runs a read-only command. Repeats it without a lock if the store rejects the lock file.
    pub(super) fn execute_read_only(&self, arguments: &[&str]) -> Result<String> {
        let (output, exit) = self.program.capture(self.command(arguments), self.session)?;
        match exit.status.success() {
            true => Ok(output),
            false if self.switch_to_no_lock(&exit) => self.execute(arguments),
            false => Err(self.error(&exit)),
        }
    }

    /// Whether a read-only command failed because the store rejects lock files, so that a retry without a lock may succeed. From
    /// then on this client runs all commands without a lock.
    pub(super) fn switch_to_no_lock(&self, exit: &Exit) -> bool {
        let is_denied = !self.no_lock.get() && errors::is_lock_denied(exit);
        if is_denied {
            tracing::warn!("repository {} does not accept lock files: {}", self.name, self.error(exit));
            self.no_lock.set(true);
        }
        is_denied
    }

    /// Warns about a restore without a lock file.
    pub(super) fn lock_warning(&self) -> Option<String> {
        let warning = "the repository's store does not accept lock files: do not run prune during a restore";
        self.no_lock.get().then(|| warning.to_owned())
    }

    pub(super) fn error(&self, exit: &Exit) -> MoverError {
        errors::classify(exit, &self.name, None).unwrap_or_else(|| self.program.error(exit))
    }

    /// Reports a missing or unreachable repository at once; restic retries for a quarter of an hour.
    pub(super) fn require_repository(&self) -> Result<()> {
        if !self.probe.exists("config")? {
            return Err(MoverError::RepositoryNotFound { repository: self.name.clone() });
        }
        self.require_readable()
    }

    /// Rejects a restic that cannot read the repository's format. Reads the config only for old versions of restic.
    pub(super) fn require_readable(&self) -> Result<()> {
        if self.program.version >= FORMAT_2_VERSION {
            return Ok(());
        }
        let format = crate::builtin::repository_version(self.session)?;
        if format < 2 {
            return Ok(());
        }
        let (program, repository) = ("restic".into(), self.name.clone());
        let (version, minimum) = (self.program.version.to_string(), FORMAT_2_VERSION.to_string());
        Err(MoverError::ProgramOlderThanRepository { program, version, minimum, repository, format })
    }

    /// Whether restic has at least this version.
    pub(super) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        self.program.version >= Version(major, minor, 0)
    }
}

/// restic's repository URL of a location.
pub(crate) fn address(location: &Location) -> Result<String> {
    let prefix = location.prefix.trim_matches('/');
    match location.kind() {
        "directory" | "local" => Ok(format!("{}/{prefix}", location.path().unwrap_or_default().trim_end_matches('/'))),
        "aws" => {
            let default = || match location.setting("region") {
                Some(region) => format!("https://s3.{region}.amazonaws.com"),
                None => "https://s3.amazonaws.com".into(),
            };
            let endpoint = location.setting("s3Url").map_or_else(default, ToOwned::to_owned);
            Ok(format!("s3:{}/{}/{prefix}", endpoint.trim_end_matches('/'), location.bucket))
        }
        "gcp" if location.setting("storeEndpoint").is_some() => Err(MoverError::InvalidLocation {
            cause: "restic does not support config storeEndpoint; use the built-in mover".into(),
        }),
        "gcp" => Ok(format!("gs:{}:/{prefix}", location.bucket)),
        "azure" => Ok(format!("azure:{}:/{prefix}", location.bucket)),
        other => Err(MoverError::InvalidLocation {
            cause: format!(
                "the restic mover does not support provider {other:?}; use a directory, S3, Google Cloud Storage or Azure"
            ),
        }),
    }
}

/// restic's environment: paths of credential files, never a secret.
fn environment(location: &Location, session: &Session, name: &str) -> Result<Vec<(&'static str, String)>> {
    let invalid = |error: plimsoll_store::StoreError| MoverError::from_store(&error, name);
    let write_credentials = |content: &str| -> Result<String> {
        Ok(session.private.write("credentials", content.as_bytes())?.display().to_string())
    };
    match location.kind() {
        "aws" => {
            let Some(keys) = location.aws_keys().map_err(invalid)? else { return Ok(Vec::new()) };
            let file = write_credentials(&shared_credentials_file(&keys))?;
            Ok(vec![("AWS_SHARED_CREDENTIALS_FILE", file), ("AWS_PROFILE", "default".into())])
        }
        "gcp" => {
            let Some(key) = location.google_key().map_err(invalid)? else { return Ok(Vec::new()) };
            Ok(vec![("GOOGLE_APPLICATION_CREDENTIALS", write_credentials(key.expose_secret())?)])
        }
        "azure" => azure(location.azure_account().map_err(invalid)?),
        _ => Ok(Vec::new()),
    }
}

/// Supports managed identities only: restic reads keys and client secrets from its environment only.
fn azure(account: AzureAccount) -> Result<Vec<(&'static str, String)>> {
    if !matches!(account.identity, AzureIdentity::Machine) {
        let cause = "restic reads Azure keys and secrets from its environment only, where process listings show them: use the \
                     built-in mover or kopia (--uploader-type), or a managed identity without credentials";
        return Err(MoverError::InvalidLocation { cause: cause.into() });
    }
    let mut variables = vec![("AZURE_ACCOUNT_NAME", account.name)];
    if let Some(domain) = account.domain {
        // restic prepends `blob.` to the suffix.
        let Some(suffix) = domain.strip_prefix("blob.") else {
            let cause = format!("restic supports Azure accounts at https://ACCOUNT.blob.SUFFIX only, not in {domain}");
            return Err(MoverError::InvalidLocation { cause });
        };
        variables.push(("AZURE_ENDPOINT_SUFFIX", suffix.into()));
    }
    Ok(variables)
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

fn shared_credentials_file(keys: &AwsKeys) -> String {
    let line = |name: &str, value: &str| format!("{name} = {}\n", quoted(value));
    let token = keys.token.as_ref().map(|token| line("aws_session_token", token.expose_secret()));
    format!(
        "[default]\n{}{}{}",
        line("aws_access_key_id", &keys.id),
        line("aws_secret_access_key", keys.secret.expose_secret()),
        token.unwrap_or_default()
    )
}

/// Quotes a value for restic's INI parser (go-ini). Without quotes it would end at `#` or `;`, continue in the next line after a
/// trailing backslash, and lose quotes around it. Between backquotes no character is special, and the last backquote of the line
/// ends the value, so that it may contain others.
fn quoted(value: &str) -> String {
    format!("`{value}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_slashes_do_not_change_the_address() {
        assert_eq!(
            address(&Location::directory("/backups/", "/a/restic/b/")).expect("supported"),
            "/backups/a/restic/b"
        );
        let mut s3 = Location { provider: "velero.io/aws".into(), bucket: "b".into(), ..Location::default() };
        s3.prefix = "restic/shop".into();
        assert_eq!(address(&s3).expect("supported"), "s3:https://s3.amazonaws.com/b/restic/shop");
        s3.config.insert("region".into(), "eu-west-1".into());
        assert_eq!(address(&s3).expect("supported"), "s3:https://s3.eu-west-1.amazonaws.com/b/restic/shop");
        s3.config.insert("s3Url".into(), "http://10.0.0.1:9000/".into());
        assert_eq!(address(&s3).expect("supported"), "s3:http://10.0.0.1:9000/b/restic/shop");
        s3.config.clear();
        for (provider, expected) in [("gcp", "gs:b:/restic/shop"), ("azure", "azure:b:/restic/shop")] {
            s3.provider = provider.into();
            assert_eq!(address(&s3).expect("supported"), expected);
        }
        s3.provider = "tape".into();
        assert!(address(&s3).expect_err("not supported").to_string().contains("tape"));
    }

    /// Parses a value like go-ini: from the first to the last backquote of its line.
    fn read_by_go_ini(file: &str, name: &str) -> Option<String> {
        let line = file.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = `"))?;
        Some(line[..line.rfind('`')?].to_owned())
    }

    #[test]
    fn keys_with_special_characters_reach_restic_unchanged() {
        for value in
            ["plain/+=", "a#b;c", "ends with a backslash\\", "\"quoted\"", "back`quote", "`", "``both``", " spaces "]
        {
            let (secret, token) = (value.to_owned().into(), Some(value.to_owned().into()));
            let file = shared_credentials_file(&AwsKeys { id: value.into(), secret, token });
            for name in ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"] {
                assert_eq!(read_by_go_ini(&file, name).as_deref(), Some(value), "{file}");
            }
            assert_eq!(file.lines().count(), 4, "{file}");
        }
    }

    fn azure_account(domain: Option<&str>, identity: AzureIdentity) -> AzureAccount {
        AzureAccount { name: "shop".into(), domain: domain.map(str::to_owned), identity }
    }

    #[test]
    fn an_azure_account_is_passed_with_its_name_and_suffix() {
        let variables =
            azure(azure_account(Some("blob.core.chinacloudapi.cn"), AzureIdentity::Machine)).expect("supported");
        let suffix = ("AZURE_ENDPOINT_SUFFIX", "core.chinacloudapi.cn".to_owned());
        assert_eq!(variables, [("AZURE_ACCOUNT_NAME", "shop".to_owned()), suffix]);
        let error = azure(azure_account(Some("example"), AzureIdentity::Machine)).expect_err("not supported");
        assert!(error.to_string().contains("https://ACCOUNT.blob."), "{error}");
    }

    #[test]
    fn azure_secrets_are_rejected() {
        let secret = || "hush".to_owned().into();
        let principal = AzureIdentity::Principal { tenant: "t".into(), client: "c".into(), secret: secret() };
        for identity in [AzureIdentity::Key(secret()), principal] {
            let error = azure(azure_account(None, identity)).expect_err("not supported");
            assert_eq!(error.reason(), "InvalidStorageLocation");
            let text = error.to_string();
            assert!(text.contains("built-in") && text.contains("managed identity"), "{text}");
            assert!(!text.contains("hush"), "{text}");
        }
    }
}
