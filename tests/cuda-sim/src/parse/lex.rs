//! Text of a module to words and signs, each with its place.

use crate::fault::ParseError;

/// A word (a name, a number, an opcode with its dotted parts, a quoted text) or one sign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Token<'t> {
    pub(crate) text: &'t str,
    /// Where it begins, in bytes from the beginning of the module.
    pub(crate) at: usize,
    pub(crate) line: u32,
}

impl Token<'_> {
    pub(crate) fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// All tokens; comments, `.loc` and `.file` (which end with their line) are left out.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let bytes = text.as_bytes();
    let (mut found, mut at, mut line) = (vec![], 0, 1);
    while at < bytes.len() {
        let rest = &text[at..];
        let len = match bytes[at] {
            b'\n' => {
                line += 1;
                at += 1;
                continue;
            }
            byte if byte.is_ascii_whitespace() || byte == 0 => 1,
            b'/' if rest.starts_with("//") => line_length(rest),
            b'/' if rest.starts_with("/*") => {
                let Some(end) = rest.find("*/") else { return Err(ParseError::new(line, "comment without end")) };
                line += rest[..end].matches('\n').count() as u32;
                end + 2
            }
            b'"' => match rest[1..].find('"') {
                Some(end) => end + 2,
                None => return Err(ParseError::new(line, "text without closing quote")),
            },
            byte if is_word(byte) => {
                let len = word_length(rest.as_bytes());
                if matches!(&rest[..len], ".loc" | ".file") {
                    at += line_length(rest);
                    continue;
                }
                len
            }
            byte if byte.is_ascii_punctuation() => 1,
            _ => return Err(ParseError::new(line, "a character that is not ASCII")),
        };
        let skipped = bytes[at].is_ascii_whitespace() || bytes[at] == 0 || rest.starts_with("//");
        if !skipped && !rest.starts_with("/*") {
            found.push(Token { text: &rest[..len], at, line });
        }
        at += len;
    }
    Ok(found)
}

fn line_length(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// Length of the word at the beginning: `::` binds parts of a modifier, and an exponent may have a sign.
fn word_length(rest: &[u8]) -> usize {
    let is_decimal = rest[0].is_ascii_digit() && !matches!(rest.get(1), Some(b'x' | b'X' | b'f' | b'F' | b'd' | b'D'));
    let mut len = 1;
    while len < rest.len() {
        let is_exponent = is_decimal && matches!(rest[len], b'+' | b'-') && matches!(rest[len - 1], b'e' | b'E');
        // A register may follow its opcode at once.
        if is_word(rest[len]) && rest[len] != b'%' || is_exponent {
            len += 1;
        } else if rest[len..].starts_with(b"::") {
            len += 2;
        } else {
            break;
        }
    }
    len
}
