//! The figures as a table for people.

use super::report::Report;
use std::fmt::Write;
use switchtower_simulation::PolicyResult;

/// The columns with their cells.
type Column = (&'static str, fn(&PolicyResult) -> String);

const COLUMNS: &[Column] = &[
    ("policy", |result| result.policy.clone()),
    ("hit", |result| format!("{:.3}", result.hit_ratio)),
    ("of oracle", |result| number(result.hit_of_oracle, 3)),
    ("imbalance", |result| number(result.imbalance, 2)),
    ("ttft mean", |result| number(result.ttft_ms.mean, 0)),
    ("p50", |result| number(result.ttft_ms.p50, 0)),
    ("p90", |result| number(result.ttft_ms.p90, 0)),
    ("p99", |result| number(result.ttft_ms.p99, 0)),
    ("e2e mean", |result| number(result.e2e_ms.mean, 0)),
    ("p99", |result| number(result.e2e_ms.p99, 0)),
    ("wait mean", |result| number(result.queue_wait_ms.mean, 0)),
    ("rejected", |result| result.rejected.to_string()),
];

/// A headline and one line per policy. Times are in milliseconds.
pub(super) fn table(report: &Report<'_>) -> String {
    let rows =
        report.played.iter().map(|played| COLUMNS.iter().map(|(_, cell)| cell(&played.result)).collect());
    let header = COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut text = headline(report);
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Writing into a string does not fail.
            let _ = match column {
                0 => write!(text, "{cell:width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// What was played, in one line.
pub(super) fn headline(report: &Report<'_>) -> String {
    let (trace, settings) = (&report.trace, &report.settings);
    let skipped =
        if trace.skipped > 0 { format!(" ({} bad lines left out)", trace.skipped) } else { String::new() };
    let oracle = report.played.first().map_or(0.0, |played| played.result.oracle_hit_ratio);
    format!(
        "{}: {} requests{skipped}, oracle hit ratio {oracle:.4}; {} workers x {} ranks x {} blocks, rate x {:.3}, utilisation {}\n",
        trace.file,
        trace.requests,
        settings.workers,
        settings.ranks,
        settings.blocks_per_worker / settings.ranks.max(1),
        settings.rate_scale,
        number(settings.utilisation, 3),
    )
}

/// A number, or a dash where there is none.
pub(super) fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}
