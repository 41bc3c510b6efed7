//! Why the command ends without success: one line on stderr and an exit code.

use std::{fmt::Display, io::Write, process::ExitCode};
use switchtower_frontend::FrontendError;
use switchtower_selection::BuildError;

/// Wrong configuration or usage (sysexits' EX_USAGE).
const USAGE: u8 = 64;

/// Wrong data in a file (sysexits' EX_DATAERR).
const DATA: u8 = 65;

/// The configuration is fine, but the start failed.
const START: u8 = 1;

/// The end of a command that did not do what it was told.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Help and version, which are no failures, and arguments that do not parse.
    Arguments(clap::Error),
    /// One line and an exit code.
    Line(String, u8),
}

impl Failure {
    pub(crate) fn configuration(error: impl Display) -> Self {
        Self::Line(error.to_string(), USAGE)
    }

    /// What a file holds cannot be used, or there is no such file.
    pub(crate) fn data(error: impl Display) -> Self {
        Self::Line(error.to_string(), DATA)
    }

    pub(crate) fn start(error: impl Display) -> Self {
        Self::Line(error.to_string(), START)
    }

    /// Says it and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Arguments(error) if !error.use_stderr() => {
                // Nobody reads the help: that is no failure of ours.
                drop(error.print());
                ExitCode::SUCCESS
            }
            Self::Arguments(error) => say(&usage_line(&error), USAGE),
            Self::Line(line, code) => say(&line, code),
        }
    }
}

fn say(line: &str, code: u8) -> ExitCode {
    // Where nobody reads stderr the exit code still says it.
    let _ = writeln!(std::io::stderr(), "switchtower: {line}");
    ExitCode::from(code)
}

/// The parser's message without its usage text, in one line. What it lists over several lines (missing arguments,
/// possible values) is joined.
fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = text.split("\nUsage:").next().unwrap_or(&text).trim();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let joined = lines.join(" ").replace(" tip: ", "; ");
    let hint = "see `switchtower --help`";
    joined
        .split("For more information")
        .next()
        .map_or(hint.to_owned(), |said| format!("{}; {hint}", said.trim()))
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Arguments(error)
    }
}

impl From<FrontendError> for Failure {
    fn from(error: FrontendError) -> Self {
        match error {
            FrontendError::Config(_)
            | FrontendError::Model(_)
            | FrontendError::Selection(BuildError::Config(_) | BuildError::Policy(_)) => {
                Self::configuration(error)
            }
            _ => Self::start(error),
        }
    }
}
