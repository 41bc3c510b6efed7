//! What the simulated model says to one prompt: tokens, the text each of them shows, and why it stops. Decided whole
//! before the engine starts, because the engine caches blocks of output under their hashes. Pure; called by `answer`.

use crate::text::{Dice, pieces, sentences};
use switchtower_models::{Tokenizer, TokenizerError};

/// What shapes a reply.
#[derive(Clone, Debug)]
pub(crate) struct ReplyRequest<'a> {
    /// The prompt's tokens.
    pub(crate) prompt: &'a [u32],
    /// Which of the `n` choices; each says something else.
    pub(crate) choice: u32,
    /// The request's own seed.
    pub(crate) seed: Option<i64>,
    /// Shortest and longest natural length in tokens.
    pub(crate) natural: (u32, u32),
    /// Most tokens: what the request and the context allow. At least 1.
    pub(crate) limit: u32,
    /// Go on to the limit instead of ending naturally.
    pub(crate) ignore_end: bool,
    /// The reply ends before the first of these.
    pub(crate) stop: &'a [String],
}

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Token ids, at least one.
    pub(crate) tokens: Vec<u32>,
    /// What each token shows; as many as tokens.
    pub(crate) texts: Vec<String>,
    /// False when the limit cut it.
    pub(crate) ended: bool,
}

impl Reply {
    /// Composes the reply: the same request gets the same words from every worker.
    ///
    /// # Errors
    /// When the tokenizer cannot handle plain English.
    pub(crate) fn compose(tokenizer: &Tokenizer, request: &ReplyRequest<'_>) -> Result<Self, TokenizerError> {
        let mut dice = request.dice();
        let (shortest, longest) = request.natural;
        let natural = if request.ignore_end { request.limit } else { dice.between(shortest, longest) };
        let mut tokens = sentences(tokenizer, &mut dice, natural.min(request.limit) as usize)?;
        let ended = !request.ignore_end && tokens.len() <= request.limit as usize && natural <= request.limit;
        tokens.truncate(request.limit as usize);
        if tokens.is_empty() {
            // Only a tokenizer that knows no English comes here; the engine needs something to produce.
            tokens.push(0);
        }
        let texts = pieces(tokenizer, &tokens)?;
        let mut reply = Self { tokens, texts, ended };
        reply.stop_before(request.stop);
        Ok(reply)
    }

    /// Cuts the text before the first stop string. The tokens that spell it were produced and count.
    fn stop_before(&mut self, stop: &[String]) {
        let text = self.texts.concat();
        let found = stop.iter().filter(|stop| !stop.is_empty());
        let found = found.filter_map(|stop| text.find(stop.as_str()).map(|at| (at, at + stop.len())));
        let Some((visible, end)) = found.min() else { return };
        let mut shown = 0;
        let mut kept = 0;
        for piece in &mut self.texts {
            let before = shown;
            shown += piece.len();
            kept += 1;
            // Both are character boundaries of the text, so the difference is one of the piece.
            piece.truncate(visible.saturating_sub(before));
            if shown >= end {
                break;
            }
        }
        self.texts.truncate(kept);
        self.tokens.truncate(kept);
        self.ended = true;
    }
}

impl ReplyRequest<'_> {
    fn dice(&self) -> Dice {
        let own = [u64::from(self.choice), self.seed.map_or(0, i64::cast_unsigned)];
        Dice::of(own.into_iter().chain(self.prompt.iter().copied().map(u64::from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchtower_models::{Model, ModelSource};

    fn compose<'a>(change: impl FnOnce(&mut ReplyRequest<'a>)) -> Reply {
        let model = Model::load(&ModelSource::BuiltIn).unwrap();
        let mut request = ReplyRequest {
            prompt: &[1, 2, 3],
            choice: 0,
            seed: None,
            natural: (20, 30),
            limit: 1_000,
            ignore_end: false,
            stop: &[],
        };
        change(&mut request);
        Reply::compose(model.tokenizer(), &request).unwrap()
    }

    #[test]
    fn a_reply_repeats_for_the_same_request_and_for_no_other() {
        assert_eq!(compose(|_| ()), compose(|_| ()));
        assert_ne!(compose(|_| ()), compose(|request| request.choice = 1));
        assert_ne!(compose(|_| ()), compose(|request| request.seed = Some(-1)));
        assert_ne!(compose(|_| ()), compose(|request| request.prompt = &[1, 2]));
    }

    #[test]
    fn a_natural_reply_is_whole_sentences() {
        let reply = compose(|_| ());
        assert!(reply.ended && reply.texts.concat().ends_with('.'));
        assert!((20..60).contains(&reply.tokens.len()), "{}", reply.tokens.len());
    }

    #[test]
    fn the_limit_cuts_and_says_so() {
        let reply = compose(|request| request.limit = 7);
        assert_eq!((reply.tokens.len(), reply.texts.len(), reply.ended), (7, 7, false));
        let reply = compose(|request| (request.limit, request.ignore_end) = (500, true));
        assert_eq!((reply.tokens.len(), reply.ended), (500, false));
    }

    #[test]
    fn a_stop_string_ends_the_text_before_it_wherever_tokens_begin() {
        let whole = compose(|_| ()).texts.concat();
        for stop in [&whole[..1], &whole[3..9], &whole[11..12], &whole[whole.len() - 3..]] {
            let stops = ["never said".to_owned(), String::new(), stop.to_owned()];
            let reply = compose(|request| request.stop = &stops);
            let expected = &whole[..whole.find(stop).unwrap()];
            assert_eq!(reply.texts.concat(), expected);
            assert!(reply.ended && reply.tokens.len() == reply.texts.len() && !reply.tokens.is_empty());
        }
    }
}
