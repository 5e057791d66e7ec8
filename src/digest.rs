//! Digests: how contents are recognised without being kept. Those of texts are recorded in every host's `.sagents/`, so
//! their form never changes.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

/// Of all bytes.
pub fn of_bytes(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Of a text, short, and the same for both kinds of line ends: a checkout may have changed them.
pub fn of_text(text: &str) -> String {
    // A search for one byte is much faster than one for two, and most texts do not have it.
    let lines = if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) };
    let mut digest = of_bytes(lines.as_bytes());
    digest.truncate(32);
    digest
}
