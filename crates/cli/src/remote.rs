//! Downloads of files of backups and restores, by URLs that the server signs.
//!
//! ```text
//!  DownloadRequest ──▶ the server signs a URL ──▶ GET ──▶ the bytes, as stored in object storage
//! ```
//!
//! An interrupted download resumes where it ended, with a new URL.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use plimsoll_api::client_error::client_error_text;
use plimsoll_api::velero::v1::{
    Backup, BackupStorageLocation, DownloadRequest, DownloadRequestSpec, DownloadTarget, DownloadTargetKind, Restore,
};
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::RetryPolicy;
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Certificate, Response, StatusCode};

use crate::args::names::{Reference, ResourceKind};
use crate::args::options::TlsOptions;
use crate::errors;

/// The maximum number of consecutive attempts without a byte.
const MAX_ATTEMPTS: u32 = 5;
/// The pauses between attempts. [`MAX_ATTEMPTS`] takes the place of the timeout: a download that progresses may take any time.
const RETRY_POLICY: RetryPolicy = RetryPolicy {
    initial_pause: Duration::from_millis(500),
    max_pause: Duration::from_secs(10),
    timeout: Duration::MAX,
};
/// A connection without data for this long counts as broken.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The file is not there: an old backup, or one that ended before it was written.
#[derive(Debug)]
pub struct MissingFile(String);

impl std::fmt::Display for MissingFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MissingFile {}

/// Fetches files of one backup or restore.
pub struct Remote {
    client: Client,
    namespace: String,
    name: String,
    http: reqwest::Client,
    timeout: Duration,
}

impl Remote {
    /// Of this backup or restore. `timeout` is for the server to answer with a link.
    pub async fn of(
        client: &Client,
        namespace: &str,
        reference: &Reference,
        tls: &TlsOptions,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            name: reference.name.clone(),
            http: http(certificates(client, namespace, reference, tls).await?.as_deref(), tls)?,
            timeout,
        })
    }

    /// Reads a file from beginning to end, a piece at a time. `task` shows bytes, waits and retries.
    pub async fn fetch(
        &self,
        file: &DownloadTargetKind,
        task: &Task,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<u64> {
        let bytes = task.meter(Unit::Bytes);
        let (mut got, mut failed_attempts, mut fruitless_attempts) = (0_u64, 0, 0);
        loop {
            let before = got;
            let mut take = |piece: &[u8]| {
                got += piece.len() as u64;
                bytes.add(piece.len() as u64);
                take(piece)
            };
            let error = match self.fetch_from(before, file, task, &mut take).await {
                Ok(()) => return Ok(got),
                Err(FetchError::Fatal(error)) => return Err(error),
                Err(FetchError::Retry(error)) => error,
            };
            failed_attempts += 1;
            fruitless_attempts = if got > before { 1 } else { fruitless_attempts + 1 };
            if fruitless_attempts >= MAX_ATTEMPTS {
                return Err(error.context(format!("cannot download {file} of {}", self.name)));
            }
            let waiting = task.wait(format!("retrying: {}", errors::cause_text(&error)));
            tokio::time::sleep(RETRY_POLICY.pause_after(failed_attempts)).await;
            drop(waiting);
        }
    }

    async fn fetch_from(
        &self,
        offset: u64,
        file: &DownloadTargetKind,
        task: &Task,
        take: &mut impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), FetchError> {
        let waiting = task.wait_in_queue("the server to create a link");
        let link = self.link(file).await;
        drop(waiting);
        let mut response = self.get(&link?, offset).await?;
        let mut skip = if response.status() == StatusCode::PARTIAL_CONTENT { 0 } else { offset };
        if let Some(length) = response.content_length() {
            task.meter(Unit::Bytes).set_total(Total::Final(length + offset - skip));
        }
        task.say("receiving");
        while let Some(piece) = response.chunk().await.map_err(|e| FetchError::Retry(without_url(e)))? {
            // A server that knows no ranges sends again what is here already.
            let known = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            skip -= known as u64;
            take(&piece[known..])
                .map_err(|e| FetchError::Fatal(anyhow::Error::new(e).context("cannot write the download")))?;
        }
        Ok(())
    }

    async fn get(&self, link: &str, offset: u64) -> Result<Response, FetchError> {
        let mut request = self.http.get(link);
        if offset > 0 {
            request = request.header(RANGE, format!("bytes={offset}-"));
        }
        let response = request.send().await.map_err(|e| FetchError::Retry(without_url(e)))?;
        let status = response.status();
        let continues = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
        let continues = continues.is_some_and(|range| range.starts_with(&format!("bytes {offset}-")));
        match status {
            StatusCode::OK => Ok(response),
            StatusCode::PARTIAL_CONTENT if continues => Ok(response),
            StatusCode::NOT_FOUND => {
                Err(FetchError::Fatal(MissingFile(format!("{} has no such file", self.name)).into()))
            }
            _ => {
                let text: String = response.text().await.unwrap_or_default().chars().take(300).collect();
                let error = anyhow::anyhow!("object storage answered {status}: {}", text.trim());
                Err(if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
                    FetchError::Retry(error)
                } else {
                    FetchError::Fatal(error)
                })
            }
        }
    }

    /// Asks the server for a link to a file.
    async fn link(&self, file: &DownloadTargetKind) -> Result<String, FetchError> {
        let api: Api<DownloadRequest> = Api::namespaced(self.client.clone(), &self.namespace);
        let request = request(&self.name, file);
        let name = request.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &request).await.map_err(|error| FetchError::Fatal(error.into()))?;
        let answered = |request: Option<&DownloadRequest>| {
            let status = request.and_then(|request| request.status.as_ref());
            status.is_some_and(|status| status.download_url.is_some() || message(status).is_some())
        };
        let answer = tokio::time::timeout(self.timeout, await_condition(api.clone(), &name, answered)).await;
        let _ = api.delete(&name, &DeleteParams::default()).await;
        let Ok(answer) = answer else {
            let text = "no server answered within {}; check that it runs with `plimsoll version`";
            let text = text.replace("{}", &crate::draw::duration(self.timeout.as_secs_f64()));
            return Err(FetchError::Fatal(anyhow::anyhow!(text)));
        };
        let answer = answer.context("cannot wait for the download URL").map_err(FetchError::Fatal)?;
        let status = answer.and_then(|request| request.status).unwrap_or_default();
        match status.download_url.clone() {
            Some(url) => Ok(url),
            None => Err(FetchError::Fatal(anyhow::anyhow!(
                "the server created no download URL: {}",
                message(&status).unwrap_or_default()
            ))),
        }
    }
}

