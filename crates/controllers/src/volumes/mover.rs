//! Which mover a backup's volumes are moved by.

use kube::api::ListParams;
use plimsoll_api::velero::v1::{BackupRepository, UploaderType};
use plimsoll_mover::Kind;

use crate::Error;
use crate::context::Context;
use crate::control::api;

/// Which mover new backups of volumes use. One for each backup: Velero refuses two types in one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoverChoice {
    /// kopia where the volumes of this cluster are in kopia repositories already, so that there is a way back to Velero;
    /// otherwise the built-in one.
    #[default]
    Auto,
    /// This one.
    Always(Kind),
}

impl MoverChoice {
    /// The mover for a new backup.
    pub(crate) async fn resolve(self, context: &Context) -> Result<Kind, Error> {
        if let Self::Always(kind) = self {
            return Ok(kind);
        }
        let found = api::<BackupRepository>(context).list(&ListParams::default()).await;
        let found = found.map_err(|e| Error::api("list BackupRepositories", e))?;
        let kopia = found.items.iter().any(|found| found.spec.repository_type == Some(UploaderType::Kopia));
        Ok(if kopia { Kind::Kopia } else { Kind::BuiltIn })
    }
}

impl std::str::FromStr for MoverChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "built-in" => Ok(Self::Always(Kind::BuiltIn)),
            "restic" => Ok(Self::Always(Kind::Restic)),
            "kopia" => Ok(Self::Always(Kind::Kopia)),
            other => Err(format!("there is no mover {other:?}: auto, built-in, restic and kopia are")),
        }
    }
}
