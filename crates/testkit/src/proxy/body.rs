//! A body that ends badly.

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

/// How a body ends before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With an error, which closes the connection.
    Cut,
    /// Not at all.
    Hang,
}

/// The body as it is.
pub(super) fn whole<B>(body: B) -> BoxBody
where
    B: Body<Data = Bytes, Error: Into<Error>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Its first bytes, then its bad end.
pub(super) fn spoiled(body: BoxBody, after: usize, end: End) -> BoxBody {
    Spoiled { body, left: after, end, pause: None }.boxed_unsync()
}

/// An error makes the connection end at once, with what is still in its buffers. They are written as soon as the body has
/// nothing to give, so it has nothing to give for a moment.
const TIME_TO_WRITE: Duration = Duration::from_millis(100);

struct Spoiled {
    body: BoxBody,
    left: usize,
    end: End,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Spoiled {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        if self.end == End::Hang {
            // Nobody wakes this task again, except its client by leaving.
            return Poll::Pending;
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(TIME_TO_WRITE)));
        pause.as_mut().poll(context).map(|()| io::Error::from(io::ErrorKind::ConnectionReset).into())
    }
}

impl Body for Spoiled {
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
