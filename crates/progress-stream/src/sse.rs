//! Reading server-sent events.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The stream ends at an event that is larger.
const MAX_EVENT_BYTES: usize = 32 << 20;

/// Whether a response is a stream of events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|content_type| content_type.starts_with("text/event-stream"))
}

/// Events, as name and data, from chunks that end anywhere.
pub fn parse_events<E>(chunks: impl Stream<Item = Result<Bytes, E>>) -> impl Stream<Item = (String, String)> {
    let intact =
        chunks.take_while(|chunk| std::future::ready(chunk.is_ok())).filter_map(|chunk| std::future::ready(chunk.ok()));
    intact
        .scan(Vec::new(), |rest: &mut Vec<u8>, chunk| {
            rest.extend_from_slice(&chunk);
            let mut events = Vec::new();
            while let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") {
                let text: Vec<u8> = rest.drain(..end + 2).collect();
                events.extend(parse_event(&String::from_utf8_lossy(&text)));
            }
            std::future::ready((rest.len() <= MAX_EVENT_BYTES).then(|| futures::stream::iter(events)))
        })
        .flatten()
}

fn parse_event(text: &str) -> Option<(String, String)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
    Some((field("event:")?, field("data:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_are_read_wherever_the_chunks_end() {
        let text = b"event: frame\nid: 1\ndata: {\"a\":1}\n\nevent: beat\ndata: {}\n\nevent: cut\ndata: {";
        for size in [1, 3, 7, 1000] {
            let chunks: Vec<Result<Bytes, ()>> =
                text.chunks(size).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
            let events: Vec<_> = parse_events(futures::stream::iter(chunks)).collect().await;
            assert_eq!(events, [("frame".into(), "{\"a\":1}".into()), ("beat".to_owned(), "{}".to_owned())], "{size}");
        }
    }
}
