//! restic and one repository: which program, which address, and the files that hold what is secret.

use std::cell::Cell;
use std::process::Command;

use plimsoll_store::{AwsKeys, AzureAccount, AzureIdentity, Location};
use secrecy::ExposeSecret;

use super::errors;
use super::messages::besides_progress;
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
    /// What the child gets beside, names of files with secrets among it. Never a secret itself.
    environment: Vec<(&'static str, String)>,
    /// Set once the store was found to take no lock file.
    lockless: Cell<bool>,
}

impl<'a> Client<'a> {
    pub(super) fn open(session: &'a Session) -> Result<Self> {
        let program = Program::find("restic", "version", LEAST, besides_progress, session)?;
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
        Ok(Self { session, program, probe, name, address, options, environment, lockless: Cell::new(false) })
    }

    /// A restic command on this repository. The address is no secret.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program.command(self.session, ["--repo", &self.address]);
        command.args(&self.options).args(self.lockless.get().then_some("--no-lock")).args(arguments);
        let fps = 1000 / self.session.interval.as_millis().clamp(50, 1000);
        command.env("RESTIC_PROGRESS_FPS", (fps * 2).to_string());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The standard output of a command that ended well.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<String> {
        let (said, exit) = self.program.capture(self.command(arguments), self.session)?;
        if exit.status.success() { Ok(said) } else { Err(self.error(&exit)) }
    }

    /// The same for a command that only reads, also from a store that takes no lock file.
    pub(super) fn ask_reading(&self, arguments: &[&str]) -> Result<String> {
        let (said, exit) = self.program.capture(self.command(arguments), self.session)?;
        match exit.status.success() {
            true => Ok(said),
            false if self.gives_up_locking(&exit) => self.ask(arguments),
            false => Err(self.error(&exit)),
        }
    }

    /// Whether a command that only reads ended for want of a lock file that the store does not take. It is worth
    /// another try then: from now on no command of this client wants a lock.
    pub(super) fn gives_up_locking(&self, exit: &Exit) -> bool {
        let refused = !self.lockless.get() && errors::refuses_lock(exit);
        if refused {
            tracing::warn!("repository {} takes no lock file: {}", self.name, self.error(exit));
            self.lockless.set(true);
        }
        refused
    }

    /// What the owner of the repository should know where no lock was kept.
    pub(super) fn lock_warning(&self) -> Option<String> {
        let warning = "the repository's store takes no lock file, so none was kept: nobody may prune beside a restore";
        self.lockless.get().then(|| warning.to_owned())
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

/// How restic learns who it is: by the names of files, never by a secret in its environment or on its command line.
fn environment(location: &Location, session: &Session, name: &str) -> Result<Vec<(&'static str, String)>> {
    let unusable = |error: plimsoll_store::StoreError| MoverError::of_store(&error, name);
    let written = |content: &str| -> Result<String> {
        Ok(session.private.write("credentials", content.as_bytes())?.display().to_string())
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

/// Only with the machine's own identity: keys and principals' secrets restic reads from its environment and from nowhere else.
fn azure(account: AzureAccount) -> Result<Vec<(&'static str, String)>> {
    if !matches!(account.identity, AzureIdentity::Machine) {
        let cause = "restic takes Azure's keys and secrets from its environment only, where listings show them: use the \
                     built-in mover or kopia (--uploader-type), or a managed identity and no credentials";
        return Err(MoverError::InvalidLocation { cause: cause.into() });
    }
    let mut all = vec![("AZURE_ACCOUNT_NAME", account.name)];
    if let Some(domain) = account.domain {
        // restic puts `blob.` in front of the suffix by itself.
        let Some(suffix) = domain.strip_prefix("blob.") else {
            let cause =
                format!("restic knows Azure's accounts only as https://ACCOUNT.blob.SUFFIX, not below {domain}");
            return Err(MoverError::InvalidLocation { cause });
        };
        all.push(("AZURE_ENDPOINT_SUFFIX", suffix.into()));
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
    let line = |name: &str, value: &str| format!("{name} = {}\n", quoted(value));
    let token = keys.token.as_ref().map(|token| line("aws_session_token", token.expose_secret()));
    format!(
        "[default]\n{}{}{}",
        line("aws_access_key_id", &keys.id),
        line("aws_secret_access_key", keys.secret.expose_secret()),
        token.unwrap_or_default()
    )
}

/// A value that restic's reader of such files (go-ini) takes to the letter. Bare, it would end at `#` or `;`, go on in
/// the next line after a backslash at its end, and lose quotes around it. Between backquotes nothing has a meaning, and
/// the last one of the line ends the value, so that it may hold others.
fn quoted(value: &str) -> String {
    format!("`{value}`")
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

    /// As go-ini reads a value that begins with a backquote: up to the last one of its line.
    fn read_by_go_ini(file: &str, name: &str) -> Option<String> {
        let line = file.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = `"))?;
        Some(line[..line.rfind('`')?].to_owned())
    }

    #[test]
    fn keys_reach_restic_unchanged_whatever_is_in_them() {
        for value in
            ["plain/+=", "a#b;c", "ends with a backslash\\", "\"quoted\"", "back`quote", "`", "``both``", " spaces "]
        {
            let (secret, token) = (value.to_owned().into(), Some(value.to_owned().into()));
            let file = shared_file(&AwsKeys { id: value.into(), secret, token });
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
    fn restic_knows_azures_accounts_by_their_names_and_suffixes() {
        let told = azure(azure_account(Some("blob.core.chinacloudapi.cn"), AzureIdentity::Machine)).expect("knows");
        let suffix = ("AZURE_ENDPOINT_SUFFIX", "core.chinacloudapi.cn".to_owned());
        assert_eq!(told, [("AZURE_ACCOUNT_NAME", "shop".to_owned()), suffix]);
        let error = azure(azure_account(Some("example"), AzureIdentity::Machine)).expect_err("restic cannot");
        assert!(error.to_string().contains("https://ACCOUNT.blob."), "{error}");
    }

    #[test]
    fn azures_secrets_are_refused_because_restic_reads_them_from_its_environment_only() {
        let secret = || "hush".to_owned().into();
        let principal = AzureIdentity::Principal { tenant: "t".into(), client: "c".into(), secret: secret() };
        for identity in [AzureIdentity::Key(secret()), principal] {
            let error = azure(azure_account(None, identity)).expect_err("nothing else reaches restic");
            assert_eq!(error.reason(), "InvalidStorageLocation");
            let words = error.to_string();
            assert!(words.contains("built-in") && words.contains("managed identity"), "{words}");
            assert!(!words.contains("hush"), "{words}");
        }
    }
}
