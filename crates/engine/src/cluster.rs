//! Access to the Kubernetes API: resources by name, objects as the bytes that the API server sent.
//!
//! Objects are never parsed into typed structs, because a typed round trip drops unknown fields.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource, APIResourceList};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use plimsoll_progress::Task;
use plimsoll_select::resource_order::COHABITATING_RESOURCES;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Error, RetryPolicy};

/// A resource that the API server serves, in its preferred version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural name, as in URLs.
    pub plural: String,
    /// Kind.
    pub kind: String,
    /// Whether it is namespaced.
    pub namespaced: bool,
    /// Singular and short names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods`, `deployments.apps`: the name in archives and filters.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `apps/v1/Deployment`: the key in the resource list.
    pub fn list_key(&self) -> String {
        format!("{}/{}", self.api_version(), self.kind)
    }

    /// The path of its collection, in one namespace or in all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        collection_path(&self.api_version(), &self.plural, namespace)
    }
}

/// The URL path of a collection.
pub fn collection_path(api_version: &str, plural: &str, namespace: Option<&str>) -> String {
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    match namespace {
        Some(namespace) => format!("{root}/{api_version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{api_version}/{plural}"),
    }
}

/// The result of API discovery.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Resources that can be listed, read, created and deleted, each in one version.
    pub resources: Vec<Resource>,
    /// Group versions that are unavailable, with the error: usually an aggregated API without a running backend.
    pub unavailable: Vec<(String, String)>,
}

impl Discovery {
    /// Adds the resources that no earlier version has.
    fn add(&mut self, resources: Vec<Resource>) {
        let known: HashSet<String> = self.resources.iter().map(Resource::group_resource).collect();
        self.resources.extend(resources.into_iter().filter(|one| !known.contains(&one.group_resource())));
    }
}

/// One page of a LIST.
#[derive(Debug)]
pub struct Page {
    /// The objects, as sent. Items of built-in kinds carry no apiVersion and kind: see [`add_type_meta`].
    pub items: Vec<Bytes>,
    /// Continue token of the next page, if there is one.
    pub next: Option<String>,
    /// Number of remaining items, if the API server reports it.
    pub remaining: Option<u64>,
}

/// Which part of a collection to list.
#[derive(Clone, Debug, Default)]
pub struct PageQuery {
    /// A namespace, or all.
    pub namespace: Option<String>,
    /// Label selector in its string form.
    pub label_selector: Option<String>,
    /// Maximum number of items.
    pub limit: u32,
    /// Continue token.
    pub token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawList<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    #[serde(rename = "continue")]
    token: Option<String>,
    remaining_item_count: Option<u64>,
}

/// Access to one cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    page_size: u32,
}

impl Cluster {
    /// Uses this client.
    pub fn new(client: Client) -> Self {
        Self { client, page_size: DEFAULT_PAGE_SIZE }
    }

    /// Another page size of lists; zero means one page.
    #[must_use]
    pub fn with_page_size(self, page_size: u32) -> Self {
        Self { page_size, ..self }
    }

    /// Maximum number of objects that a backup lists in one request.
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// The client, for typed requests.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Discovers the resources that can be backed up, each in the preferred version of its group or in the first that has it.
    pub async fn discover(&self) -> Result<Discovery, Error> {
        let groups = self.client.list_api_groups().await.map_err(|e| Error::api("list API groups", e))?;
        let mut versions: Vec<String> = vec!["v1".into()];
        versions.extend(groups.groups.iter().flat_map(versions_of));
        let answers: Vec<_> = stream::iter(versions)
            .map(|version| async move { (version.clone(), self.list_resources(&version).await) })
            .buffered(8)
            .collect()
            .await;
        let mut found = Discovery::default();
        for (version, answer) in answers {
            match answer {
                Ok(resources) => found.add(resources),
                Err(error) if version == "v1" => return Err(error),
                // Deleted since the groups were listed.
                Err(error) if error.code() == Some(404) => {}
                Err(error) => found.unavailable.push((version, error.to_string())),
            }
        }
        drop_cohabitating(&mut found.resources);
        Ok(found)
    }

