//! The identity of a request.

use bytes::Bytes;
use http::{header, request::Parts};
use sha2::{Digest, Sha256};

use crate::{
    Error,
    form::{Part, parts_of},
};

/// The arguments from which `idem_begin` takes the fingerprint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The body, if it is JSON.
    pub json: Option<Bytes>,
    /// The digest of another body, or of the option `fingerprint`.
    pub digest: Option<Vec<u8>>,
    pub method: Option<String>,
    pub target: Option<String>,
    pub media_type: String,
    pub exclude: Option<Vec<String>>,
}

impl Identity {
    pub fn of(parts: &Parts, target: &str, body: &Bytes, exclude: &[String]) -> Self {
        let media_type = media_type(parts);
        let says_json = media_type == "application/json" || media_type.ends_with("+json");
        let is_json = says_json && !body.is_empty();
        let method = parts.method.as_str();
        Self {
            digest: (!is_json).then(|| digest(method, target, &media_type, &parts_of(parts, &media_type, body))),
            json: is_json.then(|| body.clone()),
            method: Some(method.to_owned()),
            target: Some(target.to_owned()),
            media_type,
            exclude: (!exclude.is_empty()).then(|| exclude.to_vec()),
        }
    }

    /// For JSON that jsonb cannot hold, \u0000 or a number beyond numeric: the body then counts byte by byte,
    /// like one that is not JSON.
    pub fn as_digest(&self, refusal: &Error) -> Option<Self> {
        let body = self.json.as_ref().filter(|_| refusal.state_in(&["22P05", "22003"]))?;
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let of_body = || digest(&text(&self.method), &text(&self.target), &self.media_type, &[Part::whole(body)]);
        Some(Self { json: None, digest: Some(self.digest.clone().unwrap_or_else(of_body)), ..self.clone() })
    }
}

/// Type and subtype, in lower case and without parameters.
fn media_type(parts: &Parts) -> String {
    let field = parts.headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let field = field.as_deref().unwrap_or_default();
    field.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The digest of docs/fingerprint.md, over more parts. A part that is missing is not an empty one.
fn digest(method: &str, target: &str, media_type: &str, body: &[Part<'_>]) -> Vec<u8> {
    let mut hash = Sha256::new_with_prefix("idempotency fingerprint 1\n");
    let mut write = |part: Option<&[u8]>| match part {
        Some(part) => {
            hash.update(format!("{}:", part.len()));
            hash.update(part);
            hash.update("\n");
        }
        None => hash.update("-\n"),
    };
    write(Some(method.as_bytes()));
    write(Some(target.as_bytes()));
    write(Some(media_type.as_bytes()).filter(|text| !text.is_empty()));
    for part in body {
        for text in part.about.iter().flatten() {
            write(text.as_deref().map(str::as_bytes));
        }
        write(Some(part.content));
    }
    hash.finalize().to_vec()
}

pub(crate) fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content_type: &str, target: &str, body: &'static [u8]) -> Identity {
        let request = http::Request::post("/").header("content-type", content_type).body(()).unwrap();
        Identity::of(&request.into_parts().0, target, &Bytes::from_static(body), &[])
    }

    #[test]
    fn json_by_its_media_type() {
        for json in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"] {
            let identity = of(json, "/", b"{}");
            assert_eq!((identity.json.as_deref(), identity.digest), (Some(&b"{}"[..]), None), "{json}");
        }
        assert_eq!(of("text/json", "/", b"{}").json, None);
    }

    #[test]
    fn other_bodies_by_their_digest() {
        let one = of("text/plain", "/a", b"x").digest.unwrap();
        // sha256sum of the heading and "4:POST\n2:/a\n10:text/plain\n1:x\n".
        let text = b"idempotency fingerprint 1\n4:POST\n2:/a\n10:text/plain\n1:x\n";
        assert_eq!(one, sha256(text));
        assert_eq!(one, of("Text/Plain; charset=utf-8", "/a", b"x").digest.unwrap());
        for other in [of("text/plain", "/b", b"x"), of("text/html", "/a", b"x"), of("text/plain", "/a", b"y")] {
            assert_ne!(one, other.digest.unwrap());
        }
    }
}
