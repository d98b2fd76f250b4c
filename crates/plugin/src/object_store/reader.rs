//! The content of one object.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::StoreResult;
use crate::Result;

/// The first bytes of an object and the stream of the rest.
pub(super) struct ObjectReader {
    pub first_bytes: Bytes,
    pub rest: BoxStream<'static, Result<Bytes>>,
}

impl ObjectReader {
    pub fn size(&self) -> u64 {
        self.first_bytes.len() as u64
    }

    pub fn stream(self) -> BoxStream<'static, StoreResult<Bytes>> {
        let first_bytes = stream::once(std::future::ready(Ok(self.first_bytes)));
        first_bytes.chain(self.rest.map_err(object_store::Error::from)).boxed()
    }

    /// Reads up to the end of the range: the protocol has no ranges.
    pub async fn range(self, range: Range<u64>) -> StoreResult<Bytes> {
        let (mut all, mut seen, mut found) = (self.stream(), 0, BytesMut::new());
        while let Some(chunk) = all.try_next().await? {
            let (from, to) = (range.start.saturating_sub(seen), range.end.saturating_sub(seen));
            let split_into_chunks = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(chunk.len());
            found.extend_from_slice(&chunk[split_into_chunks(from)..split_into_chunks(to)]);
            seen += chunk.len() as u64;
            if seen >= range.end {
                break;
            }
        }
        Ok(found.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object_reader(first_bytes: &'static str, rest: Vec<&'static str>) -> ObjectReader {
        let rest = stream::iter(rest.into_iter().map(|chunk| Ok(Bytes::from(chunk)))).boxed();
        ObjectReader { first_bytes: Bytes::from(first_bytes), rest }
    }

    #[tokio::test]
    async fn a_range_spans_chunks() {
        for (range, expected) in [(0..3, "abc"), (2..7, "cdefg"), (6..99, "gh"), (50..60, "")] {
            let found = object_reader("abcd", vec!["ef", "gh"]).range(range.clone()).await.unwrap();
            assert_eq!(found, expected, "{range:?}");
        }
    }
}
