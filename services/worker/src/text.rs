//! The simulated model's words: plausible text, the same for the same prompt wherever it is asked, in the real tokens
//! of the model's tokenizer. Pure; called by `completion`.

use switchtower_models::{Tokenizer, TokenizerError};

/// A small, fast, seeded generator (splitmix64). Same seed, same numbers, on every machine and in every release.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice that depend on everything in `parts`, in order.
    pub(crate) fn of(parts: impl IntoIterator<Item = u64>) -> Self {
        parts.into_iter().fold(Self(0), |mut dice, part| {
            dice.0 ^= part;
            Self(dice.next())
        })
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included; `low` when the range is empty.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        let width = u64::from(high.saturating_sub(low)) + 1;
        low.saturating_add((self.next() % width) as u32)
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits: what an f64 holds exactly.
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    fn choose<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words.get(self.next() as usize % words.len().max(1)).copied().unwrap_or_default()
    }
}

const SUBJECTS: [&str; 12] = [
    "the signal",
    "a freight train",
    "the night shift",
    "our dispatcher",
    "the junction",
    "every switch",
    "the timetable",
    "an express",
    "the yard",
    "a local service",
    "the main line",
    "the interlocking",
];
const VERBS: [&str; 12] = [
    "waits for",
    "follows",
    "clears",
    "holds",
    "releases",
    "protects",
    "leaves behind",
    "passes",
    "reaches",
    "announces",
    "keeps",
    "crosses",
];
const OBJECTS: [&str; 12] = [
    "the next block",
    "a green aspect",
    "the northern track",
    "two empty sidings",
    "the morning traffic",
    "platform four",
    "its own schedule",
    "the slow line",
    "the last wagon",
    "a clear road",
    "the control room",
    "the bridge",
];
const ENDINGS: [&str; 8] = [
    "before dawn",
    "without delay",
    "as planned",
    "once more",
    "in good order",
    "at low speed",
    "for now",
    "in the rain",
];

/// One sentence without its full stop.
fn sentence(dice: &mut Dice) -> String {
    let subject = dice.choose(&SUBJECTS);
    let (first, rest) = subject.split_at(1);
    let mut text =
        format!("{}{rest} {} {}", first.to_uppercase(), dice.choose(&VERBS), dice.choose(&OBJECTS));
    if dice.chance(0.4) {
        text = format!("{text} {}", dice.choose(&ENDINGS));
    }
    text
}

/// Tokens of whole sentences: at least `tokens_min` of them.
///
/// # Errors
/// When the tokenizer cannot encode plain English.
pub(crate) fn sentences(
    tokenizer: &Tokenizer,
    dice: &mut Dice,
    tokens_min: usize,
) -> Result<Vec<u32>, TokenizerError> {
    let mut text = String::new();
    // A token of English is about four bytes; the loop makes up for a guess that was short.
    let mut bytes_wanted = tokens_min.saturating_mul(4).max(1);
    loop {
        while text.len() < bytes_wanted {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&sentence(dice));
            text.push('.');
        }
        let tokens = tokenizer.encode(&text, false)?;
        // A tokenizer that maps all this to nothing would loop for ever; an answer that is too short is harmless.
        if tokens.len() >= tokens_min || bytes_wanted > tokens_min.saturating_mul(64) {
            return Ok(tokens);
        }
        bytes_wanted = bytes_wanted.saturating_mul(2);
    }
}

/// The text that each token adds, so that the pieces joined are the text of all. A token that ends inside a character
/// adds nothing; the one that completes it adds it.
///
/// Decoders look at neighbours (word-start markers, bytes of one character), so each piece is the difference of two
/// decodings that begin a little earlier: linear in the number of tokens.
///
/// # Errors
/// When the tokenizer's decoder refuses.
pub(crate) fn pieces(tokenizer: &Tokenizer, tokens: &[u32]) -> Result<Vec<String>, TokenizerError> {
    let mut pieces = Vec::with_capacity(tokens.len());
    let (mut context, mut told) = (0, 0);
    for end in 1..=tokens.len() {
        let before = tokenizer.decode(&tokens[context..told])?;
        let after = tokenizer.decode(&tokens[context..end])?;
        let complete = end == tokens.len() || !after.ends_with(char::REPLACEMENT_CHARACTER);
        match after.strip_prefix(before.as_str()) {
            Some(new) if complete && !new.is_empty() => {
                pieces.push(new.to_owned());
                (context, told) = (told, end);
            }
            _ => pieces.push(String::new()),
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchtower_models::{Model, ModelSource};

    fn model() -> Model {
        Model::load(&ModelSource::BuiltIn).unwrap()
    }

    #[test]
    fn the_same_seed_tells_the_same_and_another_seed_another_story() {
        let model = model();
        let tell = |seed| sentences(model.tokenizer(), &mut Dice::new(seed), 200).unwrap();
        assert_eq!(tell(1), tell(1));
        assert_ne!(tell(1), tell(2));
        assert!(tell(1).len() >= 200);
        let text = model.tokenizer().decode(&tell(1)).unwrap();
        assert!(text.ends_with('.') && text.is_ascii(), "{text}");
    }

    #[test]
    fn pieces_joined_are_the_text_even_where_characters_span_tokens() {
        let model = model();
        for text in ["The yard.", "", "naïve 東京 🦀👩‍👩‍👧 end", "\u{fffd}", "🦀"] {
            let tokens = model.tokenizer().encode(text, false).unwrap();
            let pieces = pieces(model.tokenizer(), &tokens).unwrap();
            assert_eq!(pieces.len(), tokens.len());
            assert_eq!(pieces.concat(), text);
        }
    }

    #[test]
    fn dice_are_fair_enough_and_know_their_bounds() {
        let mut dice = Dice::of([1, 2, 3]);
        let hits = (0..10_000).filter(|_| dice.chance(0.25)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!dice.chance(0.0) && dice.chance(1.0));
        assert!((0..1_000).all(|_| (3..=5).contains(&dice.between(3, 5))));
        assert_eq!(dice.between(7, 2), 7);
        let _ = dice.between(0, u32::MAX);
    }
}
