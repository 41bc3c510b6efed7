//! What the tests across rooms share: where the repository is, which Rust files it holds, which rooms
//! do no IO, and real servers to test on.
//!
//! Only tests use it; it checks nothing itself.

pub mod servers;

use std::path::{Path, PathBuf};

/// Rooms that get time, randomness, files and settings as parameters.
pub const SANS_IO: &[&str] = &["ids", "policy", "policies", "kv", "scheduling", "engine-sim", "simulation"];

/// The repository's top folder.
#[must_use]
pub fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_path_buf()
}

/// Every `.rs` file below `folder` in a fixed order, without build output and hidden folders.
///
/// # Errors
/// A folder that cannot be read.
pub fn rust_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type()?.is_dir() {
                if name != "target" && !name.to_string_lossy().starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The README's Rust code, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
