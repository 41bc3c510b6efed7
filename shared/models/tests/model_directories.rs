//! Loading models from disk: the Hugging Face layout in its varieties, and what is said when files are missing or
//! broken. Run by `cargo nextest`; touches a temporary directory only.

use serde_json::{Value, json};
use std::fs;
use switchtower_models::{Model, ModelSource, TokenizerSource};

const TOKENIZER: &[u8] = include_bytes!("../builtin/tokenizer.json");

fn directory(files: &[(&str, &Value)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("tokenizer.json"), TOKENIZER).unwrap();
    for (name, contents) in files {
        let text = contents.as_str().map_or_else(|| contents.to_string(), str::to_owned);
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn load(files: &[(&str, &Value)]) -> Result<Model, switchtower_models::ModelError> {
    Model::load(&ModelSource::path("demo", directory(files).path()))
}

#[test]
fn a_directory_gives_its_card() {
    let config = json!({"chat_template": "one", "bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"},
        "pad_token": null, "unk_token": "<unk>", "model_max_length": 4096, "add_bos_token": true});
    let model = load(&[
        ("tokenizer_config.json", &config),
        ("config.json", &json!({"max_position_embeddings": 8192})),
    ])
    .unwrap();
    let card = model.card();
    assert_eq!((card.name.as_str(), card.context_length, card.block_size), ("demo", 4096, 16));
    assert_eq!((card.bos_token.as_deref(), card.eos_token.as_deref()), (Some("<s>"), Some("</s>")));
    assert_eq!(
        card.special_tokens.iter().collect::<Vec<_>>(),
        [(&"unk_token".to_owned(), &"<unk>".to_owned())]
    );
    assert_eq!(card.chat_template.as_deref(), Some("one"));
    assert!(card.created_unix_s > 1_700_000_000);
    assert!(matches!(&card.tokenizer, TokenizerSource::Path(path) if path.ends_with("tokenizer.json")));
}

#[test]
fn templates_come_as_text_as_named_list_or_as_a_file() {
    let length = json!({"max_position_embeddings": 64});
    let named = json!({"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]});
    let model = load(&[("config.json", &length), ("tokenizer_config.json", &named)]).unwrap();
    assert_eq!(model.card().chat_template.as_deref(), Some("plain"));
    assert_eq!(model.card().tool_use_template.as_deref(), Some("tools"));
    let file = json!("from the file");
    let model =
        load(&[("config.json", &length), ("tokenizer_config.json", &named), ("chat_template.jinja", &file)])
            .unwrap();
    assert_eq!(model.card().chat_template.as_deref(), Some("from the file"));
    assert!(load(&[("config.json", &length)]).unwrap().chat_template(false).is_err());
}

#[test]
fn the_context_length_is_found_wherever_it_stands() {
    let unknown = json!({"model_max_length": 1e30});
    let nested = json!({"text_config": {"max_position_embeddings": 128}});
    let model = load(&[("tokenizer_config.json", &unknown), ("config.json", &nested)]).unwrap();
    assert_eq!(model.card().context_length, 128);
    let generation = json!({"max_length": 256});
    assert_eq!(load(&[("generation_config.json", &generation)]).unwrap().card().context_length, 256);
    let error = load(&[("tokenizer_config.json", &unknown)]).unwrap_err().to_string();
    assert!(error.contains("set context_length") && error.contains("demo"), "{error}");
    let directory = directory(&[]);
    let path = directory.path().join("tokenizer.json");
    let source =
        ModelSource::Path { name: "demo".into(), path, block_size: Some(32), context_length: Some(512) };
    let model = Model::load(&source).unwrap();
    assert_eq!((model.card().context_length, model.card().block_size), (512, 32));
}

#[test]
fn what_is_missing_or_broken_is_named_with_advice() {
    let length = json!({"max_position_embeddings": 64});
    let broken = [
        ("tokenizer.json", json!("{}"), "tokenizer"),
        ("tokenizer_config.json", json!("{"), "tokenizer_config.json"),
        ("tokenizer_config.json", json!({"chat_template": 1}), "tokenizer_config.json"),
        ("tokenizer_config.json", json!({"chat_template": "{% if %}"}), "chat template"),
        ("tokenizer_config.json", json!({"chat_template": " "}), "chat_template"),
        ("generation_config.json", json!("[]x"), "generation_config.json"),
        ("tokenizer.json", json!("{\"version\":"), "/tokenizer.json: not valid"),
    ];
    for (name, contents, named) in &broken {
        let error = load(&[("config.json", &length), (name, contents)]).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let error = Model::load(&ModelSource::path("demo", "/nonexistent/model")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/model") && error.contains("tokenizer.json"), "{error}");
    let zero = ModelSource::Path {
        name: "demo".into(),
        path: directory(&[]).path().into(),
        block_size: Some(0),
        context_length: Some(9),
    };
    assert!(Model::load(&zero).is_err());
}

#[test]
fn the_built_in_model_loads_like_any_other() {
    let built_in = Model::load(&ModelSource::BuiltIn).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/builtin");
    let from_disk = Model::load(&ModelSource::path("switchtower-demo", path)).unwrap();
    assert_eq!(built_in.card().chat_template, from_disk.card().chat_template);
    assert_eq!(built_in.card().context_length, from_disk.card().context_length);
    let encode = |model: &Model| model.tokenizer().encode("a train to the sea", true).unwrap();
    assert_eq!(encode(&built_in), encode(&from_disk));
}
