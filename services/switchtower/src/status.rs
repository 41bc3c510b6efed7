//! What the command says on stdout: its greeting, and one line a second while requests flow (requests, hit ratio, load per
//! worker). Nobody has to listen: a stdout that is closed or full ends the talk, never the router. Called by `up`.

use std::{collections::BTreeMap, fmt::Write as _, io::Write as _, time::Duration};
use switchtower_frontend::BoundFrontend;
use switchtower_selection::{PartitionLoads, SelectionHandle, SelectionTotals};

const INTERVAL: Duration = Duration::from_secs(1);

/// Workers shown one by one; of more, only the least and the most loaded are.
const WORKERS_SHOWN: usize = 16;

/// Writes one line to stdout.
///
/// # Errors
/// Nobody takes it.
pub(crate) fn say(line: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")
}

/// Where a router listens: what scripts that ask for port 0 read.
pub(crate) fn listening(frontend: &BoundFrontend) -> String {
    let http = frontend.local_addr();
    let admin = frontend.admin_addr().map(|admin| format!(", admin API on http://{admin}"));
    format!("listening on http://{http}{}", admin.unwrap_or_default())
}

/// Prints until it is dropped, or until nobody reads any more.
pub(crate) async fn follow(selection: SelectionHandle) {
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut before = (SelectionTotals::default(), 0);
    loop {
        ticks.tick().await;
        let (totals, loads) = (selection.totals(), selection.loads().await);
        let active = loads.iter().map(|load| load.reservations + load.waiting).sum::<usize>();
        if (totals, active) != before && say(&line(&before.0, &totals, &loads)).is_err() {
            return;
        }
        before = (totals, active);
    }
}

fn line(before: &SelectionTotals, now: &SelectionTotals, loads: &[PartitionLoads]) -> String {
    let requests = now.selections + now.rejections;
    let new = requests - before.selections - before.rejections;
    let mut line =
        format!("requests {requests} (+{new})  hit ratio {}  ", ratio(now.cached_tokens, now.prompt_tokens));
    let waiting: usize = loads.iter().map(|load| load.waiting).sum();
    if waiting > 0 || now.rejections > 0 {
        // Writing into a string does not fail.
        let _ = write!(line, "waiting {waiting}  rejected {}  ", now.rejections);
    }
    line + "active " + &active(loads)
}

fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.0} %", part as f64 / whole as f64 * 100.0) }
}

fn active(loads: &[PartitionLoads]) -> String {
    let mut workers = BTreeMap::<u64, u64>::new();
    for row in loads.iter().flat_map(|load| &load.rows) {
        *workers.entry(row.info.row.worker.0).or_default() += row.load.active_requests;
    }
    if workers.len() > WORKERS_SHOWN {
        let (least, most) = (workers.values().min(), workers.values().max());
        return format!("{} to {} on {} workers", least.unwrap_or(&0), most.unwrap_or(&0), workers.len());
    }
    let shown: Vec<String> = workers.iter().map(|(worker, active)| format!("{worker}:{active}")).collect();
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_many_and_how_well() {
        let before = SelectionTotals { selections: 1, ..SelectionTotals::default() };
        let now = SelectionTotals { selections: 3, rejections: 1, prompt_tokens: 200, cached_tokens: 50 };
        let said = line(&before, &now, &[]);
        assert!(said.starts_with("requests 4 (+3)  hit ratio 25 %  waiting 0  rejected 1  active"), "{said}");
        assert!(line(&now, &now, &[]).contains("(+0)"));
        assert!(line(&Default::default(), &Default::default(), &[]).contains("hit ratio -"));
    }
}
