//! `switchtower replay`: policies on a recorded trace. Reads the file, plays the trace once per policy, writes what was
//! asked for. What happens in between is `switchtower-simulation`'s; nothing here has a say in it.

mod arguments;
mod page;
mod play;
mod progress;
mod report;
mod table;

pub(crate) use arguments::ReplayArguments;

use crate::failure::Failure;
use report::Report;
use std::{
    io::{Read, Write},
    time::Instant,
};
use switchtower_policies::Catalogue;
use switchtower_simulation::{
    FleetShape, OfferedWork,
    trace::{ReadOptions, Trace},
};

/// The largest trace that is read.
const TRACE_BYTES_MAX: u64 = 1 << 30;

/// Does all of it. Figures go to stdout, the bar and the time it took to stderr.
pub(crate) fn replay(arguments: &ReplayArguments, catalogue: &Catalogue) -> Result<(), Failure> {
    let started = Instant::now();
    let policies = play::choose(arguments, catalogue)?;
    let settings = play::settings(arguments)?;
    let recorded = read(arguments)?;
    let rate_scale = rate_scale(arguments, &recorded, settings.fleet)?;
    let report_trace = report::TraceFacts::new(&arguments.trace, &recorded);
    let trace = recorded.at_rate(rate_scale);
    let played = play::play(&trace, &settings, &policies)?;

    let facts = report::SettingFacts::new(arguments, &settings, &trace, rate_scale);
    let report = Report { trace: report_trace, settings: facts, played: &played };
    write(arguments, &report)?;
    play::warn_of_failures(&played);
    let (requests, seconds) = (trace.requests.len(), started.elapsed().as_secs_f64());
    eprintln!("switchtower: {requests} requests, policies: {}, {seconds:.1} s", policies.len());
    Ok(())
}

fn read(arguments: &ReplayArguments) -> Result<Trace, Failure> {
    let path = arguments.trace.display();
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&arguments.trace);
    file.and_then(|file| file.take(TRACE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::data(format!("cannot read the trace {path}: {error}")))?;
    if bytes.len() as u64 > TRACE_BYTES_MAX {
        return Err(Failure::data(format!("{path}: a trace has at most {TRACE_BYTES_MAX} bytes; cut it")));
    }
    let options =
        ReadOptions { format: arguments.format, limit: arguments.limit, skip_bad: arguments.skip_bad };
    Trace::read(&bytes, options).map_err(|error| Failure::data(format!("{path}: {error}")))
}

fn rate_scale(arguments: &ReplayArguments, trace: &Trace, fleet: FleetShape) -> Result<f64, Failure> {
    let Some(utilisation) = arguments.utilisation else {
        return Ok(arguments.rate_scale.unwrap_or(1.0));
    };
    let work = OfferedWork::of(trace, fleet);
    let path = arguments.trace.display();
    work.rate_for(utilisation, trace, fleet).map_err(|error| Failure::data(format!("{path}: {error}")))
}

fn write(arguments: &ReplayArguments, report: &Report<'_>) -> Result<(), Failure> {
    if let Some(path) = &arguments.html {
        let written = std::fs::write(path, page::page(report));
        written.map_err(|error| Failure::start(format!("cannot write {}: {error}", path.display())))?;
    }
    let text = if arguments.json { report.json().map_err(Failure::start)? } else { table::table(report) };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Nobody reads the figures: that is no failure of ours.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::start(format!("cannot write the figures: {error}"))),
    }
}