    async fn list_resources(&self, api_version: &str) -> Result<Vec<Resource>, Error> {
        let list: APIResourceList = if api_version == "v1" {
            self.client.list_core_api_resources("v1").await
        } else {
            self.client.list_api_group_resources(api_version).await
        }
        .map_err(|e| Error::api(format!("discover API {api_version}"), e))?;
        Ok(list.resources.into_iter().filter(supports_backup).map(|r| to_resource(api_version, r)).collect())
    }

    /// Lists one page.
    pub async fn list_page(&self, resource: &Resource, query: &PageQuery) -> Result<Page, Error> {
        let what = || match &query.namespace {
            Some(namespace) => format!("list {} in namespace {namespace}", resource.group_resource()),
            None => format!("list {}", resource.group_resource()),
        };
        let body = self.read(&page_url(resource, query)).await.map_err(|e| Error::api(what(), e))?;
        parse_page(&body).map_err(|e| Error::InvalidResponse { what: what(), detail: e.to_string() })
    }

    /// The number of objects of a query, if the API server reports it. Reads a page of one item.
    pub async fn count(&self, resource: &Resource, query: &PageQuery) -> Result<Option<u64>, Error> {
        let page = self.list_page(resource, &PageQuery { limit: 1, token: None, ..query.clone() }).await?;
        let seen = page.items.len() as u64;
        Ok(match (page.remaining, page.next) {
            (Some(remaining), _) => Some(seen + remaining),
            (None, None) => Some(seen),
            (None, Some(_)) => None,
        })
    }

    /// Reads one object; `None` if it does not exist.
    pub async fn get(&self, path: &str) -> Result<Option<Bytes>, Error> {
        match self.read(path).await {
            Ok(body) => Ok(Some(body)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(Error::api(format!("read {path}"), error)),
        }
    }

    /// The time of the API server, by the `Date` of an answer; `None` if it sends none.
    pub async fn server_time(&self) -> Result<Option<Timestamp>, Error> {
        let asked = async {
            let question = request(Method::GET, "/version", None, Vec::new())?;
            self.client.send(question.map(Body::from)).await
        };
        let answer = asked.await.map_err(|error| Error::api("read the time of the API server", error))?;
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        Ok(date.and_then(|date| rfc2822::DateTimeParser::new().parse_timestamp(date).ok()))
    }

    /// The body of a response, in memory once: the functions of the client hold a page three times.
    async fn read(&self, url: &str) -> Result<Bytes, kube::Error> {
        let answer = self.client.send(request(Method::GET, url, None, Vec::new())?.map(Body::from)).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if status.is_client_error() || status.is_server_error() { Err(status_error(status, &body)) } else { Ok(body) }
    }

    /// Creates one object from its JSON.
    pub async fn create(&self, collection: &str, field_manager: &str, object: Vec<u8>) -> Result<Bytes, Error> {
        let manager: String = url::form_urlencoded::byte_serialize(field_manager.as_bytes()).collect();
        let url = format!("{collection}?fieldManager={manager}");
        self.send(Method::POST, &url, "application/json", object).await
    }

    /// Patches one object with a JSON merge patch.
    pub async fn merge(&self, path: &str, patch: Vec<u8>) -> Result<Bytes, Error> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    async fn send(&self, method: Method, url: &str, content: &str, body: Vec<u8>) -> Result<Bytes, Error> {
        let what = || format!("{} {}", method.as_str().to_lowercase(), url.split('?').next().unwrap_or(url));
        let request = request(method.clone(), url, Some(content), body).map_err(|e| Error::api(what(), e))?;
        self.client.request_text(request).await.map(Bytes::from).map_err(|e| Error::api(what(), e))
    }
}

/// Proxies and starting API servers may respond with something other than a Status.
fn status_error(code: StatusCode, body: &[u8]) -> kube::Error {
    let status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        Status::failure(text.trim(), "Failed to parse error data").with_code(code.as_u16())
    });
    kube::Error::Api(status.boxed())
}

fn request(method: Method, url: &str, content: Option<&str>, body: Vec<u8>) -> Result<Request<Vec<u8>>, kube::Error> {
    let mut builder = Request::builder().method(method).uri(url).header("accept", "application/json");
    if let Some(content) = content {
        builder = builder.header("content-type", content);
    }
    builder.body(body).map_err(kube::Error::HttpError)
}

