//! Forms. Each sending of a form has another boundary, so its parts identify it, and not its bytes.

use http::{header, request::Parts};

/// A part of a form, or a whole body.
pub(crate) struct Part<'a> {
    /// Of a form: name, file name and media type.
    pub about: Option<[Option<String>; 3]>,
    pub content: &'a [u8],
}

impl<'a> Part<'a> {
    pub fn whole(content: &'a [u8]) -> Self {
        Self { about: None, content }
    }

    /// From the end of its boundary's line on.
    fn of_form(bytes: &'a [u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(b"\r\n")?;
        let (head, content) = split(bytes, b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(head);
        let disposition = field(&head, "content-disposition")?;
        let kind = field(&head, "content-type").and_then(|value| value.split(';').next());
        let kind = kind.map(|kind| kind.trim().to_ascii_lowercase()).filter(|kind| !kind.is_empty());
        Some(Self { about: Some([parameter(disposition, "name"), parameter(disposition, "filename"), kind]), content })
    }
}

/// The whole, if it is no form.
pub(crate) fn parts_of<'a>(request: &Parts, media_type: &str, body: &'a [u8]) -> Vec<Part<'a>> {
    let boundary = || {
        let field = request.headers.get(header::CONTENT_TYPE)?;
        parameter(&String::from_utf8_lossy(field.as_bytes()), "boundary").filter(|boundary| !boundary.is_empty())
    };
    let form = if media_type == "multipart/form-data" { boundary() } else { None };
    form.and_then(|boundary| form_parts(&boundary, body)).unwrap_or_else(|| vec![Part::whole(body)])
}

/// None if the body is not what its type says.
fn form_parts<'a>(boundary: &str, body: &'a [u8]) -> Option<Vec<Part<'a>>> {
    let mark = format!("\r\n--{boundary}");
    let mut rest = body.strip_prefix(&mark.as_bytes()[2..])?;
    let mut parts = Vec::new();
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            return (end.len() <= 2 && !parts.is_empty()).then_some(parts);
        }
        let (part, next) = split(rest, mark.as_bytes())?;
        parts.push(Part::of_form(part)?);
        rest = next;
    }
}

fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((&bytes[..at], &bytes[at + mark.len()..]))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The parameter of a field's value, without its quotes.
fn parameter(value: &str, name: &str) -> Option<String> {
    let mut rest = value.split_once(';')?.1;
    loop {
        let (found, after) = rest.split_once('=')?;
        let after = after.trim_start_matches([' ', '\t']);
        let (text, next) = if let Some(quoted) = after.strip_prefix('"') {
            unquoted(quoted)?
        } else {
            let (text, next) = after.split_at(after.find([';', ' ', '\t', '"']).unwrap_or(after.len()));
            (text.to_owned(), next)
        };
        if found.rsplit(';').next()?.trim().eq_ignore_ascii_case(name) {
            return Some(text);
        }
        rest = next.split_once(';')?.1;
    }
}

/// The text up to the closing quote, and the rest.
fn unquoted(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((text, &quoted[at + 1..])),
            '\\' => match chars.next()?.1 {
                c @ ('"' | '\\') => text.push(c),
                c => text.extend(['\\', c]),
            },
            c => text.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let value = r#"form-data; x="; name=no"; Name = "a\"b\c" ; filename=plain"#;
        assert_eq!(parameter(value, "name").as_deref(), Some(r#"a"b\c"#));
        assert_eq!(parameter(value, "filename").as_deref(), Some("plain"));
        assert_eq!(parameter(value, "boundary"), None);
    }

    #[test]
    fn forms() {
        let body = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n";
        let parts = form_parts("x", body).unwrap();
        assert_eq!((parts.len(), parts[0].content), (1, &b"1"[..]));
        for other in [&b""[..], b"--x--", b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x", b"--y--"] {
            assert!(form_parts("x", other).is_none(), "{other:?}");
        }
    }
}
