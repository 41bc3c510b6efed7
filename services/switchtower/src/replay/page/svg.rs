//! What the charts share: text that is safe in a page, the look of each policy, numbers short enough for an axis.

/// Colours that differ for the colour-blind too, on light and on dark (after Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a6ff0"];

/// The dashes of the first, second … policies that have one colour.
const DASHES: [&str; 3] = ["none", "7 4", "2 3"];

/// `text` as it may stand in HTML and in attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(character),
        }
    }
    safe
}

/// The colour of the policy at `place`.
pub(super) fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// The dashes of the policy at `place`.
pub(super) fn dashes(place: usize) -> &'static str {
    DASHES[place / COLOURS.len() % DASHES.len()]
}

/// A piece of the policy's curve, for tables and legends.
pub(super) fn key(place: usize) -> String {
    format!(
        "<svg class=\"key\" width=\"24\" height=\"8\" aria-hidden=\"true\"><path class=\"curve\" d=\"M0 4h24\" \
         stroke=\"{}\" stroke-dasharray=\"{}\"/></svg>",
        colour(place),
        dashes(place)
    )
}

/// A time in milliseconds with its unit.
pub(super) fn time(ms: f64) -> String {
    if ms < 1_000.0 { format!("{ms} ms") } else { format!("{} s", ms / 1_000.0) }
}

/// A number in a few characters.
pub(super) fn short(value: f64) -> String {
    match value {
        1e9.. => format!("{:.1} G", value / 1e9),
        1e6.. => format!("{:.1} M", value / 1e6),
        1e4.. => format!("{:.1} k", value / 1e3),
        1e2.. => format!("{value:.0}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_an_axis() {
        let shown = [0.0, 0.3512, 1.0456, 734.74, 5_346.0, 45_875.0, 3e6, 7.25e9].map(short);
        assert_eq!(shown, ["0.000", "0.351", "1.05", "735", "5346", "45.9 k", "3.0 M", "7.2 G"]);
        assert_eq!([time(50.0), time(1_000.0), time(20_000.0)], ["50 ms", "1 s", "20 s"]);
    }

    #[test]
    fn text_cannot_end_what_it_stands_in() {
        assert_eq!(escaped("<a b='c' d=\"e\">&"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;");
    }

    #[test]
    fn many_policies_look_different() {
        let looks: std::collections::HashSet<_> =
            (0..21).map(|place| (colour(place), dashes(place))).collect();
        assert_eq!(looks.len(), 21);
    }
}
