//! The settings of `router` and `worker` as processes see them: layers, `--print-config`, and how what is wrong is refused.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Runs the command in `folder` with these variables and no others of ours.
fn run(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchtower"));
    command.args(arguments).envs(variables.iter().copied()).current_dir(folder).output().unwrap()
}

fn printed(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> toml::Table {
    let output = run(folder, &[arguments, &["--print-config"]].concat(), variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    toml::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// The one line on stderr of a run that ends with 64.
fn refused(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = run(folder, arguments, variables);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(64), 1), "{arguments:?}: {said}");
    said.trim_end().strip_prefix("switchtower: ").unwrap().to_owned()
}

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c.toml"), config).unwrap();
    folder
}

#[test]
fn print_config_shows_every_setting_and_its_default() {
    let folder = folder("");
    let output = run(folder.path(), &["router", "--print-config"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/settings.toml");
    let expected = std::fs::read(&golden).unwrap_or_default();
    if output.stdout != expected {
        let printed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings.toml");
        std::fs::write(&printed, &output.stdout).unwrap();
        panic!(
            "the settings changed: compare {} with {}, and copy it there",
            printed.display(),
            golden.display()
        );
    }
    // What is printed is a configuration that says the same.
    std::fs::write(folder.path().join("p.toml"), &output.stdout).unwrap();
    let again = run(folder.path(), &["worker", "--sim", "--config", "p.toml", "--print-config"], &[]);
    assert_eq!(again.stdout, expected);
}

#[test]
fn flags_win_over_the_environment_over_the_file_over_the_defaults() {
    let folder = folder(
        "[http]\nlisten = '127.0.0.1:1'\n[worker]\nranks = 2\nspeed = 2.0\n[cluster]\nname = 'file'\n[etcd]\nendpoints = ['http://file:1']",
    );
    let variables = [
        ("SWITCHTOWER__CLUSTER__NAME", "environment"),
        ("SWITCHTOWER__WORKER__RANKS", "3"),
        ("SWITCHTOWER__NATS__SERVERS", "nats://a:1,nats://b:2"),
        ("SWITCHTOWER_TEST_SOMETHING", "not ours"),
    ];
    let flags =
        ["worker", "--sim", "--config", "c.toml", "--ranks", "4", "--etcd", "http://flag:1,http://flag:2"];
    let config = printed(folder.path(), &flags, &variables);
    assert_eq!(config["worker"]["ranks"].as_integer(), Some(4));
    assert_eq!(config["worker"]["speed"].as_float(), Some(2.0));
    assert_eq!(config["cluster"]["name"].as_str(), Some("environment"));
    assert_eq!(config["http"]["listen"].as_str(), Some("127.0.0.1:1"));
    assert_eq!(config["nats"]["servers"].as_array().map(Vec::len), Some(2));
    assert_eq!(config["etcd"]["endpoints"][1].as_str(), Some("http://flag:2"));
}

#[test]
fn a_model_named_by_a_flag_is_served_alone_as_the_file_describes_it() {
    let folder = folder(
        "[[models]]\nkind = 'path'\nname = 'big'\npath = '/m/big'\nblock_size = 32\n[[models]]\nkind = 'built_in'",
    );
    let config = printed(folder.path(), &["router", "--config", "c.toml", "--model", "big"], &[]);
    let models = config["models"].as_array().unwrap();
    assert_eq!((models.len(), models[0]["block_size"].as_integer()), (1, Some(32)));
    let config = printed(folder.path(), &["router", "--config", "c.toml", "--model", "other"], &[]);
    assert_eq!(config["models"][0]["kind"].as_str(), Some("built_in_as"));
    let line = refused(folder.path(), &["worker", "--sim", "--config", "c.toml"], &[]);
    assert!(line.contains("models") && line.contains("--model"), "{line}");
}

#[test]
fn the_flags_of_an_engines_agent_are_settings_of_its_own() {
    let folder = folder(
        "[[models]]\nkind = 'path'\nname = 'big'\npath = '/m/big'\n[engine_agent]\ncheck_interval_ms = 500",
    );
    let flags =
        ["worker", "--engine", "http://e:1", "--worker-id", "9", "--blocks", "5", "--config", "c.toml"];
    let config = printed(folder.path(), &flags, &[]);
    let (agent, simulated) = (&config["engine_agent"], &config["worker"]);
    assert_eq!((agent["url"].as_str(), agent["model"].as_str()), (Some("http://e:1"), Some("big")));
    let numbers = ["worker_id", "total_blocks", "check_interval_ms"].map(|name| agent[name].as_integer());
    assert_eq!(numbers, [Some(9), Some(5), Some(500)]);
    assert_eq!(simulated["worker_id"].as_integer(), Some(1));
    let named = printed(folder.path(), &[&flags[..], &["--model", "other"]].concat(), &[]);
    assert_eq!(named["engine_agent"]["model"].as_str(), Some("other"));
}

#[test]
fn invariant_9_print_config_hides_secrets() {
    let folder = folder("[etcd]\nusername = 'ann'\npassword = 's3cret'\n[nats]\ntoken = 's3cret'");
    let variables = [("SWITCHTOWER__ETCD__ENDPOINTS", "http://ann:s3cret@host:1")];
    let output = run(folder.path(), &["router", "--config", "c.toml", "--print-config"], &variables);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("***") && said.contains("ann") && !said.contains("s3cret"), "{said}");
}

/// Flags, environment, and what the refusal says.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

#[test]
fn b154_what_cannot_be_is_refused_in_one_line_that_says_where_it_was_set() {
    let folder = folder("[http]\nport = 1");
    let cases: [Case<'_>; 17] = [
        (&["router", "--config", "c.toml"], &[], "c.toml: there is no setting `http.port`"),
        (&["router", "--config", "none.toml"], &[], "cannot read the configuration none.toml"),
        (
            &["router"],
            &[("SWITCHTOWER__ROUTER__POLICI", "x")],
            "SWITCHTOWER__ROUTER__POLICI: there is no setting `router.polici`",
        ),
        (
            &["router", "--http", "nowhere"],
            &[],
            "--http: `http.listen` is `nowhere`: give an IP address and a port",
        ),
        (&["router", "--queue-threshold", "-1"], &[], "router: `queue_threshold` is -1"),
        (&["router", "--no-such-flag"], &[], "unexpected argument '--no-such-flag'"),
        (&["router", "--model", "", "--log", "off"], &[], "name: `` cannot name a model"),
        (&["router", "--policy", "none"], &[], "there is no policy \"none\""),
        (&["router", "--log", "a=b=c"], &[], "log filter"),
        (&["worker"], &[], "the following required arguments were not provided: --sim"),
        (&["worker", "--sim", "--engine", "http://e:1"], &[], "cannot be used with"),
        (&["worker", "--engine", "http://e:1/v1"], &[], "engine_agent.url is `http://e:1/v1`"),
        (
            &["worker", "--engine", "http://e:1", "--block-size", "x"],
            &[],
            "--block-size: `engine_agent.block_size` is `x`",
        ),
        (&["worker", "--sim", "--speed", "NaN"], &[], "worker.speed is NaN"),
        (
            &["worker", "--sim", "--ranks", "many"],
            &[],
            "--ranks: `worker.ranks` is `many`: it must be a whole number",
        ),
        (&["worker", "--sim", "--listen", "0.0.0.0:0"], &[], "worker.listen is 0.0.0.0:0"),
        (&["router", "--nats", "http://host:1", "--log", "off"], &[], "nats"),
    ];
    for (arguments, variables, expected) in cases {
        let line = refused(folder.path(), arguments, variables);
        assert!(line.to_lowercase().contains(&expected.to_lowercase()), "{arguments:?}: {line}");
    }
}
