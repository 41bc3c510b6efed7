//! The rooms and the edges between them: what `Cargo.toml` files say must be what this table says.
//!
//! Dependencies point one way (ARCHITECTURE.md, "Code map"). A new crate or a new edge is a line here, and the place
//! to ask whether the edge is wanted. Tests may lean on more than the code does: dev-dependencies are held to
//! the direction only.

use anyhow::Context;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};
use switchtower_tests::{SANS_IO, repository};

type Names<'a> = BTreeSet<&'a str>;

/// (room, folder, what it uses), ordered so that a room uses only rooms above it.
const ROOMS: &[(&str, &str, &[&str])] = &[
    ("ids", "shared", &[]),
    ("policy", "shared", &[]),
    ("runtime", "shared", &[]),
    ("kv", "shared", &["ids"]),
    ("policies", "shared", &["policy"]),
    ("scheduling", "shared", &["ids", "policy", "kv"]),
    ("engine-sim", "shared", &["ids", "kv"]),
    ("simulation", "shared", &["ids", "policy", "policies", "kv", "scheduling", "engine-sim"]),
    ("proto", "proto", &[]),
    ("cluster", "shared", &["runtime"]),
    ("etcd", "shared", &["runtime", "cluster"]),
    ("nats", "shared", &["runtime", "cluster"]),
    ("models", "shared", &["policy"]),
    (
        "selection",
        "shared",
        &["ids", "policy", "policies", "kv", "scheduling", "runtime", "proto", "cluster"],
    ),
    (
        "frontend",
        "services",
        &["ids", "policy", "policies", "scheduling", "runtime", "cluster", "models", "selection"],
    ),
    ("worker", "services", &["ids", "kv", "engine-sim", "runtime", "cluster", "models", "selection"]),
    (
        "switchtower",
        "services",
        &[
            "ids",
            "policy",
            "policies",
            "simulation",
            "runtime",
            "cluster",
            "etcd",
            "nats",
            "models",
            "selection",
            "frontend",
            "worker",
        ],
    ),
    ("custom-policy-example", "services", &["policy", "policies", "switchtower"]),
    ("tests", "tests", &[]),
];

/// All that sans-IO rooms may use from outside.
const SANS_IO_LIBRARIES: &[&str] = &["hashbrown", "serde", "serde_json", "thiserror", "xxhash-rust"];

/// Libraries that one room hides from all the others, tests included.
const HIDDEN_LIBRARIES: &[(&str, &str)] = &[
    ("async-nats", "nats"),
    ("backoff", "runtime"),
    ("clap", "switchtower"),
    ("etcd-client", "etcd"),
    ("minijinja", "models"),
    ("rustix", "runtime"),
    ("minijinja-contrib", "models"),
    ("socket2", "runtime"),
    ("tokenizers", "models"),
    ("tracing-subscriber", "runtime"),
    ("xxhash-rust", "kv"),
];

/// One crate of the workspace as cargo sees it. `ours` are rooms, `others` come from the registry.
#[derive(Default)]
struct Manifest {
    folder: String,
    ours: BTreeSet<String>,
    ours_in_tests: BTreeSet<String>,
    others: BTreeSet<String>,
    others_in_tests: BTreeSet<String>,
}

/// The room's name of one of our crates.
fn room(package: &str) -> Option<&str> {
    match package.strip_prefix("switchtower") {
        Some("") => Some(package),
        Some(rest) => rest.strip_prefix('-'),
        None => None,
    }
}

fn manifests() -> anyhow::Result<BTreeMap<String, Manifest>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(repository())
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "cargo metadata failed: {errors}");
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    packages.iter().map(manifest).collect()
}

