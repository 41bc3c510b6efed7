//! From the bytes of a trace to its requests, line by line: guessing the format, naming what is wrong, leaving bad lines
//! out where that is asked for. What a line means is the format's business (`mooncake`, `azure`).

use super::{Trace, TraceFormat, TraceRequest, arrivals, azure::Columns, mooncake};
use std::num::NonZeroUsize;
use switchtower_ids::SequenceHash;

/// How to read a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// How it is written; guessed from its lines unless given.
    pub format: Option<TraceFormat>,
    /// Keep only so many requests, the first ones.
    pub limit: Option<NonZeroUsize>,
    /// Leave out bad lines and count them, instead of refusing the trace.
    pub skip_bad: bool,
}

/// Why a trace is refused. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Neither format fits.
    #[error(
        "cannot tell the trace's format: it is neither JSON lines nor a CSV with a header; name it with --format"
    )]
    UnknownFormat,
    /// A line is not what the format says.
    #[error("line {line} is malformed: {reason}; correct it, or leave bad lines out with --skip-bad")]
    Malformed {
        /// Which line.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A request before the one on the line before.
    #[error(
        "line {line} goes back in time, {back_us} µs before the line before it; sort the trace, or use --skip-bad"
    )]
    Backwards {
        /// Which line.
        line: usize,
        /// How far back.
        back_us: u64,
    },
    /// The prompt's length says another number of blocks than there are.
    #[error(
        "line {line} contradicts itself: {input_length} input tokens are {expected} blocks of {block}, hash_ids has {found}; \
         correct it, or use --skip-bad",
        block = super::BLOCK_TOKENS
    )]
    BlockCount {
        /// Which line.
        line: usize,
        /// The prompt's length.
        input_length: u32,
        /// Blocks that it has, the partial one included.
        expected: usize,
        /// Ids that are there.
        found: usize,
    },
    /// There is no request in it.
    #[error("the trace holds no request ({skipped} bad lines were left out); give another file")]
    Empty {
        /// Bad lines that were left out.
        skipped: u64,
    },
}

/// What a line says, before anything is done to its time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Microseconds from some fixed moment, the same for all lines.
    pub(super) at_us: u64,
    pub(super) input_length: u32,
    pub(super) output_length: u32,
    pub(super) blocks: Prefixes,
}

/// What a trace tells about a prompt's blocks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prefixes {
    /// One id for every block, the partial one included.
    Ids(Vec<u64>),
    /// Nothing: they are unlike all others.
    Unique,
}

/// The longest prompt or output, in tokens. Far beyond every model; keeps sums far from overflow.
pub(super) const TOKENS_MAX: u32 = 100_000_000;

impl Trace {
    /// Reads the trace in `bytes`.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line. With `skip_bad` bad lines are counted, and what is left is an unknown
    /// format, a header without the columns, and that no request is left.
    pub fn read(bytes: &[u8], options: ReadOptions) -> Result<Self, TraceError> {
        let mut lines = lines(bytes).peekable();
        if lines.peek().is_none() {
            return Err(TraceError::Empty { skipped: 0 });
        }
        let format = options.format.or_else(|| guess(bytes)).ok_or(TraceError::UnknownFormat)?;
        let columns = match format {
            TraceFormat::Mooncake => None,
            TraceFormat::Azure => lines.next().map(|(line, text)| Columns::find(line, text?)).transpose()?,
        };
        let mut reader = Reader { columns, requests: Vec::new(), last_us: 0, skipped: 0 };
        for (line, text) in lines {
            match text.and_then(|text| reader.take(line, text)) {
                Err(_) if options.skip_bad => reader.skipped += 1,
                outcome => outcome?,
            }
        }
        reader.finish(format, options.limit)
    }
}

