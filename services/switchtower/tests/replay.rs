//! `switchtower replay` as a process: what it prints, that it prints the same again, and how it refuses what is wrong.

use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Runs the command in `folder`.
fn replay(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchtower"));
    command.arg("replay").args(arguments).current_dir(folder).output().unwrap()
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = replay(folder, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A trace of 300 requests in sessions of growing prompts, 10 at every second.
fn trace() -> String {
    let line = |number: u64| {
        let (session, turn) = (number % 30, number / 30);
        let blocks = 4 + turn;
        let ids: Vec<u64> =
            (0..=blocks).map(|block| if block == 0 { 0 } else { session * 100 + block }).collect();
        let (at, input, output) = (number / 10 * 1_000, blocks * 512 + 7 * session + 1, 20 + session);
        format!(
            "{{\"timestamp\":{at},\"input_length\":{input},\"output_length\":{output},\"hash_ids\":{ids:?}}}\n"
        )
    };
    (0..300).map(line).collect()
}

/// A folder that holds `text` as trace.jsonl.
fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trace.jsonl"), text).unwrap();
    folder
}

const FLEET: [&str; 6] = ["--trace", "trace.jsonl", "--workers", "4", "--blocks-per-worker", "100"];

/// What an earlier build printed, perhaps on another machine.
#[test]
fn the_same_seed_gives_the_same_bytes_on_every_machine() {
    let folder = folder(&trace());
    let arguments =
        ["--utilisation", "0.7", "--seed", "5", "--policy", "additive", "--policy", "random", "--json"];
    let arguments = [&FLEET[..], &arguments].concat();
    let (one, other) = (replay(folder.path(), &arguments), replay(folder.path(), &arguments));
    assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
    assert_eq!(one.stdout, other.stdout);
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/replay.json");
    let expected = std::fs::read(&golden).unwrap_or_default();
    if one.stdout != expected {
        let printed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replay.json");
        std::fs::write(&printed, &one.stdout).unwrap();
        panic!(
            "{} is not {}: see what differs, and copy it if that was wanted",
            printed.display(),
            golden.display()
        );
    }
}

#[test]
fn another_seed_gives_other_figures() {
    let folder = folder(&trace());
    let with = |seed| json(folder.path(), &[&FLEET[..], &["--policy", "random", "--seed", seed]].concat());
    assert_ne!(with("1")["results"], with("2")["results"]);
}

#[test]
fn the_json_has_the_promised_names() {
    let folder = folder(&trace());
    let report = json(folder.path(), &[&FLEET[..], &["--limit", "100", "--rate-scale", "3"]].concat());
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&report), ["trace", "settings", "results"]);
    let result = &report["results"][0];
    let expected = "policy requests input_tokens hit_tokens hit_ratio oracle_hit_ratio hit_of_oracle imbalance \
                    ttft_ms e2e_ms queue_wait_ms rejected";
    assert_eq!(names(result).join(" "), expected);
    for times in ["ttft_ms", "e2e_ms", "queue_wait_ms"] {
        assert_eq!(names(&result[times]), ["mean", "p50", "p90", "p99"]);
    }
    assert_eq!((&result["requests"], &report["settings"]["rate_scale"]), (&100.into(), &3.0.into()));
    assert!(result["hit_of_oracle"].as_f64().unwrap() > 0.3, "{result}");
}

#[test]
fn without_prefixes_there_is_no_share_of_the_oracle() {
    let row = |second: u32| format!("2023-11-16 18:15:{second:02}.5,1000,20\n");
    let text =
        "TIMESTAMP,ContextTokens,GeneratedTokens\n".to_owned() + &(10..30).map(row).collect::<String>();
    let folder = folder(&text);
    let report = json(folder.path(), &FLEET);
    assert_eq!(
        (&report["trace"]["format"], &report["results"][0]["hit_of_oracle"]),
        (&"azure".into(), &Value::Null)
    );
    assert_eq!(report["results"][0]["hit_tokens"], 0);
}