fn page_url(resource: &Resource, query: &PageQuery) -> String {
    let mut url = url::form_urlencoded::Serializer::new(format!("{}?", resource.path(query.namespace.as_deref())));
    url.append_pair("limit", &query.limit.to_string());
    if let Some(selector) = &query.label_selector {
        url.append_pair("labelSelector", selector);
    }
    if let Some(token) = &query.token {
        url.append_pair("continue", token);
    }
    url.finish().replacen("?&", "?", 1)
}

fn parse_page(body: &Bytes) -> Result<Page, serde_json::Error> {
    let list: RawList<'_> = serde_json::from_slice(body)?;
    let items = list.items.unwrap_or_default().into_iter().map(|raw| body.slice_ref(raw.get().as_bytes())).collect();
    let next = list.metadata.token.filter(|token| !token.is_empty());
    Ok(Page { items, next, remaining: list.metadata.remaining_item_count })
}

/// Adds apiVersion and kind to an item of a LIST, as in a GET.
///
/// API servers write the type first and leave it out of the items of built-in kinds, so the first key decides.
pub fn add_type_meta(item: &Bytes, resource: &Resource) -> Bytes {
    let typed = item.starts_with(b"{\"apiVersion\"") || item.starts_with(b"{\"kind\"");
    let Some(body) = item.strip_prefix(b"{").filter(|_| !typed) else { return item.clone() };
    let head = format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",", resource.api_version(), resource.kind);
    Bytes::from([head.as_bytes(), body].concat())
}

/// The versions of a group, the preferred one first.
fn versions_of(group: &APIGroup) -> Vec<String> {
    let preferred = group.preferred_version.iter().chain(&group.versions).map(|version| version.group_version.clone());
    let mut seen = HashSet::new();
    preferred.filter(|version| seen.insert(version.clone())).collect()
}

fn supports_backup(resource: &APIResource) -> bool {
    let verbs = ["list", "create", "get", "delete"];
    !resource.name.contains('/') && verbs.iter().all(|verb| resource.verbs.iter().any(|v| v == verb))
}

fn to_resource(api_version: &str, resource: APIResource) -> Resource {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let mut aliases = resource.short_names.unwrap_or_default();
    aliases.extend((!resource.singular_name.is_empty()).then_some(resource.singular_name));
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: resource.name,
        kind: resource.kind,
        namespaced: resource.namespaced,
        aliases,
    }
}

/// Some objects are served in two groups. They are backed up once, in the group that Velero uses.
fn drop_cohabitating(resources: &mut Vec<Resource>) {
    let served: Vec<(String, String)> = resources.iter().map(|r| (r.group.clone(), r.plural.clone())).collect();
    let is_served = |group: &str, plural: &str| served.iter().any(|(g, p)| g == group && p == plural);
    resources.retain(|resource| {
        !COHABITATING_RESOURCES.iter().any(|(plural, kept, dropped)| {
            resource.plural == *plural && resource.group == *dropped && is_served(kept, plural)
        })
    });
}

/// The metadata that filters need, read without parsing the rest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ItemMeta {
    /// Name.
    pub name: String,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Set while the object is being deleted.
    pub deletion_timestamp: Option<String>,
}

impl ItemMeta {
    /// Reads it from an object's JSON.
    pub fn of(object: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Object {
            #[serde(default)]
            metadata: ItemMeta,
        }
        serde_json::from_slice::<Object>(object).map(|object| object.metadata)
    }

    /// `namespace/name`, or the name alone.
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Velero's.
const DEFAULT_PAGE_SIZE: u32 = 500;
/// Target size of a page; a single object may have up to 1.5 MiB.
const PAGE_BYTES: usize = 1 << 20;

/// Streams all pages of a query.
///
/// A continue token may expire while a large collection is read (410). The API server then returns a token that continues at
/// the same position on newer data: `expired` is called and reading continues. Failed requests are retried, and `task` shows
/// the wait.
pub fn list_pages<'a>(
    cluster: &'a Cluster,
    resource: &'a Resource,
    query: PageQuery,
    task: &'a Task,
    expired: &'a (dyn Fn() + Sync),
) -> impl futures::Stream<Item = Result<Page, Error>> + 'a {
    stream::try_unfold(Some(query), move |query| async move {
        let Some(query) = query else { return Ok(None) };
        let read =
            async |query: &PageQuery| RetryPolicy::default().run(task, || cluster.list_page(resource, query)).await;
        let page = match read(&query).await {
            Err(error) if error.code() == Some(410) => {
                expired();
                let token = continue_token(&error).ok_or(error)?;
                read(&PageQuery { token: Some(token), ..query.clone() }).await?
            }
            answer => answer?,
        };
        let limit = next_limit(&page, query.limit);
        let next = page.next.clone().map(|token| PageQuery { token: Some(token), limit, ..query });
        Ok(Some((page, next)))
    })
}