/// The lines that are not blank, counted from 1; a line that is not UTF-8 is malformed.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, Result<&str, TraceError>)> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let lines = (1..).zip(bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
    lines.filter(|(_, text)| !text.is_empty()).map(|(line, text)| {
        let text = std::str::from_utf8(text);
        (line, text.map_err(|_| TraceError::Malformed { line, reason: "it is not UTF-8".to_owned() }))
    })
}

/// The format of the first line that looks like either.
fn guess(bytes: &[u8]) -> Option<TraceFormat> {
    lines(bytes).filter_map(|(_, text)| text.ok()).find_map(|text| {
        if text.starts_with('{') {
            Some(TraceFormat::Mooncake)
        } else {
            Columns::looks_like_a_header(text).then_some(TraceFormat::Azure)
        }
    })
}

/// Requests as they are read.
struct Reader {
    /// Of a CSV.
    columns: Option<Columns>,
    requests: Vec<(u64, TraceRequest)>,
    last_us: u64,
    skipped: u64,
}

impl Reader {
    fn take(&mut self, line: usize, text: &str) -> Result<(), TraceError> {
        let recorded = match &self.columns {
            Some(columns) => columns.parse(text),
            None => mooncake::parse(text),
        };
        let recorded = recorded.map_err(|reason| TraceError::Malformed { line, reason })?;
        if recorded.at_us < self.last_us {
            return Err(TraceError::Backwards { line, back_us: self.last_us - recorded.at_us });
        }
        let blocks = self.blocks(line, &recorded)?;
        self.last_us = recorded.at_us;
        let request = TraceRequest {
            arrival_us: 0,
            prompt_tokens: recorded.input_length,
            // Nothing generated is written as 0 by some; an engine samples one token even so.
            output_tokens: recorded.output_length.max(1),
            blocks: blocks.into(),
        };
        self.requests.push((recorded.at_us, request));
        Ok(())
    }

    /// Hashes of the full blocks.
    fn blocks(&self, line: usize, recorded: &Recorded) -> Result<Vec<SequenceHash>, TraceError> {
        let input_length = recorded.input_length;
        let full = (input_length / super::BLOCK_TOKENS) as usize;
        match &recorded.blocks {
            Prefixes::Ids(ids) => {
                let expected = input_length.div_ceil(super::BLOCK_TOKENS) as usize;
                if ids.len() != expected {
                    return Err(TraceError::BlockCount { line, input_length, expected, found: ids.len() });
                }
                Ok(mooncake::hashes(&ids[..full]))
            }
            // Numbered by the line, which nobody else has, and then along the prompt.
            Prefixes::Unique => {
                let ids: Vec<u64> = std::iter::once(line as u64).chain(0..).take(full).collect();
                Ok(mooncake::hashes(&ids))
            }
        }
    }

