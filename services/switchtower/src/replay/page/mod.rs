//! The report as one page to look at: figures, distributions, hits, load of every row over time, for all policies that were
//! played. It is one file that loads nothing: styles and charts (SVG) are inside.

mod bars;
mod curves;
mod heat;
mod svg;

use super::{
    report::Report,
    table::{COLUMNS, headline},
};
use std::fmt::Write;
use svg::escaped;

const STYLE: &str = include_str!("style.css");

/// The page.
pub(super) fn page(report: &Report<'_>) -> String {
    let title = format!("Replay of {}", escaped(&report.trace.file));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{}</p>\n",
        escaped(&headline(report))
    );
    let sections = [
        ("Figures", "Times in milliseconds. The best of each column is bold.", figures(report)),
        (
            "Time to first token",
            "Share of requests whose first token came within the time; further left is better.",
            curves::ttft(report),
        ),
        ("Side by side", "", bars::bars(report)),
        (
            "Requests on every row over time",
            "One line per row (worker/rank; of many rows, the mean of neighbours). Darker is more requests in the engine, \
             running and waiting; all charts have one scale.",
            heat::requests(report),
        ),
        (
            "Prefill on every row over time",
            "Darker is more prompt tokens per second that had to be computed, because the cache did not have them.",
            heat::uncached_tokens(report),
        ),
    ];
    for (heading, says, body) in sections {
        // Writing into a string does not fail.
        let _ = write!(page, "<section>\n<h2>{heading}</h2>\n<p>{says}</p>\n{body}</section>\n");
    }
    page + "</body>\n</html>\n"
}

/// The table of all figures.
fn figures(report: &Report<'_>) -> String {
    let mut html = "<div class=\"wide\"><table>\n<tr><th>policy</th>".to_owned();
    for column in COLUMNS {
        // Writing into a string does not fail.
        let _ = write!(html, "<th>{}</th>", column.name);
    }
    html.push_str("</tr>\n");
    let best: Vec<Option<String>> = COLUMNS.iter().map(|column| column.best(report.played)).collect();
    for (place, played) in report.played.iter().enumerate() {
        let _ = write!(html, "<tr><td>{}{}</td>", svg::key(place), escaped(&played.result.policy));
        for (column, best) in COLUMNS.iter().zip(&best) {
            let cell = column.cell(&played.result);
            let cell = if best.as_ref() == Some(&cell) { format!("<b>{cell}</b>") } else { cell };
            let _ = write!(html, "<td>{cell}</td>");
        }
        html.push_str("</tr>\n");
    }
    html + "</table></div>\n"
}
