//! `switchtower ctl`: asks a router's admin address and prints the answer, as a table or as the JSON that came. Knows the
//! paths, not the fields: what a router shows is the router's business.

mod ask;
mod questions;
mod table;

pub(crate) use questions::CtlArguments;

use crate::failure::Failure;
use std::io::Write;

/// Asks and prints.
pub(crate) async fn ctl(arguments: CtlArguments) -> Result<(), Failure> {
    let question = arguments.question.as_request();
    let answer = ask::ask(&arguments.url, &question).await?;
    let text = if arguments.json {
        let text = serde_json::to_string_pretty(&answer).map_err(Failure::start)?;
        format!("{text}\n")
    } else {
        table::table(question.name, &answer)
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Nobody reads it: that is no failure of ours.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::start(format!("cannot write the answer: {error}"))),
    }
}
