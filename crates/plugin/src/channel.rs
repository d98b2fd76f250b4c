//! Calls over a plugin's socket.

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

use crate::wire::{Down, Method, Up};

/// A connection to one process.
#[derive(Clone)]
pub(crate) struct Connection {
    channel: Channel,
    largest_message: usize,
}

type Answered<T> = Result<T, Box<Status>>;

impl Connection {
    /// Nothing is sent before the first call.
    pub(crate) fn to(socket: &Path, largest_message: usize) -> Self {
        let socket: PathBuf = socket.to_owned();
        // The address is never resolved; what counts is the connector.
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://plugin.invalid").connect_with_connector_lazy(connector);
        Self { channel, largest_message }
    }

    async fn ready(&self) -> Answered<Grpc<Channel>> {
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(self.largest_message);
        let ready = client.ready().await;
        ready.map_err(|error| Box::new(Status::unavailable(format!("the connection failed: {error}"))))?;
        Ok(client)
    }

    pub(crate) async fn one<Ask, Answer>(&self, method: Method<Ask, Answer>, request: Ask) -> Answered<Answer>
    where
        Ask: Message + 'static,
        Answer: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method.path());
        let codec = ProstCodec::<Ask, Answer>::default();
        let answer = self.ready().await?.unary(Request::new(request), path, codec).await;
        answer.map(Response::into_inner).map_err(Box::new)
    }

    pub(crate) async fn up<Ask, Answer>(
        &self,
        method: Method<Ask, Answer, Up>,
        requests: impl Stream<Item = Ask> + Send + 'static,
    ) -> Answered<Answer>
    where
        Ask: Message + 'static,
        Answer: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method.path());
        let codec = ProstCodec::<Ask, Answer>::default();
        let answer = self.ready().await?.client_streaming(Request::new(requests), path, codec).await;
        answer.map(Response::into_inner).map_err(Box::new)
    }

    pub(crate) async fn down<Ask, Answer>(
        &self,
        method: Method<Ask, Answer, Down>,
        request: Ask,
    ) -> Answered<Streaming<Answer>>
    where
        Ask: Message + 'static,
        Answer: Message + Default + 'static,
    {
        let path = PathAndQuery::from_static(method.path());
        let codec = ProstCodec::<Ask, Answer>::default();
        let answer = self.ready().await?.server_streaming(Request::new(request), path, codec).await;
        answer.map(Response::into_inner).map_err(Box::new)
    }
}
