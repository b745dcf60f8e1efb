//! Tokens: drawn, checked and compared.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::process;

use crate::monitor::record::now;
use crate::{Error, Result};

/// The fewest characters of a token that the caller chose.
const MIN_CHARACTERS: usize = 12;

/// 128 bits that nobody can guess, as 32 hexadecimal digits.
///
/// They are a hash of all that the process has of chance: the file of random bytes where the system has one, and keys
/// that the standard library draws for its hash maps.
pub(super) fn draw() -> String {
    let mut hasher = blake3::Hasher::new();
    let mut bytes = [0; 32];
    if File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).is_ok() {
        hasher.update(&bytes);
    }
    for n in 0..4_u64 {
        hasher.update(&RandomState::new().hash_one(n).to_le_bytes());
    }
    hasher.update(&now().to_le_bytes()).update(&process::id().to_le_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

/// A token that can stand in an address as it is, and is no single word.
#[track_caller]
pub(super) fn check(token: &str) -> Result<()> {
    let is_plain = token.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~".contains(c));
    if token.len() >= MIN_CHARACTERS && is_plain {
        return Ok(());
    }
    Err(Error::argument(format!(
        "web: a token has at least {MIN_CHARACTERS} letters, digits or characters of \"-_.~\", and no others"
    )))
}

/// Whether two tokens are equal, in a time that says nothing of where they differ: equality of hashes of `blake3` takes
/// constant time.
pub(super) fn are_equal(given: &str, expected: &str) -> bool {
    blake3::hash(given.as_bytes()) == blake3::hash(expected.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let (a, b) = (draw(), draw());
        assert!(a.len() == 32 && a.bytes().all(|c| c.is_ascii_hexdigit()) && a != b, "{a} {b}");
        assert!(check(&a).is_ok() && are_equal(&a, &a) && !are_equal(&a, &b) && !are_equal(&a, &a[..31]));
    }

    #[test]
    fn tokens_that_an_address_cannot_hold_are_refused() {
        for bad in ["", "short", "with a blank in it", "ampersand&others", "ümläute-are-many"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
