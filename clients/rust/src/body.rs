//! Bodies, read up to a limit, and sent again.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

/// The body of a response: bytes, and what may follow them.
#[derive(Debug)]
pub struct ResponseBody<R> {
    head: Option<Bytes>,
    rest: Option<Pin<Box<R>>>,
}

impl<R> ResponseBody<R> {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self { head: Some(bytes).filter(|bytes| !bytes.is_empty()), rest: None }
    }

    pub(crate) fn untouched(body: R) -> Self {
        Self { head: None, rest: Some(Box::pin(body)) }
    }

    pub(crate) fn continued(head: Bytes, rest: Pin<Box<R>>) -> Self {
        Self { head: Some(head), rest: Some(rest) }
    }
}

impl<R: Body<Data = Bytes>> Body for ResponseBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        self.rest.as_mut().map_or(Poll::Ready(None), |rest| rest.as_mut().poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let head = self.head.as_ref().map_or(0, Bytes::len) as u64;
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        if let Some(upper) = rest.upper() {
            hint.set_upper(head.saturating_add(upper));
        }
        hint.set_lower(head.saturating_add(rest.lower()));
        hint
    }
}

/// The part of a body that was read.
pub(crate) enum Read<B> {
    Whole(Bytes),
    /// More than the limit: the part that was read, and the rest.
    TooLarge(Bytes, Pin<Box<B>>),
}

/// Never reads more than one frame beyond the limit.
pub(crate) async fn read<B: Body>(body: B, limit: usize) -> Result<Read<B>, B::Error> {
    let mut body = Box::pin(body);
    let mut bytes = BytesMut::new();
    if body.size_hint().lower() > limit as u64 {
        return Ok(Read::TooLarge(bytes.freeze(), body));
    }
    while let Some(frame) = body.frame().await {
        if let Ok(mut data) = frame?.into_data() {
            bytes.reserve(data.remaining());
            while data.has_remaining() {
                let chunk = data.chunk();
                let size = chunk.len();
                bytes.extend_from_slice(chunk);
                data.advance(size);
            }
        }
        if bytes.len() > limit {
            return Ok(Read::TooLarge(bytes.freeze(), body));
        }
    }
    Ok(Read::Whole(bytes.freeze()))
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};

    use super::*;

    fn chunks(sizes: &'static [usize]) -> impl Body<Data = Bytes, Error = std::convert::Infallible> {
        let frames = sizes.iter().map(|&size| Ok(Frame::data(Bytes::from(vec![b'x'; size]))));
        StreamBody::new(futures_util::stream::iter(frames))
    }

    #[tokio::test]
    async fn read_up_to_the_limit() {
        assert!(matches!(read(chunks(&[4, 6]), 10).await, Ok(Read::Whole(bytes)) if bytes.len() == 10));
        assert!(matches!(read(chunks(&[4, 7, 1]), 10).await, Ok(Read::TooLarge(bytes, _)) if bytes.len() == 11));
        let said = Full::new(Bytes::from_static(b"12345678901"));
        assert!(matches!(read(said, 10).await, Ok(Read::TooLarge(bytes, _)) if bytes.is_empty()));
    }

    #[tokio::test]
    async fn the_rest_follows() {
        let Ok(Read::TooLarge(head, rest)) = read(chunks(&[4, 7, 1]), 10).await else { panic!("it is too large") };
        let body = ResponseBody::continued(head, rest);
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 12);
        let body = ResponseBody::<Full<Bytes>>::whole(Bytes::from_static(b"abc"));
        assert_eq!(body.size_hint().exact(), Some(3));
        assert!(ResponseBody::<Full<Bytes>>::whole(Bytes::new()).is_end_stream());
    }
}
