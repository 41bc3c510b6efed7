//! Clients on raw sockets, because a client that leaves is a socket that closes.

use std::net::SocketAddr;
use switchtower_policies::Generator;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// How a request ended, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// 200, and the whole answer.
    Answered,
    /// The client left.
    Left,
    /// 4xx.
    Refused,
    /// 5xx, or an answer that ended in an error.
    Failed,
    /// A stream that just stopped: looks like success and is none (B92).
    Broken,
}

/// When a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    Never,
    InTheBody,
    AfterTheRequest,
    AfterBytes(usize),
}

/// One request of one client.
pub(crate) struct Visit {
    body: String,
    leaving: Leaving,
}

/// What a client that stays gets.
pub(crate) struct Answer {
    pub(crate) worker: String,
    text: String,
}

impl Visit {
    /// A completion of `prompt`, to its end.
    pub(crate) fn plain(prompt: &str) -> Self {
        let body = serde_json::json!({"model": "switchtower-demo", "prompt": prompt, "max_tokens": 4});
        Self { body: body.to_string(), leaving: Leaving::Never }
    }

    /// Anything that clients do, with one of `prompts` prompts.
    pub(crate) fn draw(random: &mut Generator, prompts: u64) -> Self {
        let number = random.bits() % prompts;
        let prompt = format!("Prompt {number}: {}", "of trains, tracks and signals ".repeat(number as usize));
        let body = serde_json::json!({
            "model": "switchtower-demo", "prompt": prompt, "max_tokens": 1 + random.bits() % 12,
            "stream": random.bits().is_multiple_of(2),
        });
        let mut body = body.to_string();
        let leaving = match random.bits() % 10 {
            0 => Leaving::InTheBody,
            1 => Leaving::AfterTheRequest,
            2 | 3 => Leaving::AfterBytes(1 + (random.bits() % 900) as usize),
            _ => Leaving::Never,
        };
        if random.bits().is_multiple_of(20) {
            body.truncate(body.len() - 2);
        }
        Self { body, leaving }
    }

    fn head(&self) -> String {
        let length = self.body.len();
        format!(
            "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n"
        )
    }

    /// Makes the request and leaves when it is time.
    pub(crate) async fn make(&self, address: SocketAddr) -> Ending {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = self.head() + &self.body;
        if self.leaving == Leaving::InTheBody {
            let half = request.len() - self.body.len() / 2;
            stream.write_all(&request.as_bytes()[..half]).await.unwrap();
            return Ending::Left;
        }
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        match self.leaving {
            Leaving::AfterTheRequest => return Ending::Left,
            Leaving::AfterBytes(bytes) => {
                text.resize(bytes, 0);
                return match stream.read_exact(&mut text).await {
                    Ok(_) => Ending::Left,
                    Err(_) => ending(&String::from_utf8_lossy(&text)),
                };
            }
            _ => {}
        }
        // A connection that breaks is how an answer that is not streamed fails half way.
        match stream.read_to_end(&mut text).await {
            Ok(_) => ending(&String::from_utf8_lossy(&text)),
            Err(_) => Ending::Failed,
        }
    }

    /// Makes the request, which must be answered.
    pub(crate) async fn answer(&self, address: SocketAddr) -> Answer {
        let text = exchange(address, &(self.head() + &self.body)).await;
        assert_eq!(ending(&text), Ending::Answered, "{text}");
        let worker = text.lines().find_map(|line| line.strip_prefix("x-switchtower-worker: "));
        Answer { worker: worker.unwrap().to_owned(), text }
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn ending(response: &str) -> Ending {
    let status = response.split(' ').nth(1).unwrap_or("");
    match status.as_bytes().first() {
        Some(b'2') if response.contains("text/event-stream") && !response.contains("data: [DONE]") => {
            Ending::Broken
        }
        Some(b'2') if response.contains("data: {\"error\"") => Ending::Failed,
        Some(b'2') => Ending::Answered,
        Some(b'4') => Ending::Refused,
        _ => Ending::Failed,
    }
}

async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// The response to a GET, head and all.
pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")).await
}
