//! Persistent volumes with data in them, on the node that testkit runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Config};
use serde_json::json;

use crate::cluster::NODE;
use crate::shape::{Shape, WriteSummary};

/// A claim that is bound to a directory of this machine.
#[derive(Debug)]
pub struct Volume {
    claim: String,
    name: String,
    directory: PathBuf,
    config: Config,
}

impl Volume {
    /// Creates a `local` volume (file-system backups do not support `hostPath`) and a claim for it.
    pub(crate) async fn create(config: Config, folder: &Path, namespace: &str, claim: &str) -> Result<Self> {
        let name = format!("{namespace}-{claim}");
        let directory = folder.join(&name);
        fs::create_dir_all(&directory)?;
        let client = Client::try_from(config.clone())?;
        let volume = Self { claim: claim.into(), name, directory, config };
        volume.create_objects(&client, namespace).await?;
        Ok(volume)
    }

    async fn create_objects(&self, client: &Client, namespace: &str) -> Result<()> {
        let access = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": ""});
        let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]});
        let mut volume = json!({"metadata": {"name": self.name}, "spec": access});
        volume["spec"]["capacity"] = json!({"storage": "10Gi"});
        volume["spec"]["local"] = json!({"path": self.directory});
        volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": self.claim});
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}});
        let mut claim = json!({"metadata": {"name": self.claim}, "spec": access});
        claim["spec"]["volumeName"] = json!(self.name);
        claim["spec"]["resources"] = json!({"requests": {"storage": "10Gi"}});
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        Ok(())
    }

    /// The claim's name: what a pod mounts.
    pub fn claim(&self) -> &str {
        &self.claim
    }

    /// The volume's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its files, as this machine sees them.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Fills it.
    pub fn fill(&self, shape: &Shape) -> Result<WriteSummary> {
        shape.write_into(&self.directory)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let (name, config) = (self.name.clone(), self.config.clone());
        let _ = crate::blocking::run(async move {
            let volumes: Api<PersistentVolume> = Api::all(Client::try_from(config)?);
            Ok(volumes.delete(&name, &DeleteParams::default()).await.map(|_| ())?)
        });
        let _ = fs::remove_dir_all(&self.directory);
    }
}
