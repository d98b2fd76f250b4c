//! The template parameter `.RepositoryServer`: a running Kopia repository server of Kanister 0.119.

use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use plimsoll_api::kanister::v1alpha1::ObjectReference;
use serde_json::{Value, json};

use super::{get_object, read_object, read_secret};
use crate::Error;
use crate::kopia_server::KopiaServer;

/// The secrets in the parameter: the passwords of its users.
pub(super) fn secrets(server: &Value) -> Vec<String> {
    let users = server["Credentials"]["ServerUserAccess"].as_object().cloned().unwrap_or_default();
    super::secrets_in(&[("users".to_owned(), Value::Object(users))].into_iter().collect())
}

/// Reads the server, its Secrets and its Service.
pub(super) async fn read(client: &Client, reference: &ObjectReference) -> Result<Value, Error> {
    let kind = GroupVersionKind::gvk("cr.kanister.io", "v1alpha1", "RepositoryServer");
    let resource = ApiResource::from_gvk_with_plural(&kind, "repositoryservers");
    let server = read_object(client, &resource, true, reference).await?;
    let text = |pointer: &str| server.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let secret = async |pointer: &str| {
        let reference = server.pointer(pointer).cloned().unwrap_or_default();
        let mut reference: ObjectReference = serde_json::from_value(reference).unwrap_or_default();
        if reference.name.as_deref().unwrap_or_default().is_empty() {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            return Err(Error::Missing(format!("repositoryserver {namespace}/{name} has no {field}")));
        }
        reference.namespace = reference.namespace.filter(|own| !own.is_empty()).or_else(|| Some(namespace.clone()));
        read_secret(client, &reference).await
    };
    let tls = secret("/spec/server/tlsSecretRef").await?;
    let users = secret("/spec/server/userAccess/userAccessSecretRef").await?;
    let options = [("content", "dataStoreGeneralContentCacheSize"), ("metadata", "dataStoreGeneralMetadataCacheSize")];
    let options = options.iter().filter_map(|(field, option)| {
        Some(((*option).to_owned(), server.pointer("/spec/repository/cacheSizeSettings")?[*field].as_i64()?))
    });
    let (content, metadata) = KopiaServer::cache_sizes(&options.collect());
    Ok(json!({
        "Name": name,
        "Namespace": namespace,
        "ServerInfo": { "podName": text("/status/serverInfo/podName"), "serviceName": text("/status/serverInfo/serviceName") },
        "Username": text("/spec/server/userAccess/username"),
        "Credentials": { "ServerTLS": tls, "ServerUserAccess": users },
        "Address": address(client, &namespace, &name, &text("/status/serverInfo/serviceName")).await?,
        "ContentCacheMB": content,
        "MetadataCacheMB": metadata,
    }))
}

/// The address of the Service that the server's status names.
async fn address(client: &Client, namespace: &str, server: &str, service: &str) -> Result<String, Error> {
    if service.is_empty() {
        return Err(Error::Missing(format!(
            "repositoryserver {namespace}/{server} is not ready: it has no service yet"
        )));
    }
    let found: Service = get_object(client, namespace, service, "service").await?;
    let spec = found.spec.unwrap_or_default();
    let port = spec.ports.iter().flatten().next().map(|port| port.port);
    let port = port.ok_or_else(|| Error::Missing(format!("service {namespace}/{service} has no port")))?;
    // A Service with an external name is an alias of it.
    let alias = spec.external_name.filter(|_| spec.type_.as_deref() == Some("ExternalName"));
    let host = alias.unwrap_or_else(|| format!("{service}.{namespace}.svc.cluster.local"));
    Ok(format!("https://{host}:{port}"))
}