/// Smaller pages where objects are large.
fn next_limit(page: &Page, limit: u32) -> u32 {
    let bytes: usize = page.items.iter().map(Bytes::len).sum();
    let average = bytes / page.items.len().max(1);
    u32::try_from(PAGE_BYTES / average.max(1)).unwrap_or(u32::MAX).clamp(10, limit.max(10))
}

fn continue_token(error: &Error) -> Option<String> {
    let Error::Api { source, .. } = error else { return None };
    let kube::Error::Api(status) = source.as_ref() else { return None };
    status.metadata.as_ref().and_then(|metadata| metadata.continue_.clone()).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Resource {
        Resource {
            group: String::new(),
            version: "v1".into(),
            plural: "pods".into(),
            kind: "Pod".into(),
            namespaced: true,
            aliases: vec![],
        }
    }

    #[test]
    fn resources_of_several_versions_are_discovered_once() {
        let mut found = Discovery::default();
        found.add(vec![pods()]);
        found.add(vec![Resource { version: "v2".into(), ..pods() }, Resource { plural: "others".into(), ..pods() }]);
        let found: Vec<_> = found.resources.iter().map(|one| (one.plural.as_str(), one.version.as_str())).collect();
        assert_eq!(found, [("pods", "v1"), ("others", "v1")]);
    }

    #[test]
    fn an_item_of_a_built_in_list_gets_apiversion_and_kind() {
        let item = Bytes::from_static(br#"{"metadata":{"name":"a"},"spec":{"x":1.0}}"#);
        assert_eq!(
            add_type_meta(&item, &pods()),
            Bytes::from_static(br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"x":1.0}}"#)
        );
    }

    #[test]
    fn an_item_with_apiversion_and_kind_is_unchanged() {
        let item = Bytes::from_static(br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#);
        assert_eq!(add_type_meta(&item, &pods()), item);
    }

    #[test]
    fn a_page_is_split_into_items_without_copying() {
        let body = Bytes::from_static(
            br#"{"kind":"PodList","metadata":{"continue":"abc","remainingItemCount":7},"items":[{"a":1}, {"b":[2]}]}"#,
        );
        let page = parse_page(&body).unwrap();
        assert_eq!(page.items, [Bytes::from_static(br#"{"a":1}"#), Bytes::from_static(br#"{"b":[2]}"#)]);
        assert_eq!((page.next.as_deref(), page.remaining), (Some("abc"), Some(7)));
    }

    #[test]
    fn a_list_with_null_items_is_empty() {
        let page = parse_page(&Bytes::from_static(br#"{"metadata":{"continue":""},"items":null}"#)).unwrap();
        assert!(page.items.is_empty() && page.next.is_none());
    }

    #[test]
    fn query_values_are_escaped() {
        let query = PageQuery {
            namespace: Some("shop".into()),
            label_selector: Some("app in (a,b)".into()),
            limit: 500,
            token: Some("x=/y".into()),
        };
        assert_eq!(
            page_url(&pods(), &query),
            "/api/v1/namespaces/shop/pods?limit=500&labelSelector=app+in+%28a%2Cb%29&continue=x%3D%2Fy"
        );
    }

    #[test]
    fn events_are_backed_up_once() {
        let event = |group: &str| Resource { group: group.into(), plural: "events".into(), ..pods() };
        let mut resources = vec![event(""), event("events.k8s.io"), pods()];
        drop_cohabitating(&mut resources);
        assert_eq!(resources, [event(""), pods()]);
    }
}
