//! Reads an engine's own metrics, in Prometheus' text format, as far as they say how loaded it is: those of vLLM and of
//! SGLang. Pure, untrusted, bounded by its input; lines that are not understood are passed over. Called by `engine`.

use std::collections::BTreeMap;
use switchtower_ids::Rank;
use switchtower_selection::{records::RANKS_MAX, wire::RankLoad};

/// What an engine says of itself. All of it may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EngineMetrics {
    /// By data-parallel rank; those of an engine that names no ranks stand under `None`.
    ranks: BTreeMap<Option<u32>, Gauges>,
    /// When its process began, in seconds since 1970.
    started_s: Option<f64>,
}

/// One rank's gauges. Where several processes of one rank give one, the largest counts: they say the same, or one has not
/// heard of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Gauges {
    running: Option<f64>,
    waiting: Option<f64>,
    /// Share of the KV cache that requests hold, 0 to 1.
    usage: Option<f64>,
    /// Tokens that its KV cache has room for.
    capacity_tokens: Option<f64>,
}

/// What is known of each rank's KV cache without asking the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownBlocks {
    /// Tokens per block.
    pub(super) block_size: u32,
    /// Blocks of one rank, where it was configured.
    pub(super) total: Option<u64>,
}

/// One line: a name, labels as they stand between the braces, a value.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl EngineMetrics {
    /// Reads all lines.
    pub(super) fn parse(text: &str) -> Self {
        let mut metrics = Self::default();
        text.lines().filter_map(Sample::parse).for_each(|sample| metrics.take(&sample));
        metrics
    }

    fn take(&mut self, sample: &Sample<'_>) {
        if sample.name == "process_start_time_seconds" {
            self.started_s = Some(sample.value);
            return;
        }
        let field: fn(&mut Gauges) -> &mut Option<f64> = match sample.name {
            "vllm:num_requests_running" | "sglang:num_running_reqs" => |gauges| &mut gauges.running,
            "vllm:num_requests_waiting" | "sglang:num_queue_reqs" => |gauges| &mut gauges.waiting,
            "vllm:kv_cache_usage_perc" | "vllm:gpu_cache_usage_perc" | "sglang:token_usage" => {
                |gauges| &mut gauges.usage
            }
            "vllm:cache_config_info" | "sglang:max_total_num_tokens" => |gauges| &mut gauges.capacity_tokens,
            _ => return,
        };
        let value =
            if sample.name == "vllm:cache_config_info" { sample.capacity() } else { Some(sample.value) };
        if let (Some(value), Some(rank)) = (value.filter(|value| *value >= 0.0), sample.rank()) {
            let known = field(self.ranks.entry(rank).or_default());
            *known = Some(known.map_or(value, |known| known.max(value)));
        }
    }

    /// How many data-parallel ranks the engine names.
    pub(super) fn named_ranks(&self) -> usize {
        self.ranks.keys().flatten().count()
    }

    /// Whether the engine's process began after the one that said `earlier`. Not known of all engines, then no.
    pub(super) fn is_restart_after(&self, earlier: &Self) -> bool {
        let times = self.started_s.zip(earlier.started_s);
        // Less is one time written in two ways.
        times.is_some_and(|(now, then)| now >= then + 1.0)
    }

    /// The load of each of so many ranks that the engine speaks of; none of an engine that does not say how much it has to
    /// do. Of one rank, all that the engine says is its load.
    pub(super) fn loads(&self, ranks: u32, blocks: KnownBlocks) -> Vec<RankLoad> {
        if ranks == 1 {
            let spoken: Vec<Gauges> = self.ranks.keys().filter_map(|rank| self.spoken(*rank)).collect();
            return sum(&spoken).map(|gauges| gauges.load(Rank(0), blocks)).into_iter().collect();
        }
        let load = |rank| Some(self.spoken(Some(rank))?.load(Rank(rank), blocks));
        (0..ranks).filter_map(load).collect()
    }

    /// What is said of a rank that says how much it has to do. A capacity that names no rank is every rank's.
    fn spoken(&self, rank: Option<u32>) -> Option<Gauges> {
        let own = self.ranks.get(&rank).filter(|own| own.running.is_some() && own.waiting.is_some())?;
        let common = self.ranks.get(&None).and_then(|common| common.capacity_tokens);
        Some(Gauges { capacity_tokens: own.capacity_tokens.or(common), ..*own })
    }
}

/// Several ranks as one.
fn sum(ranks: &[Gauges]) -> Option<Gauges> {
    let all = |gauge: fn(&Gauges) -> Option<f64>| ranks.iter().map(gauge).sum::<Option<f64>>();
    let usage = all(|gauges| gauges.usage).map(|sum| sum / ranks.len() as f64);
    (!ranks.is_empty()).then(|| Gauges {
        running: all(|gauges| gauges.running),
        waiting: all(|gauges| gauges.waiting),
        usage,
        capacity_tokens: all(|gauges| gauges.capacity_tokens),
    })
}

impl Gauges {
    /// As a report: without usage or capacity its blocks are 0 of 0, which is a report without that content.
    fn load(self, rank: Rank, blocks: KnownBlocks) -> RankLoad {
        let told = self.capacity_tokens.map(|tokens| tokens as u64 / u64::from(blocks.block_size.max(1)));
        let total = blocks.total.or(told);
        let (blocks_total, usage) = total.zip(self.usage).unwrap_or_default();
        RankLoad {
            rank,
            running: self.running.unwrap_or_default() as u64,
            waiting: self.waiting.unwrap_or_default() as u64,
            blocks_used: (usage.min(1.0) * blocks_total as f64).round() as u64,
            blocks_total,
            prefill_tokens: 0,
            kv_sequence: 0,
        }
    }
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_at(line.find(['{', ' ', '\t'])?);
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_at(labels_end(rest)?),
            None => ("", rest),
        };
        // A timestamp may follow.
        let value = value.trim_start_matches('}').split_ascii_whitespace().next()?.parse().ok()?;
        f64::is_finite(value).then_some(Self { name, labels, value })
    }

    /// The value of a label, escapes and all.
    fn label(&self, wanted: &str) -> Option<&'a str> {
        let mut labels = self.labels;
        loop {
            let (name, rest) = labels.split_once("=\"")?;
            let (value, rest) = rest.split_at(quote_end(rest)?);
            if name.trim_matches([',', ' ']) == wanted {
                return Some(value);
            }
            labels = &rest[1..];
        }
    }

    /// The data-parallel rank that it names, in vLLM's word or in SGLang's; `None` in place of a rank that cannot be.
    fn rank(&self) -> Option<Option<u32>> {
        match self.label("engine").or_else(|| self.label("dp_rank")) {
            None => Some(None),
            Some(text) => text.parse().ok().filter(|rank| *rank < RANKS_MAX).map(Some),
        }
    }

    /// The capacity that vLLM puts into labels, in tokens.
    fn capacity(&self) -> Option<f64> {
        let number = |label| self.label(label)?.parse::<u32>().ok().map(f64::from);
        Some(number("num_gpu_blocks")? * number("block_size")?)
    }
}

/// Where the brace that closes the labels stands, which is not inside of a value.
fn labels_end(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let next = rest.find(['"', '}'])?;
        if rest.as_bytes()[next] == b'}' {
            return Some(at + next);
        }
        let value = at + next + 1;
        at = value + quote_end(&text[value..])? + 1;
    }
}

/// Where the quote that closes a value stands, which has no backslash in front.
fn quote_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

#[cfg(test)]
mod tests;
