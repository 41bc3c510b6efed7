//! `GET /admin/config`: every setting that this replica runs with, one per entry. Secrets were hidden by whoever handed the
//! configuration in.

use super::{AdminState, named};
use axum::{extract::State, response::Response};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// One setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setting {
    /// Its path, `section.field`.
    setting: String,
    /// What it is set to: a scalar or a list.
    value: Value,
}

/// `GET /admin/config`.
pub(crate) async fn settings(State(state): State<Arc<AdminState>>) -> Response {
    named("config", &state.settings)
}

/// The leaves of a configuration tree with their paths.
pub(super) fn flatten(config: &Value) -> Vec<Setting> {
    let mut settings = Vec::new();
    gather("", config, &mut settings);
    settings
}

fn gather(path: &str, value: &Value, settings: &mut Vec<Setting>) {
    let Value::Object(section) = value else {
        settings.push(Setting { setting: path.to_owned(), value: value.clone() });
        return;
    };
    for (key, value) in section {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        gather(&below, value, settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sections_become_paths_and_lists_stay_whole() {
        let config =
            json!({"http": {"listen": "a"}, "worker": {"engine": {"max": 1}}, "models": [{"kind": "x"}]});
        let flat: Vec<_> =
            flatten(&config).into_iter().map(|Setting { setting, value }| (setting, value)).collect();
        let expected = [
            ("http.listen", json!("a")),
            ("worker.engine.max", json!(1)),
            ("models", json!([{"kind": "x"}])),
        ];
        assert_eq!(flat, expected.map(|(setting, value)| (setting.to_owned(), value)));
    }
}
