//! Rules of the house that no compiler checks: how a file opens, how long it gets, what sans-IO code may not
//! name, what stands at the top level, and that the pages speak of what is there.

use std::{collections::BTreeSet, fs, path::Path};
use switchtower_tests::{SANS_IO, repository, rust_files};

/// The longest file that is not a test. Look for a seam much earlier.
const LINES_MAX: usize = 500;

/// What stands at the top level, beside the tools' dot files and build output.
const TOP_LEVEL: &[&str] = &[
    "ARCHITECTURE.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "clippy.toml",
    "deny.toml",
    "deploy",
    "docker-compose.yml",
    "proto",
    "rustfmt.toml",
    "services",
    "shared",
    "target",
    "tests",
];

/// What names a clock, randomness, the environment or IO.
const IMPURE: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::thread",
    "RandomState",
    "tokio",
    "println!",
    "eprintln!",
];

fn all_rust_files() -> Vec<(String, String)> {
    let top = repository();
    let folders = ["shared", "services", "tests"];
    let files = folders.iter().flat_map(|folder| rust_files(&top.join(folder)).unwrap());
    files
        .map(|path| {
            let name = path.strip_prefix(&top).unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// Whether a file holds tests only.
fn is_test(name: &str) -> bool {
    let path = Path::new(name);
    path.iter().any(|part| part == "tests" || part == "tests.rs")
        || path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("_tests"))
}

/// The lines before the unit tests at the end of a file.
fn without_unit_tests(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| line.trim_end() != "#[cfg(test)]")
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    let files = all_rust_files();
    assert!(files.len() > 10, "the files were not found");
    let silent: Vec<_> = files.iter().filter(|(_, text)| !text.starts_with("//! ")).collect();
    let silent: Vec<_> = silent.iter().map(|(name, _)| name).collect();
    assert!(silent.is_empty(), "these files do not open with `//! `: {silent:?}");
}

#[test]
fn no_file_outgrows_its_room() {
    let files = all_rust_files();
    let code = files.iter().filter(|(name, _)| !is_test(name));
    let long: Vec<_> = code
        .map(|(name, text)| (name, without_unit_tests(text).count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "longer than {LINES_MAX} lines: {long:?}");
}

#[test]
fn sans_io_rooms_name_no_clock_no_randomness_no_environment() {
    for (name, text) in all_rust_files() {
        let pure = SANS_IO.iter().any(|room| name.starts_with(&format!("shared/{room}/src/")));
        if !pure || is_test(&name) {
            continue;
        }
        for line in without_unit_tests(&text).filter(|line| !line.trim_start().starts_with("//")) {
            let impure = IMPURE.iter().find(|word| line.contains(**word));
            assert!(impure.is_none(), "{name} names {impure:?}: {line}");
        }
    }
}

#[test]
fn the_top_level_holds_only_what_belongs_there() {
    let entries = fs::read_dir(repository()).unwrap();
    let names: BTreeSet<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    let allowed: BTreeSet<String> = TOP_LEVEL.iter().map(|name| (*name).to_owned()).collect();
    let strangers: Vec<_> = names.difference(&allowed).filter(|name| !name.starts_with('.')).collect();
    assert!(strangers.is_empty(), "these do not belong at the top level: {strangers:?}");
    assert!(names.contains("LICENSE") && names.contains("README.md"), "{names:?}");
}

/// What stands between backticks in a text.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn the_pages_name_only_files_and_tests_that_exist() {
    let top = repository();
    let mut seen = 0;
    for page in ["README.md", "ARCHITECTURE.md"] {
        let text = fs::read_to_string(top.join(page)).unwrap();
        let ours = |path: &&str| ["shared/", "services/", "tests/"].iter().any(|room| path.starts_with(room));
        for path in quoted(&text).filter(ours) {
            let (file, test) = path.split_once("::").unwrap_or((path, ""));
            let file = top.join(file);
            assert!(file.exists(), "{page} names {path}, which does not exist");
            assert!(
                test.is_empty() || fs::read_to_string(file).unwrap().contains(test),
                "{page} names {path}"
            );
            seen += 1;
        }
    }
    assert!(seen > 10, "the pages name hardly any file");
}
