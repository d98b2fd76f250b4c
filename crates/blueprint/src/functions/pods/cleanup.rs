//! Deletes the pods of a phase, those of an earlier process included.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};

use super::{PHASE_LABEL, POLL_INTERVAL};
use crate::Error;
use crate::functions::call::Call;

impl Call {
    /// Deletes the pods of this call. Errors are logged; they do not fail the phase.
    pub async fn clean_up(&self) {
        if let Some(data_movers) = &self.data_movers {
            data_movers.clean_up(self).await;
        }
        let pods = std::mem::take(&mut *self.pods.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for (namespace, name) in pods {
            if self.host.authorize_effect().is_err() {
                return;
            }
            self.host.kill_point("phase.cleanup.before");
            let immediately = DeleteParams::default().grace_period(0);
            match self.pods_of(&namespace).delete(&name, &immediately).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => self.log(&format!("failed to delete pod {namespace}/{name}: {error}")),
            }
            self.host.kill_point("phase.cleanup.after");
        }
    }

    /// Finds the pods that an earlier process created for this phase, so that they are deleted too. By label, in all namespaces:
    /// that process may have stopped before it stored their namespace.
    pub async fn find_pods(&self) {
        match pods_of_phase(&self.client, &self.identity).await {
            Ok(found) => self.pods.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(found),
            Err(error) => self.log(&format!("failed to list pods of an earlier server: {error}")),
        }
    }
}

/// The pods of a phase with their namespaces; retries while the API server is unavailable.
async fn pods_of_phase(client: &Client, identity: &str) -> Result<Vec<(String, String)>, Error> {
    let selector = ListParams::default().labels(&format!("{PHASE_LABEL}={identity}"));
    let mut pause = POLL_INTERVAL;
    loop {
        let listed = Api::<Pod>::all(client.clone()).list_metadata(&selector).await;
        match listed.map_err(|error| Error::api(format!("list pods with the label {PHASE_LABEL}={identity}"), error)) {
            Ok(found) => {
                return Ok(found.iter().map(|pod| (pod.namespace().unwrap_or_default(), pod.name_any())).collect());
            }
            Err(error) if error.is_retryable() && pause < Duration::from_secs(30) => tokio::time::sleep(pause).await,
            Err(error) => return Err(error),
        }
        pause *= 2;
    }
}

/// Deletes all pods of a phase. Returns the first error; the other pods are deleted.
pub async fn remove_pods(client: &Client, identity: &str) -> Result<(), Error> {
    let mut result = Ok(());
    for (namespace, name) in pods_of_phase(client, identity).await? {
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        match api.delete(&name, &DeleteParams::default().grace_period(0)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => result = result.and(Err(Error::api(format!("delete pod {namespace}/{name}"), error))),
        }
    }
    result
}
