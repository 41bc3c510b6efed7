//! Model cards, tokenizers, chat templates and OpenAI request shapes.
