//! Takes the measurements of both sides in turns, and prints one line per comparison.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Prints the lines as they come.
pub(crate) struct Table;

/// Which way a figure is better.
#[derive(Clone, Copy)]
pub(crate) enum Better {
    Lower,
    Higher,
}

impl Table {
    pub(crate) fn start() -> Self {
        println!("{:<66} {:>12} {:>12} {:>8}", "what", "theirs", "ours", "ratio");
        Self
    }

    /// One line; the ratio is how many times better ours is.
    pub(crate) fn line(&self, what: &str, unit: &str, better: Better, [theirs, ours]: [f64; 2]) {
        let ratio = match better {
            Better::Lower => theirs / ours,
            Better::Higher => ours / theirs,
        };
        println!("{:<66} {theirs:>12.3} {ours:>12.3} {ratio:>7.1}x", format!("{what}, {unit}"));
    }
}

/// The medians of both sides. Each round runs both, and they take turns at being first.
pub(crate) fn interleaved(
    rounds: usize,
    mut theirs: impl FnMut() -> f64,
    mut ours: impl FnMut() -> f64,
) -> [f64; 2] {
    // Warm caches, pages and branch predictors.
    (theirs(), ours());
    let (mut all_theirs, mut all_ours) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            all_theirs.push(theirs());
            all_ours.push(ours());
        } else {
            all_ours.push(ours());
            all_theirs.push(theirs());
        }
    }
    [median(all_theirs), median(all_ours)]
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds per call of `work`, which is called `times` times.
pub(crate) fn nanoseconds_each(times: usize, mut work: impl FnMut(usize)) -> f64 {
    let start = CpuTime::now();
    for time in 0..times {
        work(time);
    }
    start.elapsed().as_nanos() as f64 / times as f64
}

/// A moment on the clock that runs only while this process does: a busy machine makes rounds longer, not slower. Threads
/// add up, so one side's work counts wherever it is done.
pub(crate) struct CpuTime(Duration);

impl CpuTime {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        Self(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}
