//! Lists, page by page.

use bytes::Bytes;
use futures::stream;
use plimsoll_progress::Task;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Cluster, Resource};
use crate::{Error, RetryPolicy};

/// The page size of Velero.
pub(super) const DEFAULT_PAGE_SIZE: u32 = 500;
/// Target size of a page; a single object may have up to 1.5 MiB.
const PAGE_BYTES: usize = 1 << 20;

/// One page of a LIST.
#[derive(Debug)]
pub struct Page {
    /// The objects, as sent. Items of built-in kinds carry no apiVersion and kind: see [`add_type_meta`](super::add_type_meta).
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

impl Cluster {
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
    use super::super::resource::pods;
    use super::*;

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
}
