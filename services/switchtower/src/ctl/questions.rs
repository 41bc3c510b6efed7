//! What `ctl` can be asked, and the admin API's path and body for it.

use clap::{Args, Subcommand};
use http::{Uri, uri::Scheme};
use serde_json::{Value, json};

/// One question to one router.
#[derive(Clone, Debug, Args)]
pub(crate) struct CtlArguments {
    /// The admin address of any router of the cluster.
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:9090", value_parser = url)]
    pub(crate) url: Uri,

    /// Print JSON, an object with one array named like the command, instead of a table.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) question: Question,
}

/// What to ask.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Question {
    /// The workers that the router knows, and what each says of itself.
    Workers,
    /// Records in the store that do not take part, and why.
    Refused,
    /// What is booked on every row, and what its worker reports.
    Loads,
    /// How much of a prompt every row has cached, in blocks.
    Overlap(OverlapArguments),
    /// The blocks of every row by tier, with a digest to compare routers by.
    Index,
    /// Give a worker no new requests, whichever router they come to; it keeps what it has.
    Drain {
        /// The worker's id.
        #[arg(value_name = "WORKER")]
        worker: u64,
        /// Why, for those who look at it later.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Give a drained worker requests again.
    Resume {
        /// The worker's id.
        #[arg(value_name = "WORKER")]
        worker: u64,
    },
    /// The settings that the router runs with.
    Config,
    /// The routers of the cluster.
    Replicas,
}

/// The prompt.
#[derive(Clone, Debug, Args)]
pub(crate) struct OverlapArguments {
    /// The model's name.
    #[arg(long, value_name = "NAME", default_value = "switchtower-demo")]
    model: String,

    /// The prompt's text.
    #[arg(long, value_name = "TEXT", required_unless_present = "tokens", conflicts_with = "tokens")]
    prompt: Option<String>,

    /// The prompt's token ids.
    #[arg(long, value_name = "N,N,…", value_delimiter = ',')]
    tokens: Option<Vec<u32>>,
}

/// A question as the admin API takes it.
pub(crate) struct AdminRequest {
    /// The command's name, and that of the array in the answer.
    pub(crate) name: &'static str,
    /// The path.
    pub(crate) path: String,
    /// The body of a POST; without one it is a GET.
    pub(crate) body: Option<Value>,
}

impl Question {
    /// The question as the admin API takes it.
    pub(crate) fn as_request(&self) -> AdminRequest {
        let table = |name| AdminRequest { name, path: format!("/admin/{name}"), body: None };
        let act = |name, worker, body| {
            let path = format!("/admin/workers/{worker}/{name}");
            AdminRequest { name, path, body: Some(body) }
        };
        match self {
            Self::Workers => table("workers"),
            Self::Refused => table("refused"),
            Self::Loads => table("loads"),
            Self::Index => table("index"),
            Self::Config => table("config"),
            Self::Replicas => table("replicas"),
            Self::Drain { worker, reason } => act(
                "drain",
                worker,
                reason.as_ref().map_or_else(|| json!({}), |why| json!({ "reason": why })),
            ),
            Self::Resume { worker } => act("resume", worker, json!({})),
            Self::Overlap(OverlapArguments { model, prompt, tokens }) => {
                let body = match (prompt, tokens) {
                    (Some(prompt), _) => json!({"model": model, "prompt": prompt}),
                    (None, tokens) => json!({"model": model, "token_ids": tokens}),
                };
                AdminRequest { body: Some(body), ..table("overlap") }
            }
        }
    }
}

fn url(text: &str) -> Result<Uri, &'static str> {
    let wrong = "give the admin address as http://HOST:PORT";
    let url: Uri = text.parse().map_err(|_| wrong)?;
    let plain = url.scheme() == Some(&Scheme::HTTP)
        && url.path_and_query().is_none_or(|path| path.as_str() == "/")
        && url.authority().is_some_and(|address| !address.as_str().contains('@'));
    if plain { Ok(url) } else { Err(wrong) }
}
