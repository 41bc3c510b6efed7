//! Logs: one subscriber per process, to stderr, so that stdout stays the command's own output.
//!
//! Must not read the environment (the filter comes from the configuration) and must never be given prompt text, tokens
//! or credentials. Called once, by `main`.

use std::io::IsTerminal;
use tracing::Metadata;
use tracing_subscriber::{
    EnvFilter, Registry,
    filter::{FilterFn, filter_fn},
    layer::{Layered, SubscriberExt},
    util::SubscriberInitExt,
};

/// Libraries whose own logs spell out what they are given: text character by character, messages byte by byte. They are
/// never logged, whatever the filter says: prompt text reaches no log.
const TELLTALES: [&str; 2] = ["tokenizers", "async_nats"];

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// One readable line per event.
    Human,
    /// One JSON object per line.
    Json,
}

/// Telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not one.
    #[error(
        "log filter `{filter}` is not valid ({reason}): write for example `info` or `info,switchtower_selection=debug`"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody else set a subscriber before.
    #[error("a log subscriber is already installed: initialise telemetry once, in main")]
    AlreadyInstalled,
}

/// Installs the process's log subscriber. `filter` has the syntax of `tracing` directives, e.g. `info,hyper=warn`.
///
/// # Errors
/// A filter that does not parse, or a second call.
pub fn init(filter: &str, format: LogFormat) -> Result<(), TelemetryError> {
    let filter = parse(filter)?;
    let json = wants_json(format, std::io::stderr().is_terminal());
    let registry = filtered(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let installed = if json {
        registry.with(lines.json().flatten_event(true)).try_init()
    } else {
        registry.with(lines.with_target(true)).try_init()
    };
    installed.map_err(|_| TelemetryError::AlreadyInstalled)
}

/// What passes the filter, except what no filter may let pass. Asked for each event, so that it holds for what libraries
/// say through the `log` crate, too.
fn filtered(filter: EnvFilter) -> Layered<FilterFn, Layered<EnvFilter, Registry>> {
    tracing_subscriber::registry().with(filter).with(filter_fn(is_discreet as fn(&Metadata<'_>) -> bool))
}

fn is_discreet(metadata: &Metadata<'_>) -> bool {
    let root = metadata.target().split("::").next().unwrap_or_default();
    !TELLTALES.contains(&root)
}

fn parse(filter: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(filter)
        .map_err(|error| TelemetryError::Filter { filter: filter.to_owned(), reason: error.to_string() })
}

const fn wants_json(format: LogFormat, terminal: bool) -> bool {
    match format {
        LogFormat::Auto => !terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_for_machines_unless_asked_otherwise() {
        assert!(wants_json(LogFormat::Auto, false) && !wants_json(LogFormat::Auto, true));
        assert!(wants_json(LogFormat::Json, true) && !wants_json(LogFormat::Human, false));
    }

    #[test]
    fn a_bad_filter_is_named_and_an_example_given() {
        let error = parse("info,switchtower=loud").unwrap_err().to_string();
        assert!(
            error.contains("`info,switchtower=loud`") && error.contains("info,switchtower_selection=debug"),
            "{error}"
        );
        assert!(parse("info,switchtower_selection=debug").is_ok());
    }

    #[test]
    fn invariant_9_no_filter_lets_a_library_spell_out_prompts() {
        for filter in ["trace", "tokenizers=trace", "tokenizers::tokenizer::normalizer=trace"] {
            let subscriber = filtered(parse(filter).unwrap());
            tracing::subscriber::with_default(subscriber, || {
                assert!(
                    !tracing::enabled!(target: "tokenizers::tokenizer::normalizer", tracing::Level::TRACE)
                );
                assert!(!tracing::enabled!(target: "tokenizers", tracing::Level::ERROR));
                assert!(!tracing::enabled!(target: "async_nats::connection", tracing::Level::TRACE));
            });
        }
        tracing::subscriber::with_default(filtered(parse("trace").unwrap()), || {
            assert!(tracing::enabled!(target: "switchtower_models::tokenizer", tracing::Level::TRACE));
        });
    }

    #[test]
    fn a_second_subscriber_is_refused() {
        // Another test of this process may have come first; the second call is refused either way.
        let _ = init("off", LogFormat::Json);
        assert!(matches!(init("off", LogFormat::Human), Err(TelemetryError::AlreadyInstalled)));
    }
}