/// Why a download ended early.
enum FetchError {
    /// Another attempt may succeed.
    Retry(anyhow::Error),
    /// It will not.
    Fatal(anyhow::Error),
}

/// The URL is signed: anyone who reads it in an error text could use it.
fn without_url(error: reqwest::Error) -> anyhow::Error {
    anyhow::Error::new(error.without_url())
}

fn message(status: &plimsoll_api::velero::v1::DownloadRequestStatus) -> Option<String> {
    serde_json::to_value(status).ok()?.get("message")?.as_str().map(str::to_owned)
}

fn request(name: &str, file: &DownloadTargetKind) -> DownloadRequest {
    // The name of a request must have room for something unique.
    let short = &name[..name.floor_char_boundary(200)];
    let target = DownloadTarget { kind: Some(file.clone()), name: Some(name.to_owned()), ..DownloadTarget::default() };
    DownloadRequest {
        metadata: ObjectMeta { name: Some(format!("{short}-{}", uuid::Uuid::new_v4())), ..ObjectMeta::default() },
        spec: DownloadRequestSpec { target: Some(target), ..DownloadRequestSpec::default() },
        status: None,
    }
}

fn http(certificates: Option<&[u8]>, tls: &TlsOptions) -> anyhow::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(READ_TIMEOUT)
        .danger_accept_invalid_certs(tls.insecure_skip_tls_verify);
    if let Some(pem) = certificates {
        let bundle = Certificate::from_pem_bundle(pem).context("cannot parse the CA certificates")?;
        ensure!(!bundle.is_empty(), "no certificate found in the CA file");
        builder = builder.tls_certs_merge(bundle);
    }
    builder.build().context("cannot create an HTTP client")
}

/// The certificates to tls: those of the command line, else those of the backup's location.
async fn certificates(
    client: &Client,
    namespace: &str,
    reference: &Reference,
    tls: &TlsOptions,
) -> anyhow::Result<Option<Vec<u8>>> {
    if let Some(path) = &tls.cacert {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read certificates {}", path.display()))?;
        return Ok(Some(bytes));
    }
    let Some(location) = location(client, namespace, reference).await? else { return Ok(None) };
    let storage = location.spec.object_storage.unwrap_or_default();
    let Some(selector) = storage.ca_cert_ref else { return Ok(storage.ca_cert.map(|bytes| bytes.0)) };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match secrets.get_opt(&selector.name).await {
        Ok(secret) => Ok(secret.and_then(|secret| secret.data?.remove(&selector.key)).map(|bytes| bytes.0)),
        Err(error) => bail!(
            "cannot read the CA certificates of the location in Secret {}: {}; pass them with --cacert",
            selector.name,
            client_error_text(&error)
        ),
    }
}

/// The location a backup is in, or a restore's backup.
async fn location(
    client: &Client,
    namespace: &str,
    reference: &Reference,
) -> anyhow::Result<Option<BackupStorageLocation>> {
    let backup = match reference.kind {
        ResourceKind::Restore => {
            let restores: Api<Restore> = Api::namespaced(client.clone(), namespace);
            let restore = restores.get_opt(&reference.name).await?;
            restore.and_then(|restore| restore.spec.backup_name)
        }
        _ => Some(reference.name.clone()),
    };
    let Some(backup) = backup else { return Ok(None) };
    let backups: Api<Backup> = Api::namespaced(client.clone(), namespace);
    let backup = backups.get_opt(&backup).await?;
    let Some(name) = backup.and_then(|backup| backup.spec.storage_location) else { return Ok(None) };
    let locations: Api<BackupStorageLocation> = Api::namespaced(client.clone(), namespace);
    Ok(locations.get_opt(&name).await?)
}
