//! An answer, and what is stored of it.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value};

use crate::contract::NOT_STORED;

/// Tells that the body of an answer was not kept.
pub(crate) const BODY_HEADER: HeaderName = HeaderName::from_static("idempotent-body");

/// An answer: status, headers and body.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// 200 to 599.
    pub status: StatusCode,
    /// Those of one hop and of one client are not stored.
    pub headers: HeaderMap,
    /// An empty body is a body.
    pub body: Bytes,
}

impl Answer {
    /// A document of JSON.
    pub fn json(status: StatusCode, value: &impl serde::Serialize) -> serde_json::Result<Self> {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Ok(Self { status, headers, body: serde_json::to_vec(value)?.into() })
    }
}

/// The arguments of `idem_complete`.
#[derive(Debug)]
pub(crate) struct Stored {
    /// None: the record is completed without an answer.
    pub status: Option<StatusCode>,
    pub headers: Value,
    /// None: only the status is stored.
    pub body: Option<Bytes>,
}

impl Stored {
    pub fn of(answer: &Answer) -> Self {
        Self { status: Some(answer.status), headers: to_json(&answer.headers), body: Some(answer.body.clone()) }
    }

    pub fn status_alone(status: StatusCode) -> Self {
        let headers = Map::from_iter([(BODY_HEADER.to_string(), "omitted".into())]);
        Self { status: Some(status), headers: Value::Object(headers), body: None }
    }

    pub fn nothing() -> Self {
        Self { status: None, headers: Value::Object(Map::new()), body: None }
    }
}

fn never_stored(name: &HeaderName) -> bool {
    NOT_STORED.contains(&name.as_str())
}

/// Connection lists it as a field of this hop.
fn of_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    let lists = headers.get_all(header::CONNECTION).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|item| item.trim().eq_ignore_ascii_case(name.as_str()))
}

/// An object of strings and, where a name occurs more than once, arrays of strings.
fn to_json(headers: &HeaderMap) -> Value {
    let kept = headers.keys().filter(|name| !never_stored(name) && !of_connection(headers, name));
    kept.map(|name| {
        let mut values: Vec<Value> = headers.get_all(name).iter().map(|value| text(value).into()).collect();
        let one = if values.len() == 1 { values.pop() } else { None };
        (name.to_string(), one.unwrap_or(Value::Array(values)))
    })
    .collect::<Map<_, _>>()
    .into()
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Bytes that are not UTF-8 cannot be stored, so they are not sent the first time either.
pub(crate) fn make_text(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        if std::str::from_utf8(value.as_bytes()).is_err() {
            *value = HeaderValue::from_bytes(text(value).as_bytes()).unwrap_or(HeaderValue::from_static(""));
        }
    }
}

/// The reverse. It leaves out fields that HTTP cannot carry, which no client of ours has stored.
pub(crate) fn from_json(stored: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in stored.as_object().into_iter().flatten() {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for text in values.iter().filter_map(Value::as_str) {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(text.as_bytes())) {
                headers.append(name, value);
            }
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields =
            fields.iter().map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn several_fields_of_one_name_keep_their_order() {
        let fields = headers(&[("x-a", "2"), ("x-b", "1"), ("x-a", "1, 3"), ("__proto__", ""), ("constructor", "c")]);
        let stored = to_json(&fields);
        assert_eq!(stored, json!({"x-a": ["2", "1, 3"], "x-b": "1", "__proto__": "", "constructor": "c"}));
        assert_eq!(from_json(&stored), fields);
    }

    #[test]
    fn fields_of_one_hop_and_of_one_client_are_not_stored() {
        let fields = headers(&[
            ("set-cookie", "a=b"),
            ("date", "today"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("content-length", "3"),
            ("transfer-encoding", "chunked"),
            ("keep-alive", "1"),
            ("x-kept", "1"),
        ]);
        assert_eq!(to_json(&fields), json!({"x-kept": "1"}));
    }

    #[test]
    fn bytes_become_text() {
        let mut fields = HeaderMap::new();
        fields.insert("x-a", HeaderValue::from_bytes(b"\xff\xc3\xa4").unwrap());
        make_text(&mut fields);
        assert_eq!(fields["x-a"].as_bytes(), "\u{fffd}ä".as_bytes());
    }
}
