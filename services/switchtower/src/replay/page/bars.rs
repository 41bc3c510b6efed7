//! Single figures of all policies as bars.

use super::svg::{colour, escaped, short};
use crate::replay::report::Report;
use std::fmt::Write;
use switchtower_simulation::PolicyResult;

const WIDTH: f64 = 480.0;
const NAMES: f64 = 112.0;
const LINE: f64 = 22.0;

/// Room for the number behind the longest bar.
const NUMBERS: f64 = 56.0;

/// One chart: what it shows, the value of a policy, and a value to mark.
struct Chart {
    title: &'static str,
    value: fn(&PolicyResult) -> Option<f64>,
    /// A value that all are measured by, and what it is.
    mark: Option<(f64, &'static str)>,
}

/// Hits, balance and mean times.
pub(super) fn bars(report: &Report<'_>) -> String {
    let oracle = report.played.first().map_or(0.0, |played| played.result.oracle_hit_ratio);
    let charts = [
        Chart {
            title: "Hit ratio (share of input tokens)",
            value: |result| Some(result.hit_ratio),
            mark: Some((oracle, "oracle")),
        },
        Chart {
            title: "Imbalance (largest row ÷ mean)",
            value: |result| result.imbalance,
            mark: Some((1.0, "even")),
        },
        Chart { title: "Mean time to first token, ms", value: |result| result.ttft_ms.mean, mark: None },
        Chart { title: "99th percentile of the same, ms", value: |result| result.ttft_ms.p99, mark: None },
    ];
    let charts: String = charts.iter().map(|chart| draw(report, chart)).collect();
    format!("<div class=\"charts\">\n{charts}</div>\n")
}

fn draw(report: &Report<'_>, chart: &Chart) -> String {
    let values: Vec<Option<f64>> = report.played.iter().map(|played| (chart.value)(&played.result)).collect();
    let marked = chart.mark.map(|(value, _)| value);
    let most = values.iter().flatten().copied().chain(marked).fold(0.0, f64::max);
    let length = |value: f64| if most > 0.0 { value / most * (WIDTH - NAMES - NUMBERS) } else { 0.0 };
    let height = LINE * (values.len() as f64 + 2.0);
    let mut html = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"{0}\">\n\
         <text x=\"0\" y=\"14\" font-weight=\"600\">{0}</text>\n{1}",
        chart.title,
        mark(chart.mark.map(|(value, name)| (NAMES + length(value), name)), height)
    );
    for (place, (value, played)) in values.iter().zip(report.played).enumerate() {
        let top = LINE * (place as f64 + 1.0);
        let long = length(value.unwrap_or(0.0));
        // Writing into a string does not fail.
        let _ = writeln!(
            html,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{long:.1}\" \
             height=\"14\" fill=\"{}\"/><text class=\"faint clear\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            NAMES - 6.0,
            top + 15.0,
            escaped(&cut(&played.result.policy)),
            top + 4.0,
            colour(place),
            NAMES + long + 5.0,
            top + 15.0,
            value.map_or("-".to_owned(), short)
        );
    }
    html + "</svg>\n"
}

fn mark(mark: Option<(f64, &str)>, height: f64) -> String {
    let Some((x, name)) = mark else {
        return String::new();
    };
    format!(
        "<path class=\"mark\" d=\"M{x:.1} {LINE}V{:.1}\"/><text class=\"faint\" x=\"{x:.1}\" y=\"{:.1}\" \
         text-anchor=\"middle\">{name}</text>\n",
        height - LINE + 4.0,
        height - 4.0
    )
}

/// A name that fits beside the bars.
fn cut(name: &str) -> String {
    const MOST: usize = 16;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}
