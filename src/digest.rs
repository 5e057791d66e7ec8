//! Digests: how a content is known again without being kept. Those of texts are in every host's `.sagents/`, so what
//! they look like never changes.

use sha2::{Digest as _, Sha256};

/// What tells one content from another, to the byte.
pub fn of_bytes(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// What tells one text from another, in short. A checkout may have turned its line ends: they do not count.
pub fn of_text(text: &str) -> String {
    let mut digest = of_bytes(text.replace("\r\n", "\n").as_bytes());
    digest.truncate(32);
    digest
}
