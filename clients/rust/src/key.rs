//! The key's field, read as `idem_parse_key` does; each client reads it itself to keep its call one that
//! a cluster can delegate.

use std::sync::{Arc, OnceLock};

/// The key of a request. If the server derives it, it is known after the claim, in clones as well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Key(Arc<OnceLock<String>>);

impl From<String> for Key {
    fn from(key: String) -> Self {
        Self(Arc::new(key.into()))
    }
}

impl Key {
    /// Empty while it is not known.
    pub fn as_str(&self) -> &str {
        self.0.get().map_or("", String::as_str)
    }

    pub fn learn(&self, key: String) {
        let _ = self.0.set(key); // the first stays
    }
}

const LONGEST: usize = 255;

/// Reads the value of an `Idempotency-Key` field: a String of RFC 9651, whose parameters are checked and
/// dropped, or a bare value of visible ASCII characters without quotes, backslashes, commas and semicolons.
#[must_use]
pub fn parse_key(field: &[u8]) -> Option<String> {
    let field = trim(field);
    let key = if field.first() == Some(&b'"') {
        let mut input = Cursor(field);
        let text = input.text()?;
        (input.parameters().is_some() && input.0.is_empty()).then_some(text)?
    } else {
        field.iter().all(|&c| is_bare(c)).then(|| String::from_utf8_lossy(field).into_owned())?
    };
    ((1..=LONGEST).contains(&key.len()) && !key.bytes().all(|c| c == b' ')).then_some(key)
}

/// Writes a key as a String of RFC 9651.
#[must_use]
pub fn format_key(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Makes a key: a UUID of version 7, which grows with time. Store it before the first sending, so that a repetition
/// after a crash has the same one.
#[must_use]
pub fn new_key() -> String {
    uuid::Uuid::now_v7().to_string()
}

fn trim(mut field: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = field {
        field = rest;
    }
    field
}

fn is_printable(c: u8) -> bool {
    (b' '..=b'~').contains(&c)
}

fn is_bare(c: u8) -> bool {
    is_printable(c) && !b" \"\\,;".contains(&c)
}

fn is_token(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c)
}

fn is_lower_hex(c: u8) -> bool {
    c.is_ascii_digit() || (b'a'..=b'f').contains(&c)
}

/// The unread rest of a field. Its methods follow RFC 9651, section 4.2; None: the field is malformed.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (&c, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(c)
    }

    fn take(&mut self, c: u8) -> Option<()> {
        self.next_if(|next| next == c).map(drop)
    }

    fn next_if(&mut self, class: impl Fn(u8) -> bool) -> Option<u8> {
        let c = self.peek().filter(|&c| class(c))?;
        self.next();
        Some(c)
    }

    fn skip(&mut self, class: impl Fn(u8) -> bool) -> usize {
        let mut count = 0;
        while self.next_if(&class).is_some() {
            count += 1;
        }
        count
    }

    fn text(&mut self) -> Option<String> {
        self.take(b'"')?;
        let mut text = String::new();
        loop {
            match self.next_if(is_printable)? {
                b'"' => return Some(text),
                b'\\' => text.push(self.next_if(|c| c == b'"' || c == b'\\')?.into()),
                c => text.push(c.into()),
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';').is_some() {
            self.skip(|c| c == b' ');
            self.next_if(|c| c.is_ascii_lowercase() || c == b'*')?;
            self.skip(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_-.*".contains(&c));
            if self.take(b'=').is_some() {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.text().map(drop),
            b':' => self.bytes(),
            b'?' => {
                self.next();
                self.next_if(|c| c == b'0' || c == b'1').map(drop)
            }
            b'@' => {
                self.next();
                self.number(false)
            }
            b'%' => self.display_string(),
            c if c.is_ascii_digit() || c == b'-' => self.number(true),
            c if c.is_ascii_alphabetic() || c == b'*' => {
                self.skip(|c| is_token(c) || c == b':' || c == b'/');
                Some(())
            }
            _ => None,
        }
    }

    /// An Integer has up to 15 digits; a Decimal up to 12, a point, and 1 to 3 more.
    fn number(&mut self, decimal_too: bool) -> Option<()> {
        let _ = self.take(b'-');
        let whole = self.skip(|c| c.is_ascii_digit());
        let fits = if decimal_too && self.take(b'.').is_some() {
            (1..=3).contains(&self.skip(|c| c.is_ascii_digit())) && (1..=12).contains(&whole)
        } else {
            (1..=15).contains(&whole)
        };
        fits.then_some(())
    }

    /// Missing padding is allowed, as the RFC advises.
    fn bytes(&mut self) -> Option<()> {
        self.take(b':')?;
        self.skip(|c| c.is_ascii_alphanumeric() || c == b'+' || c == b'/');
        self.skip(|c| c == b'=');
        self.take(b':')
    }

    fn display_string(&mut self) -> Option<()> {
        self.take(b'%')?;
        self.take(b'"')?;
        loop {
            match self.next_if(is_printable)? {
                b'"' => return Some(()),
                b'%' => {
                    self.next_if(is_lower_hex)?;
                    self.next_if(is_lower_hex)?;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_grow() {
        let one = new_key();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(one < new_key() && one.len() == 36 && one.as_bytes()[14] == b'7');
    }

    #[test]
    fn strings_and_bare_values() {
        for (field, key) in [
            ("\"a\"", "a"),
            ("a", "a"),
            (" \t\"a b\" ", "a b"),
            ("\"a,b;c=1\";v=1", "a,b;c=1"),
            ("\"a\\\"b\\\\\"", "a\"b\\"),
            ("a%2D1", "a%2D1"),
            ("\"x\"; a; b=\"x;y\\\"\";c=1.5;d=tok*;e=:aGk=:;f=?1;g=@17;h=%\"f%c3%bc\";i=-1", "x"),
        ] {
            assert_eq!(parse_key(field.as_bytes()).as_deref(), Some(key), "{field}");
        }
        for size in [255, 256] {
            assert_eq!(parse_key("x".repeat(size).as_bytes()).is_some(), size == 255);
            assert_eq!(parse_key(format!("\"{}\"", "x".repeat(size)).as_bytes()).is_some(), size == 255);
        }
    }

    #[test]
    fn neither() {
        for field in [
            "",
            " ",
            "\"\"",
            "\"  \"",
            "\"a",
            "a\"",
            "a,b",
            "a b",
            "a;v=1",
            "a\\",
            "\"a\" x",
            "\"a\", \"b\"",
            "\"a\";",
            "\"a\";A=1",
            "\"a\" ;a",
            "\"a\";a=",
            "\"a\";a= 1",
            "\"a\";a=1.",
            "\"a\";a=1.2345",
            "\"a\";a=1234567890123456",
            "\"a\\n\"",
            "\"ä\"",
            "ä",
            "\"a\u{7f}\"",
            "\"a\";a=?2",
            "\"a\";a=@1.5",
            "\"a\";a=%\"%C3\"",
            "\"a\";a=:a",
            "\"a\";1=a",
            "\"a\\",
            "\"a\tb\"",
        ] {
            assert_eq!(parse_key(field.as_bytes()), None, "{field}");
        }
        assert_eq!(parse_key(b"\xff"), None);
    }

    #[test]
    fn written_is_read() {
        for key in ["a", "a\"b\\c", " x ", "a,b"] {
            assert_eq!(parse_key(format_key(key).as_bytes()).as_deref(), Some(key));
        }
    }
}
