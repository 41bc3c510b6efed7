//! The figures as a table for people.

use super::report::Report;
use std::fmt::Write;
use switchtower_simulation::{Played, PolicyResult};

/// A figure, and how it is shown.
pub(super) struct Column {
    pub(super) name: &'static str,
    value: fn(&PolicyResult) -> Option<f64>,
    decimals: usize,
    better: Better,
}

/// Which of two figures is the better one.
#[derive(Clone, Copy)]
enum Better {
    Higher,
    Lower,
}

const fn column(
    name: &'static str,
    value: fn(&PolicyResult) -> Option<f64>,
    decimals: usize,
    better: Better,
) -> Column {
    Column { name, value, decimals, better }
}

/// The columns behind the policy's name.
pub(super) const COLUMNS: &[Column] = &[
    column("hit", |result| Some(result.hit_ratio), 3, Better::Higher),
    column("of oracle", |result| result.hit_of_oracle, 3, Better::Higher),
    column("imbalance", |result| result.imbalance, 3, Better::Lower),
    column("ttft mean", |result| result.ttft_ms.mean, 0, Better::Lower),
    column("p50", |result| result.ttft_ms.p50, 0, Better::Lower),
    column("p90", |result| result.ttft_ms.p90, 0, Better::Lower),
    column("p99", |result| result.ttft_ms.p99, 0, Better::Lower),
    column("e2e mean", |result| result.e2e_ms.mean, 0, Better::Lower),
    column("p99", |result| result.e2e_ms.p99, 0, Better::Lower),
    column("wait mean", |result| result.queue_wait_ms.mean, 0, Better::Lower),
    column("rejected", |result| Some(result.rejected as f64), 0, Better::Lower),
];

impl Column {
    /// The figure as it is shown; a dash where there is none.
    pub(super) fn cell(&self, result: &PolicyResult) -> String {
        number((self.value)(result), self.decimals)
    }

    /// How the best figure of all policies is shown, if they differ.
    pub(super) fn best(&self, played: &[Played]) -> Option<String> {
        let values = || played.iter().filter_map(|played| (self.value)(&played.result));
        let (least, most) = (values().min_by(f64::total_cmp)?, values().max_by(f64::total_cmp)?);
        let best = match self.better {
            Better::Higher => most,
            Better::Lower => least,
        };
        (least < most).then(|| number(Some(best), self.decimals))
    }
}

/// A headline and one line per policy. Times are in milliseconds.
pub(super) fn table(report: &Report<'_>) -> String {
    let names = COLUMNS.iter().map(|column| column.name.to_owned());
    let header: Vec<String> = std::iter::once("policy".to_owned()).chain(names).collect();
    let rows = report.played.iter().map(|Played { result, .. }| {
        let cells = COLUMNS.iter().map(|column| column.cell(result));
        std::iter::once(result.policy.clone()).chain(cells).collect()
    });
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=COLUMNS.len()).map(width).collect();
    let mut text = headline(report) + "\n";
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
        "{}: {} requests{skipped}, oracle's hit ratio {oracle:.4}; {} × {} rows of {} blocks, rate × {:.3}, utilisation {}",
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
fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}
