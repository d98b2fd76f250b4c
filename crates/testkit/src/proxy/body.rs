//! A truncated body.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::time::Sleep;

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(super) type BoxBody = http_body_util::combinators::UnsyncBoxBody<Bytes, Error>;

/// How a truncated body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// With an error, which closes the connection.
    Cut,
    /// It never ends.
    Hang,
}

/// The unchanged body.
pub(super) fn pass_through<B>(body: B) -> BoxBody
where
    B: Body<Data = Bytes, Error: Into<Error>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Its first bytes, then its end.
pub(super) fn truncate(body: BoxBody, after: usize, end: BodyEnd) -> BoxBody {
    TruncatedBody { body, left: after, end, pause: None }.boxed_unsync()
}

/// An error closes the connection immediately and discards its buffers. They are flushed while the body is pending, so
/// it is pending for a moment first.
const FLUSH_DELAY: Duration = Duration::from_millis(100);

struct TruncatedBody {
    body: BoxBody,
    left: usize,
    end: BodyEnd,
    pause: Option<Pin<Box<Sleep>>>,
}

impl TruncatedBody {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        if self.end == BodyEnd::Hang {
            // Only the client wakes this task, by disconnecting.
            return Poll::Pending;
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(FLUSH_DELAY)));
        pause.as_mut().poll(context).map(|()| io::Error::from(io::ErrorKind::ConnectionReset).into())
    }
}

impl Body for TruncatedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.left == 0 {
            return self.poll_end(context).map(|error| Some(Err(error)));
        }
        let frame = match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            other => return Poll::Ready(other),
        };
        let left = self.left;
        let frame = frame.map_data(|mut data| data.split_to(data.len().min(left)));
        self.left -= frame.data_ref().map_or(0, Bytes::len);
        Poll::Ready(Some(Ok(frame)))
    }
}
