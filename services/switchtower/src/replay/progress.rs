//! A bar on the terminal while replays run. Nothing is shown where stderr is a file or a pipe.

use std::{
    io::{IsTerminal, Write},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Characters of the bar.
const WIDTH: usize = 40;

/// Counts to a total from several threads.
pub(super) struct ProgressBar {
    total: usize,
    done: AtomicUsize,
    /// The last percentage drawn, and one more, so that 0 is drawn too.
    drawn: AtomicUsize,
    visible: bool,
}

impl ProgressBar {
    /// A bar for `total` steps.
    pub(super) fn new(total: usize) -> Self {
        let visible = std::io::stderr().is_terminal();
        let bar = Self { total, done: AtomicUsize::new(0), drawn: AtomicUsize::new(0), visible };
        bar.add(0);
        bar
    }

    /// So many more steps are done.
    pub(super) fn add(&self, steps: usize) {
        let done = self.done.fetch_add(steps, Ordering::Relaxed) + steps;
        let percent = done * 100 / self.total.max(1);
        if self.visible && self.drawn.fetch_max(percent + 1, Ordering::Relaxed) <= percent {
            // A bar that cannot be drawn is not worth a word.
            let _ = write!(std::io::stderr(), "\r{}", line(percent, done, self.total));
        }
    }

    /// Takes the bar off the screen.
    pub(super) fn finish(&self) {
        if self.visible {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(percent: usize, done: usize, total: usize) -> String {
    let filled = WIDTH * percent.min(100) / 100;
    format!("[{}{}] {percent:3} %  {done}/{total} requests", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_from_the_left() {
        let half = line(50, 5, 10);
        assert!(half.contains(&format!("[{}{}]", "#".repeat(20), ".".repeat(20))), "{half}");
        assert!(half.ends_with(" 50 %  5/10 requests"), "{half}");
        assert_eq!(line(0, 0, 10).matches('#').count(), 0);
        assert_eq!(line(100, 10, 10).matches('#').count(), WIDTH);
    }
}
