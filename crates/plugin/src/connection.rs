//! gRPC calls over the unix socket of a plugin.

use std::path::{Path, PathBuf};

use futures::Stream;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::wire::{ClientStreaming, Method, ServerStreaming};

/// A connection to one plugin process.
#[derive(Clone)]
pub(crate) struct Connection {
    channel: Channel,
    max_message_size: usize,
}

type RpcResult<T> = Result<T, Box<Status>>;

impl Connection {
    /// Connects lazily, at the first call.
    pub(crate) fn new(socket: &Path, max_message_size: usize) -> Self {
        let socket: PathBuf = socket.to_owned();
        // The address is never resolved: the connector opens the socket.
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://plugin.invalid").connect_with_connector_lazy(connector);
        Self { channel, max_message_size }
    }

    async fn ready_client(&self) -> RpcResult<Grpc<Channel>> {
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(self.max_message_size);
        let ready = client.ready().await;
        ready.map_err(|error| Box::new(Status::unavailable(format!("connection failed: {error}"))))?;
        Ok(client)
    }

    pub(crate) async fn unary<Input, Output>(&self, method: Method<Input, Output>, request: Input) -> RpcResult<Output>
    where
        Input: Message + 'static,
        Output: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method.path());
        let codec = ProstCodec::<Input, Output>::default();
        let response = self.ready_client().await?.unary(Request::new(request), path, codec).await;
        response.map(Response::into_inner).map_err(Box::new)
    }

    pub(crate) async fn client_streaming<Input, Output>(
        &self,
        method: Method<Input, Output, ClientStreaming>,
        requests: impl Stream<Item = Input> + Send + 'static,
    ) -> RpcResult<Output>
    where
        Input: Message + 'static,
        Output: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method.path());
        let codec = ProstCodec::<Input, Output>::default();
        let response = self.ready_client().await?.client_streaming(Request::new(requests), path, codec).await;
        response.map(Response::into_inner).map_err(Box::new)
    }

    pub(crate) async fn server_streaming<Input, Output>(
        &self,
        method: Method<Input, Output, ServerStreaming>,
        request: Input,
    ) -> RpcResult<Streaming<Output>>
    where
        Input: Message + 'static,
        Output: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method.path());
        let codec = ProstCodec::<Input, Output>::default();
        let response = self.ready_client().await?.server_streaming(Request::new(request), path, codec).await;
        response.map(Response::into_inner).map_err(Box::new)
    }
}
