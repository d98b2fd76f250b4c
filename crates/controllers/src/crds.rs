//! Installing our custom resource definitions.

use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::Condition as _;
use kube::runtime::wait::conditions::is_crd_established;
use kube::{Api, Client, ResourceExt};
use plimsoll_engine::Error;

/// How long the API server may take to serve a definition that it has accepted.
const SERVED_TIMEOUT: Duration = Duration::from_mins(1);
/// How often it is polled.
const SERVED_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Creates our custom resource definitions, or brings them up to date. Ends when the API server serves all of them.
pub async fn install_crds(client: Client) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in plimsoll_api::crds() {
        let name = crd.name_any();
        let what = format!("install CustomResourceDefinition {name}");
        match api.create(&PostParams::default(), &crd).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let patch = Patch::Merge(&crd);
                api.patch(&name, &PatchParams::default(), &patch).await.map_err(|e| Error::api(what, e))?;
            }
            Err(error) => return Err(Error::api(what, error)),
        }
    }
    let deadline = Instant::now() + SERVED_TIMEOUT;
    for crd in plimsoll_api::crds() {
        wait_until_served(&client, &crd, deadline).await?;
    }
    Ok(())
}

/// Waits until a definition is established and a list of each of its versions is answered: storage starts after Established.
async fn wait_until_served(client: &Client, crd: &CustomResourceDefinition, deadline: Instant) -> Result<(), Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    loop {
        let stored = definitions.get(&name).await;
        let answer = match stored {
            Ok(stored) if !is_crd_established().matches_object(Some(&stored)) => Ok(false),
            Ok(_) => list_every_version(client, crd).await.map(|()| true),
            Err(error) => Err(error),
        };
        match answer {
            Ok(true) => return Ok(()),
            Ok(false) if Instant::now() < deadline => {}
            Ok(false) => {
                let detail = format!("it is not established after {}s", SERVED_TIMEOUT.as_secs());
                return Err(Error::InvalidResponse {
                    what: format!("install CustomResourceDefinition {name}"),
                    detail,
                });
            }
            Err(error) if is_starting(&error) && Instant::now() < deadline => {}
            Err(error) => return Err(Error::api(format!("list {name}"), error)),
        }
        tokio::time::sleep(SERVED_POLL_INTERVAL).await;
    }
}

async fn list_every_version(client: &Client, crd: &CustomResourceDefinition) -> Result<(), kube::Error> {
    for version in crd.spec.versions.iter().filter(|version| version.served) {
        let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match objects.list_metadata(&ListParams::default().limit(1)).await {
            // Who may change definitions need not be allowed to list their objects: the refusal comes from a kind that is served.
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// What the API server answers between accepting a definition and serving its kind.
fn is_starting(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [404, 429, 503].contains(&status.code))
}
