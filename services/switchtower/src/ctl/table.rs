//! An array of objects as columns. The columns are the members in the order in which they first come; what is not set is `-`.

use serde_json::{Map, Value};

/// The table of the array `name` in `answer`, or of its one array.
pub(crate) fn table(name: &str, answer: &Value) -> String {
    let rows: Vec<Map<String, Value>> =
        answer[name].as_array().into_iter().flatten().map(|row| flat(row, name)).collect();
    if rows.is_empty() {
        return format!("{name}: none\n");
    }
    let mut columns: Vec<&String> = Vec::new();
    for column in rows.iter().flat_map(Map::keys) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let head = columns.iter().map(|column| column.to_uppercase()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|column| cell(row.get(*column))).collect());
    aligned(&std::iter::once(head).chain(cells).collect::<Vec<Vec<String>>>())
}

/// The members of a row; those of objects inside of it under their own names.
fn flat(row: &Value, name: &str) -> Map<String, Value> {
    let Value::Object(members) = row else {
        return Map::from_iter([(name.to_owned(), row.clone())]);
    };
    let mut flat = Map::new();
    for (key, value) in members {
        match value {
            Value::Object(inner) => {
                flat.extend(inner.iter().map(|(below, value)| (format!("{key}.{below}"), value.clone())));
            }
            value => drop(flat.insert(key.clone(), value.clone())),
        }
    }
    flat
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "-".to_owned(),
        // Names may be anything: control characters must not reach a terminal.
        Some(Value::String(text)) => {
            text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
        }
        Some(Value::Array(items)) if items.is_empty() => "-".to_owned(),
        Some(Value::Array(items)) => items.iter().map(|item| cell(Some(item))).collect::<Vec<_>>().join(","),
        Some(scalar) => scalar.to_string(),
    }
}

fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_become_aligned_lines() {
        let answer = json!({"workers": [
            {"worker_id": 1, "taints": [], "report": "unknown", "row": {"a": 1}},
            {"worker_id": 20, "taints": ["x", "y"], "report": null, "row": {"a": 2}, "more": true},
        ]});
        let expected = "WORKER_ID  TAINTS  REPORT   ROW.A  MORE\n\
                        1          -       unknown  1      -\n\
                        20         x,y     -        2      true\n";
        assert_eq!(table("workers", &answer), expected);
        assert_eq!(table("workers", &json!({"workers": []})), "workers: none\n");
        assert_eq!(table("workers", &json!(3)), "workers: none\n");
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_printed() {
        let text = table("x", &json!({"x": [{"a": "\u{1b}[2Jb\n"}]}));
        assert_eq!(text, "A\n\u{fffd}[2Jb\u{fffd}\n");
    }
}
