//! A policy written from the public description of the contract compiles here with only the crate's name changed.
//!
//! The description itself is not part of this project: where it is found (`SWITCHTOWER_POLICY_DOCUMENT`, or beside
//! the repository) its first Rust example is compiled as a crate of its own. The other test holds the shape of
//! the calls with a policy of ours, so that it is pinned everywhere.

use anyhow::Context;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use switchtower_policy::{
    KvRouterConfig, RoutingPartitionRef, WorkerCandidate, WorkerInputView, WorkerInputs, WorkerPicker,
    WorkerScorer, WorkerSelectionContext, WorkerSelectionPolicy, WorkerSelectionPolicyError, host,
};
use switchtower_tests::repository;

/// Where the description is, if anywhere.
fn document() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("SWITCHTOWER_POLICY_DOCUMENT") {
        return Some(named.into());
    }
    let beside = repository().parent()?.join("shared/reference/custom-worker-selection.txt");
    beside.is_file().then_some(beside)
}

/// The first Rust code block of a Markdown text.
fn first_rust_block(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("```rust\n")?;
    rest.split_once("```").map(|(block, _)| block)
}

/// The example with the crate that its first line uses replaced by ours.
fn with_our_crate(block: &str) -> Option<String> {
    let name: String = block
        .trim_start()
        .strip_prefix("use ")?
        .chars()
        .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
        .collect();
    (!name.is_empty()).then(|| block.replace(&name, "switchtower_policy"))
}

/// A crate of its own around `code`, with the repository's lock file so that nothing is fetched.
fn write_crate(folder: &Path, code: &str) -> anyhow::Result<()> {
    let policy = repository().join("shared/policy");
    let manifest = format!(
        "[package]\nname = \"document-example\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\nswitchtower-policy = {{ path = {policy:?} }}\n"
    );
    fs::create_dir(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::copy(repository().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    // Nobody calls the example's factory here, so its items count as dead.
    let opening =
        "//! The example of the policy contract's description.\n#![allow(missing_docs, dead_code)]\n";
    fs::write(folder.join("src/lib.rs"), format!("{opening}{code}"))?;
    Ok(())
}

fn check(folder: &Path) -> anyhow::Result<()> {
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", repository().join("target/policy-document"))
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "the example does not compile:\n{errors}");
    Ok(())
}

#[test]
fn the_documents_example_compiles_with_only_the_crate_name_changed() -> anyhow::Result<()> {
    let Some(path) = document() else {
        println!("skipped: the contract's description is not here; name it in SWITCHTOWER_POLICY_DOCUMENT");
        return Ok(());
    };
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let block = first_rust_block(&text).context("the description has no Rust block")?;
    let code = with_our_crate(block).context("the block does not open with `use crate_name`")?;
    let folder = tempfile::tempdir()?;
    write_crate(folder.path(), &code)?;
    check(folder.path())
}

#[test]
fn an_example_that_is_wrong_does_not_compile() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let code = with_our_crate("use other_crate::{NoSuchName, WorkerScorer};\n").context("no `use`")?;
    assert!(code.contains("switchtower_policy"), "{code}");
    write_crate(folder.path(), &code)?;
    let refusal = check(folder.path()).unwrap_err().to_string();
    assert!(refusal.contains("NoSuchName"), "{refusal}");
    Ok(())
}

/// Prefers the row that would have to prefill least.
struct PrefillLeft;

impl WorkerScorer for PrefillLeft {
    fn required_worker_inputs(&self) -> WorkerInputs {
        WorkerInputs::LOAD | WorkerInputs::CACHE
    }

    fn score(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        candidate: &WorkerCandidate,
    ) -> Result<f64, WorkerSelectionPolicyError> {
        let load = candidate.load().ok_or_else(|| WorkerSelectionPolicyError::failed("no load inputs"))?;
        let cache = candidate.cache().ok_or_else(|| WorkerSelectionPolicyError::failed("no cache inputs"))?;
        Ok(load.raw_prefill_blocks() - cache.effective() + load.active_requests() as f64)
    }
}

/// Takes the last of the cheapest rows.
struct LastOfTheCheapest;

impl WorkerPicker for LastOfTheCheapest {
    fn pick(
        &mut self,
        _context: &WorkerSelectionContext<'_>,
        input: WorkerInputView<'_>,
    ) -> Result<usize, WorkerSelectionPolicyError> {
        let rows = input.candidates().iter().enumerate();
        rows.max_by(|(_, left), (_, right)| right.cost().total_cmp(&left.cost()))
            .map(|(row, _)| row)
            .ok_or_else(|| WorkerSelectionPolicyError::failed("no eligible worker"))
    }
}

fn prefill_left(
    config: &KvRouterConfig,
    worker_type: &'static str,
    _partition: RoutingPartitionRef<'_>,
) -> WorkerSelectionPolicy {
    WorkerSelectionPolicy::new(
        config.clone(),
        worker_type,
        vec![Box::new(PrefillLeft)],
        Box::new(LastOfTheCheapest),
    )
}

/// Builds a policy through what every builder accepts as a factory.
fn build_with(
    factory: impl Fn(&KvRouterConfig, &'static str, RoutingPartitionRef<'_>) -> WorkerSelectionPolicy
    + Send
    + Sync
    + 'static,
) -> WorkerSelectionPolicy {
    factory(&KvRouterConfig::default(), "aggregated", RoutingPartitionRef::new("model", "default"))
}

#[test]
fn a_policy_in_the_documents_shape_picks_and_is_handed_only_what_it_asked_for() {
    let mut policy = build_with(prefill_left);
    assert_eq!(policy.required_worker_inputs(), WorkerInputs::LOAD | WorkerInputs::CACHE);
    let context = host::ContextBuilder::new(160, 16).build();
    let row = |worker, cached, active| {
        host::candidate(worker, 0)
            .with_load(host::load(10.0, 0, 0.0, active))
            .with_cache(host::cache(cached, 0.0, 0.0))
    };
    let mut rows = vec![row(1, 0.0, 0), row(2, 8.0, 1), row(3, 8.0, 1)];
    let pick = host::evaluate(&mut policy, &context, &mut rows, &mut host::Scratch::default()).unwrap();
    assert_eq!((pick.worker_id, pick.dp_rank), (3, 0), "costs are 10, 3 and 3");
}
