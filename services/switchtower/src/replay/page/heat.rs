//! Load of every row over time: a line per row, darker where there is more. All policies share the scales, so that they
//! can be compared; beyond a number of rows, neighbours are drawn together.

use super::svg::{escaped, short};
use crate::replay::report::Report;
use std::fmt::Write;
use switchtower_simulation::{LoadSeries, Played};

const WIDTH: f64 = 500.0;
const LEFT: f64 = 40.0;
const LEGEND: f64 = 44.0;

/// Lines of one chart.
const LINES_MAX: usize = 64;

/// Shades between nothing and the largest value.
const SHADES: usize = 15;

/// What the policies did after this many times the trace's own length is cut off: it is the rest of an overload.
const LENGTHS_SHOWN: f64 = 1.25;

/// Samples over which a rate is taken.
const SAMPLES_TOGETHER: usize = 10;

/// Values of one policy: for each line, one per moment.
struct Chart<'a> {
    policy: &'a str,
    series: &'a LoadSeries,
    lines: Vec<Vec<f64>>,
}

/// Requests in each engine.
pub(super) fn requests(report: &Report<'_>) -> String {
    draw_all(report, |series, moment, row| f64::from(series.samples[moment][row].requests))
}

/// Prompt tokens computed per second, in the last few samples: a long prompt is not work of the moment at which it ends.
pub(super) fn uncached_tokens(report: &Report<'_>) -> String {
    draw_all(report, |series, moment, row| {
        let then = moment.saturating_sub(SAMPLES_TOGETHER);
        let tokens = |moment: usize| series.samples[moment][row].uncached_tokens;
        let span_us = series.interval_us * (moment - then).max(1) as u64;
        (tokens(moment) - tokens(then)) as f64 / (span_us as f64 / 1e6)
    })
}

fn draw_all(report: &Report<'_>, value: fn(&LoadSeries, usize, usize) -> f64) -> String {
    let shown_us = report.trace.span_ms / report.settings.rate_scale * 1_000.0 * LENGTHS_SHOWN;
    let charts: Vec<Chart<'_>> = report.played.iter().map(|played| chart(played, shown_us, value)).collect();
    let values = || charts.iter().flat_map(|chart| chart.lines.iter().flatten());
    let most = values().copied().fold(0.0, f64::max);
    let moments = |chart: &Chart<'_>| chart.lines.first().map_or(0, Vec::len) as f64;
    let end_us =
        charts.iter().map(|chart| moments(chart) * chart.series.interval_us as f64).fold(1.0, f64::max);
    let drawn: String = charts.iter().map(|chart| draw(chart, most, end_us)).collect();
    format!("{}<div class=\"charts heats\">\n{drawn}</div>\n", legend(most))
}

fn chart(played: &Played, shown_us: f64, value: fn(&LoadSeries, usize, usize) -> f64) -> Chart<'_> {
    let series = &played.series;
    let shown = (shown_us / series.interval_us as f64).ceil().max(1.0) as usize;
    let moments = series.samples.len().min(shown);
    let together = series.rows.len().div_ceil(LINES_MAX).max(1);
    let rows: Vec<usize> = (0..series.rows.len()).collect();
    let line = |rows: &[usize]| {
        let mean =
            |moment| rows.iter().map(|row| value(series, moment, *row)).sum::<f64>() / rows.len() as f64;
        (0..moments).map(mean).collect()
    };
    Chart { policy: &played.result.policy, series, lines: rows.chunks(together).map(line).collect() }
}

/// The shade of a value: the root spreads small values, which are most.
fn shade(value: f64, most: f64) -> usize {
    if most > 0.0 { ((value / most).sqrt() * SHADES as f64).ceil() as usize } else { 0 }
}

fn draw(chart: &Chart<'_>, most: f64, end_us: f64) -> String {
    let line_height = (160.0 / chart.lines.len().max(1) as f64).clamp(3.0, 10.0);
    let height = line_height * chart.lines.len() as f64;
    let mut html = format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.1}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"{1}\">\n\
         <text x=\"{LEFT}\" y=\"14\" font-weight=\"600\">{1}</text>\n\
         <rect class=\"grid\" x=\"{LEFT}\" y=\"22\" width=\"{2}\" height=\"{height:.1}\"/>\n",
        height + LEGEND,
        escaped(chart.policy),
        WIDTH - LEFT
    );
    let width = chart.series.interval_us as f64 / end_us * (WIDTH - LEFT);
    for (shade, path) in paths(chart, most, width, line_height).iter().enumerate().skip(1) {
        if !path.is_empty() {
            // Writing into a string does not fail.
            let opacity = shade as f64 / SHADES as f64;
            let _ = writeln!(html, "<path class=\"heat\" fill-opacity=\"{opacity:.2}\" d=\"{path}\"/>");
        }
    }
    html + &labels(chart, height, end_us) + "</svg>\n"
}

/// One path for all cells of a shade; neighbours in time are one piece.
fn paths(chart: &Chart<'_>, most: f64, width: f64, height: f64) -> Vec<String> {
    let mut paths = vec![String::new(); SHADES + 1];
    for (line, values) in chart.lines.iter().enumerate() {
        let shades: Vec<usize> = values.iter().map(|value| shade(*value, most).min(SHADES)).collect();
        // Edges are absolute, so that rounding leaves no gap between neighbours.
        let (top, bottom) = (22.0 + line as f64 * height, 22.0 + (line + 1) as f64 * height);
        let x = |moment: usize| LEFT + moment as f64 * width;
        let mut moment = 0;
        for run in shades.chunk_by(|a, b| a == b) {
            let (left, right) = (x(moment), x(moment + run.len()));
            let _ = write!(paths[run[0]], "M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}z");
            moment += run.len();
        }
    }
    paths
}

/// The first and the last row, and the time.
fn labels(chart: &Chart<'_>, height: f64, end_us: f64) -> String {
    let rows = &chart.series.rows;
    let mut labels = String::new();
    let ends = [(rows.first(), 31.0), (rows.last(), 22.0 + height)];
    for (row, y) in ends.into_iter().take(rows.len()) {
        let row = row.map(ToString::to_string).unwrap_or_default();
        let _ = write!(
            labels,
            "<text class=\"faint\" x=\"{}\" y=\"{y:.1}\" text-anchor=\"end\">{row}</text>",
            LEFT - 5.0
        );
    }
    let (floor, end_s) = (height + LEGEND - 6.0, end_us / 1e6);
    let _ = writeln!(
        labels,
        "<text class=\"faint\" x=\"{LEFT}\" y=\"{floor:.1}\">0 s</text>\
         <text class=\"faint\" x=\"{WIDTH}\" y=\"{floor:.1}\" text-anchor=\"end\">{} s</text>",
        short(end_s)
    );
    labels
}

/// The shades and what they stand for.
fn legend(most: f64) -> String {
    let mut html = "<svg viewBox=\"0 0 360 20\" width=\"360\" role=\"img\" aria-label=\"Scale\">".to_owned();
    for shade in 1..=SHADES {
        let (x, opacity) = (20.0 + shade as f64 * 16.0, shade as f64 / SHADES as f64);
        let _ = write!(
            html,
            "<rect class=\"heat\" x=\"{x}\" y=\"4\" width=\"16\" height=\"12\" fill-opacity=\"{opacity:.2}\"/>"
        );
    }
    let _ = writeln!(
        html,
        "<text class=\"faint\" x=\"30\" y=\"15\" text-anchor=\"end\">0</text><text class=\"faint\" x=\"284\" y=\"15\">{}</text></svg>",
        short(most)
    );
    html
}
