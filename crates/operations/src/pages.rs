//! Lists in pages: the API server and this process hold a whole answer in memory.

use std::fmt::Debug;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

/// Calls `on_item` for every object that fits. The objects are of one moment, unless that is too long ago when the next page is
/// requested: then the list begins anew, in one page, and `on_item` sees objects again.
pub async fn list_in_pages<K>(
    api: &Api<K>,
    params: &ListParams,
    page_size: u32,
    mut on_item: impl FnMut(K),
) -> kube::Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.clone();
    params.limit = (page_size > 0).then_some(page_size);
    loop {
        match api.list(&params).await {
            Ok(page) => {
                page.items.into_iter().for_each(&mut on_item);
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params.continue_token = Some(token),
                    None => return Ok(()),
                }
            }
            Err(kube::Error::Api(status)) if status.code == 410 && params.continue_token.is_some() => {
                (params.continue_token, params.limit) = (None, None);
            }
            Err(error) => return Err(error),
        }
    }
}
