//! What kind of engine is simulated, and how long its steps take. Pure numbers and one formula; the scheduling that
//! uses them is in `step`.

use serde::{Deserialize, Serialize};

/// One engine rank. The defaults resemble an 8-billion-parameter dense model with grouped-query attention (32
/// layers, 8 KV heads of 128, bf16) on one H100 SXM (3.35 TB/s, 989 dense bf16 TFLOP/s, 80 GB).
///
/// A step that computes prefill chunks and one token for each decoding sequence takes
///
/// ```text
/// base_us + us_per_prefill_token × prefill tokens
///         + us_per_attention_pair × Σ over chunks (chunk × context before it + chunk × (chunk + 1) / 2)
///         + us_per_sequence × decoding sequences
///         + us_per_context_token × Σ context tokens of the decoding sequences
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineParameters {
    /// Tokens per KV block; at least 1. 16 is what most engines use.
    pub block_size: u32,
    /// KV blocks; at least 1. A token's KV is 2 × 32 × 8 × 128 × 2 B = 131 kB; 90 % of 80 GB less 16 GB of weights
    /// and 2 GB of activations hold about 410,000 tokens: 25,600 blocks of 16.
    pub total_blocks: u32,
    /// Sequences in the batch; at least 1. 256 is the usual default of engines.
    pub max_batch: u32,
    /// Requests that may wait; at least 1. Beyond it [`crate::SubmitError::QueueFull`].
    pub max_waiting: u32,
    /// Prefill tokens per step (chunked prefill); at least 1.
    pub prefill_tokens_per_step: u32,
    /// Fixed part of a step: reading 16 GB of weights at 80 % of the bandwidth takes 6 ms, launches are hidden.
    pub base_us: f64,
    /// Dense layers per prefill token: 16 GFLOP at half the peak rate take 32 µs.
    pub us_per_prefill_token: f64,
    /// Attention per (token, token it attends to) in prefill: 4 × 4,096 × 32 = 0.52 MFLOP at 40 % of the peak rate.
    pub us_per_attention_pair: f64,
    /// Per decoding sequence: sampling, detokenizing, and the part of the dense layers that weights do not hide.
    pub us_per_sequence: f64,
    /// Reading one context token's KV (131 kB) in decode at 80 % of the bandwidth.
    pub us_per_context_token: f64,
}

impl Default for EngineParameters {
    fn default() -> Self {
        Self {
            block_size: 16,
            total_blocks: 25_600,
            max_batch: 256,
            max_waiting: 65_536,
            prefill_tokens_per_step: 8_192,
            base_us: 6_000.0,
            us_per_prefill_token: 32.0,
            us_per_attention_pair: 0.001_3,
            us_per_sequence: 20.0,
            us_per_context_token: 0.049,
        }
    }
}

/// A parameter that no engine can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// A count is zero.
    #[error("engine parameter `{0}` is 0: set it to at least 1")]
    Zero(&'static str),
    /// A duration is negative, infinite or not a number.
    #[error("engine parameter `{field}` is {value}: set it to a number of microseconds from 0 to 1e9")]
    Duration {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
    },
}

/// The longest step: about 11 days. Keeps sums of absurd coefficients inside u64.
const LONGEST_STEP_US: f64 = 1e12;

impl EngineParameters {
    /// Refuses what no engine can have.
    ///
    /// # Errors
    /// [`ParameterError`] names the first field that is wrong.
    pub fn validate(&self) -> Result<(), ParameterError> {
        let counts = [
            ("block_size", self.block_size),
            ("total_blocks", self.total_blocks),
            ("max_batch", self.max_batch),
            ("max_waiting", self.max_waiting),
            ("prefill_tokens_per_step", self.prefill_tokens_per_step),
        ];
        let durations = [
            ("base_us", self.base_us),
            ("us_per_prefill_token", self.us_per_prefill_token),
            ("us_per_attention_pair", self.us_per_attention_pair),
            ("us_per_sequence", self.us_per_sequence),
            ("us_per_context_token", self.us_per_context_token),
        ];
        if let Some((field, _)) = counts.into_iter().find(|(_, value)| *value == 0) {
            return Err(ParameterError::Zero(field));
        }
        match durations.into_iter().find(|(_, value)| !(0.0..=1e9).contains(value)) {
            Some((field, value)) => Err(ParameterError::Duration { field, value }),
            None => Ok(()),
        }
    }

    /// Engine time in µs that computing a prompt of `prompt_tokens` adds to the steps that share it, when the first
    /// `cached_tokens` of them are found in the cache: the prefill terms of the step formula, which do not depend on how
    /// the prompt is cut into chunks. Without `base_us`, which a step takes whatever is in it.
    #[must_use]
    pub fn prefill_work_us(&self, prompt_tokens: u64, cached_tokens: u64) -> f64 {
        let mut work = StepWork::default();
        work.add_chunk(prompt_tokens.saturating_sub(cached_tokens), cached_tokens);
        self.content_us(&work)
    }