#[test]
fn the_table_has_a_line_per_policy_and_the_time_it_took_is_not_on_it() {
    let folder = folder(&trace());
    let output =
        replay(folder.path(), &[&FLEET[..], &["--policy", "random", "--policy", "additive"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let firsts: Vec<_> = text.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(firsts, ["trace.jsonl:", "policy", "random", "additive"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("300 requests") && said.lines().count() == 1, "{said}");
}

#[test]
fn figures_that_are_a_fallbacks_are_called_so() {
    let folder = folder(&trace());
    let output = replay(folder.path(), &[&FLEET[..], &["--policy", "direct"]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && said.contains("direct: its fallback chose for 300 of 300 requests"),
        "{said}"
    );
}

#[test]
fn the_page_is_whole_loads_nothing_and_names_cannot_break_out_of_it() {
    let folder = folder(&trace());
    let evil = "<script>alert('1') & \"2\".jsonl";
    std::fs::rename(folder.path().join("trace.jsonl"), folder.path().join(evil)).unwrap();
    let arguments =
        ["--trace", evil, "--policy", "product", "--policy", "least-loaded", "--html", "page.html"];
    assert!(replay(folder.path(), &arguments).status.success());
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(
        !page.contains("<script") && page.contains("&lt;script&gt;alert(&#39;1&#39;) &amp; &quot;2&quot;")
    );
    for outside in ["http:", "https:", "src=", "url(", "@import", "<link"] {
        assert!(!page.contains(outside), "the page has {outside}");
    }
    for policy in ["product", "least-loaded"] {
        // Table, curve, legend, four bar charts, two charts over time.
        assert!(page.matches(policy).count() >= 9, "{policy}");
    }
    for tag in ["svg", "text", "title", "section", "div", "table", "tr", "td", "b", "p", "style"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

/// The line that refuses.
fn refusal(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = replay(folder, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(output.stdout.is_empty());
    said
}

#[test]
fn wrong_usage_is_refused_in_one_line_with_64() {
    let folder = folder(&trace());
    let cases: [(&[&str], &str); 12] = [
        (&["--workers", "0"], "0 workers"),
        (&["--ranks", "0"], "0 ranks"),
        (&["--blocks-per-worker", "0"], "0 blocks per worker"),
        (&["--workers=-1"], "--workers"),
        (&["--limit", "0"], "--limit"),
        (&["--policy", "fastest"], "there is no policy \"fastest\""),
        (&["--format", "parquet"], "there is no trace format \"parquet\""),
        (&["--utilisation", "0"], "--utilisation"),
        (&["--utilisation", "nan"], "--utilisation"),
        (&["--rate-scale", "inf"], "--rate-scale"),
        (&["--rate-scale", "2", "--utilisation", "0.5"], "cannot be used with"),
        (&["--queue-threshold=-1"], "queue_threshold"),
    ];
    for (arguments, expected) in cases {
        let said = refusal(folder.path(), &[&["--trace", "trace.jsonl"], arguments].concat(), 64);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    assert!(refusal(folder.path(), &[], 64).contains("--trace"));
}

#[test]
fn bad_traces_are_refused_in_one_line_with_65() {
    let good = "{\"timestamp\":5,\"input_length\":600,\"output_length\":1,\"hash_ids\":[1,2]}\n";
    let cases = [
        (String::new(), "holds no request"),
        ("what is this\n".to_owned(), "--format"),
        (good.to_owned() + "{\"timestamp\":6,\n", "line 2 is malformed"),
        (good.to_owned() + &good.replace('5', "4"), "line 2 goes back in time"),
        (good.to_owned() + &good.replace("600", "6000"), "line 2 contradicts itself"),
    ];
    for (text, expected) in cases {
        let folder = folder(&text);
        let said = refusal(folder.path(), &["--trace", "trace.jsonl"], 65);
        assert!(said.contains(expected) && said.contains("trace.jsonl"), "{said}");
    }
    let folder = folder(good);
    let said = refusal(folder.path(), &["--trace", "nowhere.jsonl"], 65);
    assert!(said.contains("nowhere.jsonl"), "{said}");
    refusal(folder.path(), &["--trace", "."], 65);
    let said = refusal(folder.path(), &["--trace", "trace.jsonl", "--utilisation", "0.5"], 65);
    assert!(said.contains("one timestamp"), "{said}");
}

#[test]
fn bad_lines_are_counted_where_they_may_be_left_out() {
    let folder = folder(&("oops\n".to_owned() + &trace() + "{\"timestamp\": 0}\n"));
    let report = json(folder.path(), &[&FLEET[..], &["--skip-bad"]].concat());
    assert_eq!((&report["trace"]["skipped"], &report["trace"]["requests"]), (&2.into(), &300.into()));
}

/// The published traces, where they lie beside the repository: the figures that others have computed from them.
#[test]
fn published_traces_have_their_known_oracles() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let known = [("conversation_trace.jsonl", 12_031, 0.373_4), ("synthetic_trace.jsonl", 3_993, 0.650_4)];
    for (file, requests, oracle) in known {
        if !traces.join(file).exists() {
            eprintln!("{file} is not there; nothing to compare");
            continue;
        }
        let report = json(&traces, &["--trace", file, "--utilisation", "0.66", "--policy", "product"]);
        let result = &report["results"][0];
        assert_eq!((&result["requests"], &result["rejected"]), (&requests.into(), &0.into()));
        assert!((result["oracle_hit_ratio"].as_f64().unwrap() - oracle).abs() < 5e-5, "{result}");
        assert!(result["hit_of_oracle"].as_f64().unwrap() > 0.9, "{result}");
    }
}