    fn finish(self, format: TraceFormat, limit: Option<NonZeroUsize>) -> Result<Trace, TraceError> {
        let skipped = self.skipped;
        if self.requests.is_empty() {
            return Err(TraceError::Empty { skipped });
        }
        let (mut requests, mut span_us) = arrivals::spread(self.requests);
        if let Some(limit) = limit
            && let Some(next) = requests.get(limit.get())
        {
            span_us = next.arrival_us;
            requests.truncate(limit.get());
        }
        Ok(Trace { format, requests, span_us, skipped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, TraceError> {
        Trace::read(text.as_bytes(), ReadOptions::default())
    }

    fn line(timestamp: u64, input_length: u32, ids: &[u64]) -> String {
        format!(
            "{{\"timestamp\": {timestamp}, \"input_length\": {input_length}, \"output_length\": 7, \"hash_ids\": {ids:?}}}\n"
        )
    }

    #[test]
    fn equal_ids_give_equal_blocks_and_the_partial_block_has_none() {
        let trace = read(&(line(0, 1_100, &[0, 1, 2]) + &line(5, 1_536, &[0, 1, 3]))).unwrap();
        let [first, second] = &trace.requests[..] else { panic!("two requests") };
        assert_eq!((trace.format, first.blocks.len(), second.blocks.len()), (TraceFormat::Mooncake, 2, 3));
        assert_eq!(first.blocks[..], second.blocks[..2]);
        assert_eq!((first.arrival_us, second.arrival_us), (0, 5_000));
        assert_eq!((trace.input_tokens(), trace.output_tokens()), (2_636, 14));
    }

    #[test]
    fn one_id_behind_two_prefixes_is_two_blocks() {
        let trace = read(&(line(0, 1_024, &[1, 9]) + &line(1, 1_024, &[2, 9]))).unwrap();
        assert_ne!(trace.requests[0].blocks[1], trace.requests[1].blocks[1]);
    }

    #[test]
    fn azure_blocks_are_nobody_elses() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,1030,44\r\n\
                    2023-11-16 18:15:46.7805900,1030,0\r\n";
        let trace = read(text).unwrap();
        let [first, second] = &trace.requests[..] else { panic!("two requests") };
        assert_eq!((trace.format, first.blocks.len(), second.arrival_us), (TraceFormat::Azure, 2, 100_000));
        assert!(first.blocks.iter().all(|block| !second.blocks.contains(block)));
        assert_eq!(second.output_tokens, 1, "an engine always produces one token");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let good = line(10, 600, &[1, 2]);
        let cases = [
            (String::new(), "holds no request"),
            ("\n \n".to_owned(), "holds no request"),
            ("hello\n".to_owned(), "--format"),
            (format!("{good}oops\n"), "line 2 is malformed"),
            (format!("{good}\n{{\"timestamp\": 11}}\n"), "line 3 is malformed: missing field `input_length`"),
            (format!("{good}{}", line(9, 600, &[1, 2])), "line 2 goes back in time, 1000 µs"),
            (
                format!("{good}{}", line(11, 600, &[1])),
                "line 2 contradicts itself: 600 input tokens are 2 blocks",
            ),
            (format!("{good}{}", line(11, 0, &[])), "line 2 is malformed: `input_length` is 0"),
            (
                format!("{good}{}", line(11, u32::MAX, &[])),
                "line 2 is malformed: `input_length` is 4294967295",
            ),
            (
                "TIMESTAMP,ContextTokens\n".to_owned(),
                "line 1 is malformed: the column GeneratedTokens is missing",
            ),
        ];
        for (text, expected) in cases {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let not_text = [good.as_bytes(), b"{\xFF}\n"].concat();
        let error = Trace::read(&not_text, ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("line 2 is malformed: it is not UTF-8"), "{error}");
    }

    #[test]
    fn bad_lines_are_counted_and_left_out_where_that_is_asked_for() {
        let skip = ReadOptions { skip_bad: true, ..ReadOptions::default() };
        let text =
            format!("oops\n{}{}{}", line(10, 600, &[1, 2]), line(9, 600, &[1, 2]), line(11, 600, &[1]));
        let trace = Trace::read(text.as_bytes(), skip).unwrap();
        assert_eq!((trace.requests.len(), trace.skipped), (1, 3));
        let nothing = Trace::read(b"{}\n{}\n", skip).unwrap_err();
        assert_eq!(nothing, TraceError::Empty { skipped: 2 });
    }

    #[test]
    fn a_limit_keeps_the_first_requests_at_their_pace() {
        let text: String = [0, 0, 0, 0, 1_000].iter().map(|at| line(*at, 100, &[1])).collect();
        let limit = ReadOptions { limit: NonZeroUsize::new(2), ..ReadOptions::default() };
        let trace = Trace::read(text.as_bytes(), limit).unwrap();
        assert_eq!(
            (trace.requests.len(), trace.requests[1].arrival_us, trace.span_us),
            (2, 250_000, 500_000)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, json: bool, skip_bad: bool) {
            let format = if json { TraceFormat::Mooncake } else { TraceFormat::Azure };
            let options = ReadOptions { format: Some(format), skip_bad, limit: None };
            drop(Trace::read(&bytes, options));
        }
    }
}
