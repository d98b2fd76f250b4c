//! Arguments of `plimsoll profile`. Names and meanings are those of `kanctl create profile` and `kanctl validate profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Profile {
    /// Create a profile and the Secret with its credentials
    #[command(subcommand)]
    Create(CreateProfile),
    /// Check the fields of a profile, and that its bucket can be read and written
    #[command(
        after_help = "A profile that cannot be used ends with exit code 6. The check writes an object and deletes it.\n\n\
        Examples:\n  plimsoll profile validate --name s3-profile-x7k2p --resource-namespace kanister\n  \
        plimsoll profile validate -f profile.yaml --schema-validation-only"
    )]
    Validate(ValidateProfile),
}

#[derive(Debug, Subcommand)]
pub enum CreateProfile {
    /// Create a profile of a bucket with the protocol of S3
    #[command(
        after_help = "Examples:\n  plimsoll profile create s3compliant --bucket backups --region eu-1 --access-key AKIA1 --secret-key - < key\n  \
        plimsoll profile create s3compliant -b backups -e https://minio.example -a minio -s - --dry-run < key"
    )]
    S3compliant(CreateS3),
    /// Create a profile of a bucket of Google Cloud Storage
    #[command(
        after_help = "Examples:\n  plimsoll profile create gcp --bucket backups --project-id shop --service-key key.json"
    )]
    Gcp(CreateGcp),
    /// Create a profile of a container of Azure
    #[command(
        after_help = "Examples:\n  plimsoll profile create azure --bucket backups --storage-account shop --storage-key - < key"
    )]
    Azure(CreateAzure),
}

/// The location of a profile.
#[derive(Debug, Args)]
pub struct ProfileLocation {
    /// Bucket, or container of Azure
    #[arg(long, short, value_name = "NAME")]
    pub bucket: String,
    /// Address of the object storage [default: that of the provider]
    #[arg(long, short, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Prefix of all objects in the bucket
    #[arg(long, short, value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// Region of the bucket
    #[arg(long, short, value_name = "REGION")]
    pub region: Option<String>,
    /// Do not verify certificates
    #[arg(long = "skip-SSL-verification")]
    pub skip_ssl_verification: bool,
    /// Name of the profile [default: its type and five random characters]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print the objects as YAML without creating them; the Secret has its credentials in clear
    #[arg(long)]
    pub dry_run: bool,
    /// Do not check that the bucket can be read and written
    #[arg(long)]
    pub skip_validation: bool,
}

#[derive(Args)]
pub struct CreateS3 {
    #[command(flatten)]
    pub location: ProfileLocation,
    /// Access key
    #[arg(long, short, value_name = "ID")]
    pub access_key: String,
    /// Secret key; - reads it from standard input, which keeps it out of the process list
    #[arg(long, short, value_name = "KEY", allow_hyphen_values = true)]
    pub secret_key: String,
    /// Role that restic assumes
    #[arg(long, short = 'R', value_name = "ARN")]
    pub role: Option<String>,
}

#[derive(Debug, Args)]
pub struct CreateGcp {
    #[command(flatten)]
    pub location: ProfileLocation,
    /// Project
    #[arg(long, short = 'a', value_name = "ID")]
    pub project_id: String,
    /// File with the key of a service account
    #[arg(long, short, value_name = "FILE")]
    pub service_key: PathBuf,
}

#[derive(Args)]
pub struct CreateAzure {
    #[command(flatten)]
    pub location: ProfileLocation,
    /// Storage account
    #[arg(long, short = 'a', value_name = "NAME")]
    pub storage_account: String,
    /// Key of the account; - reads it from standard input, which keeps it out of the process list
    #[arg(long, short, value_name = "KEY", allow_hyphen_values = true)]
    pub storage_key: String,
    /// Cloud, such as AzureUSGovernmentCloud [default: the public one]
    #[arg(long, value_name = "NAME")]
    pub storage_env: Option<String>,
}

impl std::fmt::Debug for CreateS3 {
    /// The key is a secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("CreateS3").field("location", &self.location).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CreateAzure {
    /// The key is a secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("CreateAzure").field("location", &self.location).finish_non_exhaustive()
    }
}

#[derive(Debug, Args)]
pub struct ValidateProfile {
    /// Name of a profile in the cluster
    #[arg(long, value_name = "NAME", required_unless_present = "filename", conflicts_with = "filename")]
    pub name: Option<String>,
    /// File with a profile in YAML or JSON; - reads standard input
    #[arg(long, short, value_name = "FILE")]
    pub filename: Option<PathBuf>,
    /// Namespace of the profile [default: that of --namespace]
    #[arg(long, value_name = "NAMESPACE")]
    pub resource_namespace: Option<String>,
    /// Check the fields only
    #[arg(long)]
    pub schema_validation_only: bool,
}
