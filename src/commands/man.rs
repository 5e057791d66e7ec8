//! `sagents man`: the manual, for `man`.

use anyhow::Context as _;
use camino::Utf8Path;

use super::Ending;
use crate::failure::Result;
use crate::io::Io;
use crate::{disk, manual};

pub fn run(directory: Option<&Utf8Path>, io: &Io) -> Result<Ending> {
    let pages = manual::man_pages();
    let Some(named) = directory else {
        return Ok(Ending::success(pages.into_iter().next().map(|page| page.text).unwrap_or_default()));
    };
    let directory = io.place(named).path;
    disk::make_directory(&directory)?;
    let mut written = String::new();
    for page in pages {
        let name = named.join(&page.file);
        disk::write(&directory.join(&page.file), page.text.as_bytes(), None)
            .with_context(|| format!("cannot write {name}"))?;
        written.extend([name.as_str(), "\n"]);
    }
    Ok(Ending::success(written))
}
