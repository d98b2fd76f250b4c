//! A client that sends no change once its process no longer leads.
//!
//! Checks before an effect are made by the code that has it. A process that was stopped between its check and its effect, and
//! continues after its successor has begun, is caught here: the last check is made when the request is sent.

use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use plimsoll_engine::FencedRequest;
use tower::{BoxError, service_fn};

use super::fence::Fence;

/// The same client, behind a fence: it reads at any time, and changes nothing once the fence is closed.
pub fn fence_client(client: Client, fence: Arc<Fence>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let checked = if *request.method() == Method::GET { Ok(()) } else { fence.check() };
        let client = client.clone();
        async move {
            checked.map_err(|error| BoxError::from(FencedRequest(error.to_string())))?;
            client.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}
