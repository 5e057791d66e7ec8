//! What git knows of a host's files. Where there is no git, it knows nothing.

use std::io::Write as _;
use std::process::{Command, Stdio};

use camino::{Utf8Path, Utf8PathBuf};

use super::{Host, modules};

/// A file that git ignores, and the pattern because of which it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    pub path: Utf8PathBuf,
    /// The file and the line of the pattern.
    pub by: String,
}

impl Host {
    /// Those of some files that have changes which git does not know yet.
    pub fn uncommitted(&self, paths: &[&Utf8Path]) -> Vec<Utf8PathBuf> {
        let mut git = Command::new("git");
        git.args(["status", "--porcelain", "--untracked-files=no", "--no-renames", "-z", "--"]).args(paths);
        let Ok(output) = git.current_dir(self.tree.root()).output() else { return Vec::new() };
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        // Git names them from its own root.
        let is_listed = |path: &Utf8Path| listed.split('\0').any(|line| line.ends_with(path.as_str()));
        paths.iter().filter(|path| output.status.success() && is_listed(path)).map(|path| path.to_path_buf()).collect()
    }

    /// Those of some files that git ignores. What is committed already is not ignored.
    pub fn ignored(&self, paths: &[&Utf8Path]) -> Vec<Ignored> {
        let root = self.tree.root();
        if !root.ancestors().any(|directory| directory.join(".git").exists()) {
            return Vec::new();
        }
        let input: Vec<_> = paths.iter().map(|path| root.join(path).into_string()).collect();
        let output = self.check_ignore(&input.join("\0")).unwrap_or_default();
        let fields: Vec<_> = output.split('\0').collect();
        let matches = fields.chunks_exact(4).filter_map(|fields| {
            let [source, line, pattern, path] = fields else { return None };
            let path = Utf8Path::new(path).strip_prefix(root).ok()?.to_owned();
            // `!` is for what is not ignored after all.
            (!pattern.starts_with('!')).then(|| Ignored { path, by: format!("{source}:{line}") })
        });
        matches.collect()
    }

    /// Whether a path leads to where other clones have nothing. Without git, that is outside of the workspace.
    pub fn is_outside_repository(&self, path: &Utf8Path) -> bool {
        let root = self.tree.root();
        let repository = root.ancestors().find(|directory| directory.join(".git").exists());
        !modules::clean(&root.join(path)).starts_with(repository.unwrap_or(&self.boundary))
    }

    /// For each ignored path the file, the line and the text of its pattern, and the path itself.
    fn check_ignore(&self, input: &str) -> Option<String> {
        let mut git = Command::new("git");
        git.args(["check-ignore", "--verbose", "--stdin", "-z"]).current_dir(self.working_directory());
        let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        // Git may be gone already, and what it printed is small.
        let _ = child.stdin.take()?.write_all(input.as_bytes());
        let output = child.wait_with_output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