fn manifest(package: &Value) -> anyhow::Result<(String, Manifest)> {
    let name = package["name"].as_str().context("a package without a name")?;
    let name = room(name).with_context(|| format!("`{name}` is not called switchtower-…"))?;
    let path = package["manifest_path"].as_str().context("a package without a path")?;
    let folder = std::path::Path::new(path).strip_prefix(repository())?;
    let top = folder.iter().next().context("a manifest outside every folder")?;
    let mut manifest = Manifest { folder: top.to_string_lossy().into_owned(), ..Manifest::default() };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let used = dependency["name"].as_str().context("a dependency without a name")?;
        let in_tests = dependency["kind"] == "dev";
        let (set, used) = match (room(used), in_tests) {
            (Some(used), false) => (&mut manifest.ours, used),
            (Some(used), true) => (&mut manifest.ours_in_tests, used),
            (None, false) => (&mut manifest.others, used),
            (None, true) => (&mut manifest.others_in_tests, used),
        };
        set.insert(used.to_owned());
    }
    Ok((name.to_owned(), manifest))
}

fn names(set: &BTreeSet<String>) -> Names<'_> {
    set.iter().map(String::as_str).collect()
}

#[test]
fn the_table_lists_every_crate_and_points_one_way() -> anyhow::Result<()> {
    let manifests = manifests()?;
    let listed: Names<'_> = ROOMS.iter().map(|(room, ..)| *room).collect();
    let found: Names<'_> = manifests.keys().map(String::as_str).collect();
    assert_eq!(listed, found, "left: this table, right: the workspace");
    let mut above = Names::new();
    for (room, folder, uses) in ROOMS {
        assert_eq!(manifests[*room].folder, *folder, "{room} is not where rooms of its kind are");
        let uses: Names<'_> = uses.iter().copied().collect();
        assert!(uses.is_subset(&above), "{room} uses {:?}, not above it", &uses - &above);
        above.insert(room);
    }
    Ok(())
}

#[test]
fn every_edge_is_in_the_table_and_every_edge_of_the_table_exists() -> anyhow::Result<()> {
    let manifests = manifests()?;
    for (room, _, uses) in ROOMS {
        let uses: Names<'_> = uses.iter().copied().collect();
        assert_eq!(uses, names(&manifests[*room].ours), "{room}: left: this table, right: its Cargo.toml");
    }
    Ok(())
}

#[test]
fn services_use_each_other_only_where_they_are_put_together() -> anyhow::Result<()> {
    let services: Names<'_> = ROOMS.iter().filter(|row| row.1 == "services").map(|row| row.0).collect();
    for (room, manifest) in manifests()? {
        let uses: BTreeSet<String> = &manifest.ours | &manifest.ours_in_tests;
        let used = &names(&uses) & &services;
        let allowed = match room.as_str() {
            "switchtower" | "tests" => services.clone(),
            "custom-policy-example" => Names::from(["switchtower"]),
            _ => Names::new(),
        };
        assert!(used.is_subset(&allowed), "{room} uses the services {:?}", &used - &allowed);
    }
    Ok(())
}

#[test]
fn rooms_without_io_use_only_pure_libraries() -> anyhow::Result<()> {
    let manifests = manifests()?;
    let (pure, allowed) =
        (Names::from_iter(SANS_IO.iter().copied()), Names::from_iter(SANS_IO_LIBRARIES.iter().copied()));
    for room in SANS_IO {
        let manifest = &manifests[*room];
        let (others, ours) = (names(&manifest.others), names(&manifest.ours));
        assert!(others.is_subset(&allowed), "{room} uses {:?}", &others - &allowed);
        assert!(ours.is_subset(&pure), "{room} uses {:?}, which do IO", &ours - &pure);
    }
    Ok(())
}

#[test]
fn some_libraries_have_one_user() -> anyhow::Result<()> {
    let manifests = manifests()?;
    for (library, user) in HIDDEN_LIBRARIES {
        let users = manifests.iter().filter(|(_, manifest)| {
            manifest.others.contains(*library) || manifest.others_in_tests.contains(*library)
        });
        let users: Vec<&String> = users.map(|(room, _)| room).collect();
        assert_eq!(users, [user], "users of {library}");
    }
    Ok(())
}
