//! Which layer wins, what is refused and how it is said.

use super::*;
use proptest::prelude::*;
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tree {
    http: Http,
    store: Store,
    models: Vec<Model>,
    level: Level,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Http {
    listen: SocketAddr,
    workers: u16,
    speed: f64,
    open: bool,
    #[serde(rename = "wait_ms", with = "crate::config::milliseconds")]
    wait: std::time::Duration,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Store {
    endpoints: Vec<String>,
    password: Option<String>,
    limit: Option<u64>,
}

impl Default for Store {
    fn default() -> Self {
        Self { endpoints: vec!["http://here:1".into()], password: None, limit: Some(7) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Model {
    BuiltIn,
    Path { name: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Low,
    High,
}

impl Default for Tree {
    fn default() -> Self {
        let http = Http {
            listen: "127.0.0.1:8080".parse().unwrap(),
            workers: 4,
            speed: 1.0,
            open: false,
            wait: std::time::Duration::from_millis(1_500),
        };
        Self { http, store: Store::default(), models: vec![Model::BuiltIn], level: Level::Low }
    }
}

const REDACTION: Redaction = Redaction::new(&["password"]);

fn layers() -> Layers<Tree> {
    Layers::new(REDACTION).unwrap()
}

fn with_file(text: &str) -> Result<Layers<Tree>, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    std::fs::write(&path, text).unwrap();
    layers().file(&path)
}

fn variables<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = (OsString, OsString)> + 'a {
    pairs.iter().map(|(name, value)| (name.into(), value.into()))
}

/// The error of a tree with this file, these variables, or both; its first word is the source.
fn refused(file: &str, pairs: &[(&str, &str)]) -> String {
    let read = with_file(file)
        .and_then(|layers| layers.environment(variables(pairs)))
        .and_then(|layers| layers.read().map(drop));
    let line = read.unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    line.rsplit_once("c.toml").map_or(line.clone(), |(_, rest)| format!("c.toml{rest}"))
}

#[test]
fn nothing_given_is_the_default() {
    assert_eq!(layers().read().unwrap(), Tree::default());
}

#[test]
fn a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default() {
    let file = "level = 'high'\n[http]\nworkers = 1\nspeed = 2\nopen = true\n[store]\nendpoints = ['a']\n\
                [[models]]\nkind = 'path'\nname = 'm'";
    let environment =
        [("SWITCHTOWER__HTTP__WORKERS", "2"), ("SWITCHTOWER__STORE__ENDPOINTS", "b, c"), ("X", "y")];
    let layers = with_file(file).unwrap().environment(variables(&environment)).unwrap();
    let layers = layers
        .flag("--http", "http.listen", Some("[::1]:9".into()))
        .flag("--workers", "http.workers", Some("3".into()))
        .flag("--speed", "http.speed", None);
    let read = layers.read().unwrap();
    let mut expected = Tree { level: Level::High, ..Tree::default() };
    expected.http.listen = "[::1]:9".parse().unwrap();
    (expected.http.workers, expected.http.speed, expected.http.open) = (3, 2.0, true);
    expected.store.endpoints = vec!["b".into(), "c".into()];
    expected.models = vec![Model::Path { name: "m".into() }];
    assert_eq!(read, expected);
}

#[test]
fn text_is_read_as_what_the_setting_is() {
    let pairs = [
        ("SWITCHTOWER__HTTP__OPEN", "true"),
        ("SWITCHTOWER__HTTP__SPEED", " 0.5 "),
        ("SWITCHTOWER__HTTP__WAIT_MS", "20"),
        ("SWITCHTOWER__STORE__PASSWORD", "0123"),
        ("SWITCHTOWER__STORE__LIMIT", ""),
        ("SWITCHTOWER__STORE__ENDPOINTS", "[\"a,b\"]"),
        ("SWITCHTOWER__LEVEL", "high"),
        ("SWITCHTOWER__MODELS", "[{kind = \"path\", name = \"n\"}]"),
    ];
    let read = layers().environment(variables(&pairs)).unwrap().read().unwrap();
    assert!(read.http.open && read.level == Level::High);
    assert_eq!((read.http.speed, read.http.wait.as_millis()), (0.5, 20));
    assert_eq!(read.store.password.as_deref(), Some("0123"));
    assert_eq!((read.store.limit, &*read.store.endpoints), (None, &["a,b".to_owned()][..]));
    assert_eq!(read.models, [Model::Path { name: "n".into() }]);
}

#[test]
fn b154_what_is_no_setting_is_refused_with_its_path_from_any_layer() {
    let cases = [
        ("htp.x = 1", "c.toml: there is no setting `htp`; beside it there are http, store, models, level"),
        // A type that would overlook it (no `deny_unknown_fields`) is not asked.
        ("http.port = 1", "c.toml: there is no setting `http.port`; --print-config shows"),
        ("[store]\nuser = 1", "c.toml: there is no setting `store.user`; beside it there are endpoints"),
    ];
    for (file, expected) in cases {
        let line = refused(file, &[]);
        assert!(line.starts_with(expected), "{line}");
    }
    let line = refused("", &[("SWITCHTOWER__HTTP__PORT", "1")]);
    assert!(line.starts_with("SWITCHTOWER__HTTP__PORT: there is no setting `http.port`"), "{line}");
}

#[test]
fn b154_a_value_of_the_wrong_kind_is_named_with_path_and_value() {
    let files = [
        ("http = 1", "c.toml: `http` is `1`: it is a section"),
        (
            "http.workers = 'many'",
            "c.toml: `http.workers` is `many`: it must be a whole number from 0 to 65535",
        ),
        (
            "http.workers = 70_000",
            "c.toml: `http.workers` is `70000`: it must be a whole number from 0 to 65535",
        ),
        ("http.workers = -1", "c.toml: `http.workers` is `-1`: it must be a whole number"),
        ("http.listen = 'nowhere'", "c.toml: `http.listen` is `nowhere`: give an IP address and a port"),
        ("http.open = 1", "c.toml: `http.open` is `1`: it must be true or false"),
        ("store.endpoints = 'a'", "c.toml: `store.endpoints` is `a`: it must be a list"),
        ("store.endpoints = ['a', 5]", "c.toml: `store.endpoints[1]` is `5`: it must be a string"),
        (
            "models = [{ kind = 'none' }]",
            "c.toml: `models[0].kind` is `none`: it must be one of built_in, path",
        ),
        ("level = 'medium'", "c.toml: `level` is `medium`: it must be one of low, high"),
        ("models = [{ kind = 'path' }]", "c.toml: `models[0]`: `name` is missing in it"),
    ];
    for (file, expected) in files {
        let line = refused(file, &[]);
        assert!(line.starts_with(expected), "{line}\nis not\n{expected}");
    }
    let variables = [
        ("SWITCHTOWER__HTTP__WORKERS", "many", "`http.workers` is `many`: it must be a whole number that is"),
        ("SWITCHTOWER__HTTP__SPEED", "", "`http.speed` is ``: it must be a number"),
        ("SWITCHTOWER__HTTP", "x", "`http` is `x`: it is a section"),
        ("SWITCHTOWER__STORE__ENDPOINTS", "[1", "`store.endpoints` is `[1`: give a list"),
    ];
    for (name, value, expected) in variables {
        let line = refused("", &[(name, value)]);
        assert!(line.starts_with(&format!("{name}: {expected}")), "{line}\nis not\n{expected}");
    }
    let line = layers().flag("--http", "http.listen", Some("x".into())).read().unwrap_err().to_string();
    assert!(line.starts_with("--http: `http.listen` is `x`"), "{line}");
}

#[test]
fn files_and_variables_that_cannot_be_read_are_named() {
    let line = layers().file(Path::new("/no/such.toml")).unwrap_err().to_string();
    assert!(line.starts_with("cannot read the configuration /no/such.toml"), "{line}");
    assert!(
        refused("[http]\nworkers = ", &[]).starts_with("c.toml:2:11: "),
        "{}",
        refused("[http]\nworkers = ", &[])
    );
    assert!(refused("a = 1\na = 2", &[]).starts_with("c.toml:2:1: duplicate key"));
    assert!(refused(&"#\n".repeat(600_000), &[]).contains("at most 1 MiB"));
    assert!(refused("", &[("SWITCHTOWER__HTTP__", "1")]).starts_with("SWITCHTOWER__HTTP__: name a setting"));
    let twice = [("SWITCHTOWER__HTTP__OPEN", "true"), ("SWITCHTOWER__http__open", "false")];
    assert!(refused("", &twice).contains("another spelling"));
}

#[test]
fn invariant_9_secrets_are_in_no_error_and_in_no_print() {
    let said = [
        refused("store.password = 4711", &[]),
        refused("[store]\npassword = \"4711", &[]),
        refused("store.limit = 'nats://u:4711@h'", &[]),
    ];
    assert!(said[0].contains("`store.password` is (hidden)"), "{}", said[0]);
    let mut tree = Tree::default();
    tree.store.password = Some("4711".into());
    tree.store.endpoints.push("nats://u:4711@h".into());
    let printed = REDACTION.toml(&tree).unwrap();
    assert!(printed.contains("password = \"***\"") && printed.contains("nats://***@h"), "{printed}");
    assert!(said.iter().chain([&printed]).all(|text| !text.contains("4711")), "{said:?}");
}

proptest! {
    /// The settings come back from what is printed: nothing is lost, nothing read as something else.
    #[test]
    fn what_is_printed_reads_back_as_itself(
        workers: u16, speed in -1e300..1e300, open: bool, wait in 0..u64::MAX / 2,
        endpoints: Vec<String>, limit in proptest::option::of(0..i64::MAX as u64),
    ) {
        let mut tree = Tree::default();
        tree.http = Http { workers, speed, open, wait: std::time::Duration::from_millis(wait), ..tree.http };
        // What looks like a URL with credentials is hidden, which is another test.
        let endpoints = endpoints.into_iter().map(|text| text.replace('@', "")).collect();
        tree.store = Store { endpoints, password: None, limit };
        let printed = REDACTION.toml(&tree).unwrap();
        let mut read = with_file(&printed).unwrap().read().unwrap();
        // A setting that is not set is not printed, and the default stays.
        read.store.limit = read.store.limit.filter(|_| limit.is_some());
        prop_assert_eq!(read, tree);
    }

    /// Each setting has the value of the highest layer that gives one.
    #[test]
    fn the_highest_layer_that_speaks_wins(layers in proptest::array::uniform3(proptest::option::of(0_u16..9_999))) {
        let [file, variable, flag] = layers;
        let text = file.map(|workers| format!("[http]\nworkers = {workers}")).unwrap_or_default();
        let variable = variable.map(|workers| ("SWITCHTOWER__HTTP__WORKERS".into(), workers.to_string().into()));
        let read = with_file(&text).unwrap().environment(variable.clone()).unwrap();
        let read = read.flag("--workers", "http.workers", flag.map(|workers| workers.to_string())).read().unwrap();
        let highest = flag.or(layers[1]).or(file).unwrap_or(Tree::default().http.workers);
        prop_assert_eq!(read.http.workers, highest);
        prop_assert_eq!(read.http.speed, Tree::default().http.speed);
    }

    /// Bytes that anybody may write end in a tree or in one line.
    #[test]
    fn any_text_is_read_or_refused_in_one_line(text: String, path in "[a-zA-Z_]{0,12}", value: String) {
        let name = format!("SWITCHTOWER__{path}");
        let read = with_file(&text)
            .and_then(|layers| layers.environment(variables(&[(&name, &value)])))
            .and_then(|layers| layers.read());
        if let Err(error) = read {
            prop_assert!(!error.to_string().contains('\n'), "{}", error);
        }
    }
}
