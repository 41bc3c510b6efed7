//! The model that is linked into the program, so that `switchtower up` needs no download: a small byte-level BPE
//! tokenizer and a chat template of this project's own making (`builtin/train.py`).

use crate::{
    CardError, ModelCard, Tokenizer, TokenizerError, TokenizerSource, hugging_face::TokenizerConfig,
};

/// Name of the built-in model.
pub(crate) const NAME: &str = "switchtower-demo";
/// Its context, in tokens.
const CONTEXT_LENGTH: u32 = 32_768;
/// 2026-11-01, when its tokenizer was trained.
const CREATED_UNIX_S: u64 = 1_793_491_200;

const TOKENIZER_JSON: &[u8] = include_bytes!("../builtin/tokenizer.json");
const TOKENIZER_CONFIG: &[u8] = include_bytes!("../builtin/tokenizer_config.json");

/// The built-in tokenizer.
pub(crate) fn tokenizer() -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_json(TOKENIZER_JSON)
}

/// The built-in model's card, under `name`. The files are part of the program, so an error is a mistake in the build.
pub(crate) fn card(name: &str) -> Result<ModelCard, CardError> {
    let config: TokenizerConfig = serde_json::from_slice(TOKENIZER_CONFIG).unwrap_or_default();
    let templates = config.templates();
    let card = ModelCard {
        name: name.to_owned(),
        context_length: CONTEXT_LENGTH,
        block_size: ModelCard::DEFAULT_BLOCK_SIZE,
        bos_token: config.token("bos_token"),
        eos_token: config.token("eos_token"),
        special_tokens: config.other_tokens(),
        chat_template: templates.chat,
        tool_use_template: templates.tool_use,
        tokenizer: TokenizerSource::BuiltIn,
        created_unix_s: CREATED_UNIX_S,
        tool_arguments: crate::ToolArguments::default(),
    };
    card.validate()?;
    Ok(card)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_card_is_whole() {
        let card = card(NAME).unwrap();
        assert_eq!((card.context_length, card.block_size), (32_768, 16));
        assert_eq!(card.bos_token.as_deref(), Some("<|begin|>"));
        assert_eq!(card.eos_token.as_deref(), Some("<|end|>"));
        assert!(card.chat_template.is_some());
    }

    #[test]
    fn every_token_that_the_template_writes_is_one_token() {
        let tokenizer = tokenizer().unwrap();
        for token in ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"] {
            assert_eq!(tokenizer.encode(token, false).unwrap().len(), 1, "{token}");
        }
    }
}