    /// Engine time in µs that decoding adds to the steps that share it, for the `output_tokens` of one request less the
    /// first, which the prefill brings: the decode terms of the step formula.
    #[must_use]
    pub fn decode_work_us(&self, prompt_tokens: u64, output_tokens: u64) -> f64 {
        let steps = output_tokens.saturating_sub(1) as f64;
        let context = steps * prompt_tokens as f64 + steps * (steps + 1.0) / 2.0;
        self.us_per_sequence * steps + self.us_per_context_token * context
    }

    /// How long a step of this content takes: at least 1 µs, so that virtual time always moves.
    pub(crate) fn step_us(&self, work: &StepWork) -> u64 {
        let us = self.base_us + self.content_us(work);
        us.round().clamp(1.0, LONGEST_STEP_US) as u64
    }

    /// The part of a step's time that its content makes.
    fn content_us(&self, work: &StepWork) -> f64 {
        self.us_per_prefill_token * work.prefill_tokens as f64
            + self.us_per_attention_pair * work.attention_pairs
            + self.us_per_sequence * work.decode_sequences as f64
            + self.us_per_context_token * work.context_tokens as f64
    }
}

/// What one step computes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StepWork {
    /// Tokens in prefill chunks.
    pub(crate) prefill_tokens: u64,
    /// (token, attended token) pairs in the chunks; f64 because it is a product of two large counts.
    pub(crate) attention_pairs: f64,
    /// Sequences that decode.
    pub(crate) decode_sequences: u64,
    /// Sum of their contexts.
    pub(crate) context_tokens: u64,
}

impl StepWork {
    /// Adds a prefill chunk of `chunk` tokens after `context` tokens that are computed already.
    pub(crate) fn add_chunk(&mut self, chunk: u64, context: u64) {
        let (tokens, before) = (chunk as f64, context as f64);
        self.prefill_tokens += chunk;
        self.attention_pairs += tokens * before + tokens * (tokens + 1.0) / 2.0;
    }

    /// Adds one decoding sequence with `context` tokens.
    pub(crate) fn add_decode(&mut self, context: u64) {
        self.decode_sequences += 1;
        self.context_tokens += context;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_give_a_plausible_engine() {
        let parameters = EngineParameters::default();
        parameters.validate().unwrap();
        let mut decode = StepWork::default();
        (0..64).for_each(|_| decode.add_decode(1_000));
        let decode_us = parameters.step_us(&decode);
        assert!(
            (8_000..15_000).contains(&decode_us),
            "64 sequences decode in about 10 ms, not {decode_us} µs"
        );
        let mut prefill = StepWork::default();
        prefill.add_chunk(8_192, 0);
        let prefill_us = parameters.step_us(&prefill);
        assert!(
            (250_000..350_000).contains(&prefill_us),
            "8k tokens prefill in about 0.3 s, not {prefill_us} µs"
        );
    }

    /// A request alone in the engine, step by step, against the sums.
    #[test]
    fn the_work_of_a_request_is_the_sum_of_its_steps_without_their_base() {
        let parameters = EngineParameters::default();
        let (cached, prompt, output, chunk) = (1_024, 10_000, 50, 3_000);
        let mut stepwise_us = 0.0;
        let mut context = cached;
        while context < prompt {
            let mut step = StepWork::default();
            let taken = chunk.min(prompt - context);
            step.add_chunk(taken, context);
            stepwise_us += parameters.content_us(&step);
            context += taken;
        }
        let prefill_us = parameters.prefill_work_us(prompt, cached);
        assert!((prefill_us - stepwise_us).abs() < 1e-6 * stepwise_us, "{prefill_us} {stepwise_us}");
        let decode = |token| {
            let mut step = StepWork::default();
            step.add_decode(prompt + token);
            parameters.content_us(&step)
        };
        let stepwise_us: f64 = (1..output).map(decode).sum();
        let decode_us = parameters.decode_work_us(prompt, output);
        assert!((decode_us - stepwise_us).abs() < 1e-6 * stepwise_us, "{decode_us} {stepwise_us}");
        assert_eq!((parameters.prefill_work_us(5, 9), parameters.decode_work_us(5, 0)), (0.0, 0.0));
    }

    #[test]
    fn a_wrong_parameter_is_refused_by_name() {
        let zero = EngineParameters { max_batch: 0, ..EngineParameters::default() };
        assert_eq!(zero.validate(), Err(ParameterError::Zero("max_batch")));
        for value in [-1.0, f64::INFINITY, f64::NAN, 2e9] {
            let wrong = EngineParameters { us_per_sequence: value, ..EngineParameters::default() };
            let error = wrong.validate().unwrap_err().to_string();
            assert!(error.contains("us_per_sequence"), "{error}");
        }
    }

    #[test]
    fn steps_take_time_and_never_overflow() {
        let free = EngineParameters {
            base_us: 0.0,
            us_per_prefill_token: 0.0,
            us_per_attention_pair: 0.0,
            us_per_sequence: 0.0,
            us_per_context_token: 0.0,
            ..EngineParameters::default()
        };
        assert_eq!(free.step_us(&StepWork::default()), 1);
        let absurd = EngineParameters { us_per_attention_pair: 1e9, ..EngineParameters::default() };
        let mut work = StepWork::default();
        work.add_chunk(u64::from(u32::MAX), u64::from(u32::MAX));
        assert_eq!(absurd.step_us(&work), 1_000_000_000_000);
    }
}
