//! Distributions as curves: which share of the requests was that fast. Time is on a logarithmic axis.

use super::svg::{colour, dashes, escaped, key, time};
use crate::replay::report::Report;
use std::fmt::Write;
use switchtower_simulation::{Played, Record};

const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 48.0;
const BOTTOM: f64 = 28.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = WIDTH - 24.0;

/// Points of one curve.
const STEPS: usize = 250;

/// A logarithmic axis from `from_ms` to `to_ms`, both powers of ten.
struct Axis {
    from_ms: f64,
    to_ms: f64,
}

impl Axis {
    /// The axis that holds all of `curves`.
    fn around(curves: &[Vec<f64>]) -> Self {
        let all = || curves.iter().flatten().copied().filter(|ms| *ms > 0.0);
        let (mut from_ms, mut to_ms) = (1.0, 10.0);
        let least = all().fold(f64::INFINITY, f64::min);
        let most = all().fold(0.0, f64::max);
        while from_ms * 10.0 <= least && from_ms < 1e12 {
            from_ms *= 10.0;
        }
        while to_ms < most || to_ms <= from_ms {
            to_ms *= 10.0;
        }
        Self { from_ms, to_ms }
    }

    fn x(&self, ms: f64) -> f64 {
        let share = (ms.max(self.from_ms) / self.from_ms).ln() / (self.to_ms / self.from_ms).ln();
        LEFT + share * (RIGHT - LEFT)
    }

    /// 1, 2 and 5 in every decade, or only 1 where there are many.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let decades = std::iter::successors(Some(self.from_ms), |ms| Some(ms * 10.0));
        let (to_ms, wide) = (self.to_ms, self.to_ms / self.from_ms > 2e4);
        let ticks = decades.flat_map(|ms| [ms, ms * 2.0, ms * 5.0]).enumerate();
        let ticks = ticks.filter(move |(place, _)| !wide || place.is_multiple_of(3)).map(|(_, ms)| ms);
        ticks.take_while(move |ms| *ms <= to_ms)
    }
}

fn y(share: f64) -> f64 {
    TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM)
}

/// The times to first token of all policies.
pub(super) fn ttft(report: &Report<'_>) -> String {
    let curves: Vec<Vec<f64>> = report.played.iter().map(quantiles).collect();
    let axis = Axis::around(&curves);
    let mut html = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"Time to first token\">\n{}",
        grid(&axis)
    );
    for (place, (curve, played)) in curves.iter().zip(report.played).enumerate() {
        // Writing into a string does not fail.
        let _ = writeln!(
            html,
            "<path class=\"curve\" d=\"{}\" stroke=\"{}\" stroke-dasharray=\"{}\"><title>{}</title></path>",
            path(&axis, curve),
            colour(place),
            dashes(place),
            escaped(&played.result.policy)
        );
    }
    html.push_str("</svg>\n<div class=\"legend\">");
    for (place, played) in report.played.iter().enumerate() {
        let _ = write!(html, "<span>{}{}</span>", key(place), escaped(&played.result.policy));
    }
    html + "</div>\n"
}

/// Milliseconds at even shares from 0 to 1.
fn quantiles(played: &Played) -> Vec<f64> {
    let times = played.records.iter().filter_map(|record| match record {
        Record::Served(served) => Some(served.ttft_us),
        Record::Rejected(_) => None,
    });
    let mut times_us: Vec<u64> = times.collect();
    times_us.sort_unstable();
    let last = times_us.len().saturating_sub(1);
    let at = |step: usize| times_us.get(last * step / STEPS).map(|us| *us as f64 / 1_000.0);
    (0..=STEPS).map_while(at).collect()
}

fn path(axis: &Axis, curve: &[f64]) -> String {
    let mut path = String::new();
    for (step, ms) in curve.iter().enumerate() {
        let command = if step == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{:.1} {:.1}", axis.x(*ms), y(step as f64 / STEPS as f64));
    }
    path
}

fn grid(axis: &Axis) -> String {
    let mut grid = String::new();
    let floor = y(0.0);
    for percent in [0, 25, 50, 75, 90, 100] {
        let y = y(f64::from(percent) / 100.0);
        let _ = writeln!(
            grid,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/><text class=\"faint\" x=\"{}\" y=\"{:.1}\" \
             text-anchor=\"end\">{percent} %</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for ms in axis.ticks() {
        let x = axis.x(ms);
        let _ = writeln!(
            grid,
            "<path class=\"grid\" d=\"M{x:.1} {TOP}V{floor}\"/><text class=\"faint\" x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - 8.0,
            time(ms)
        );
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_holds_every_time() {
        for times in [vec![], vec![0.0], vec![0.02, 3.0], vec![150.0, 90_000.0], vec![1e9]] {
            let axis = Axis::around(std::slice::from_ref(&times));
            assert!((4..=16).contains(&axis.ticks().count()), "{times:?}");
            assert!(times.iter().all(|ms| (LEFT..=WIDTH).contains(&axis.x(*ms))), "{times:?}");
        }
    }
}
