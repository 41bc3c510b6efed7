//! A TCP proxy between a client and a server that fails as networks do: it stalls, refuses, delays.
//!
//! Moves bytes and knows no protocol. Its tasks live in it and end when it drops.

use super::free_port;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

/// A proxy on a port of its own.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    applied: watch::Receiver<Mode>,
    _tasks: JoinSet<()>,
}

/// What it does with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Bytes arrive this much later.
    Pass(Duration),
    /// Connections are kept and accepted, and no byte moves.
    Stall,
    /// Connections are closed, and new ones refused.
    Refuse,
}

/// What one direction of a connection has under way: bytes and when they are due. Bounded, so a stalled direction
/// pushes back on its sender as a real path does.
const UNDER_WAY: usize = 64;

impl Proxy {
    /// A proxy to `target` that passes everything.
    ///
    /// # Errors
    /// No port can be opened.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let listener = TcpListener::bind(address).await?;
        let (mode, modes) = watch::channel(Mode::Pass(Duration::ZERO));
        let (reached, applied) = watch::channel(Mode::Pass(Duration::ZERO));
        let mut tasks = JoinSet::new();
        tasks.spawn(Acceptor { address, target, modes, reached }.run(listener));
        Ok(Self { address, mode, applied, _tasks: tasks })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Passes everything at once, also what was stalled.
    pub async fn pass(&self) {
        self.set(Mode::Pass(Duration::ZERO)).await;
    }

    /// Passes everything, each byte this much later.
    pub async fn delay(&self, delay: Duration) {
        self.set(Mode::Pass(delay)).await;
    }

    /// Keeps all connections, accepts new ones, and moves no byte: a black hole.
    pub async fn stall(&self) {
        self.set(Mode::Stall).await;
    }

    /// Closes all connections and refuses new ones. Returns when that is so.
    pub async fn refuse(&self) {
        self.set(Mode::Refuse).await;
    }

    async fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
        // Fails only if the acceptor panicked, which shows itself in everything that follows.
        let _ = self.applied.clone().wait_for(|applied| *applied == mode).await;
    }
}

struct Acceptor {
    address: SocketAddr,
    target: SocketAddr,
    modes: watch::Receiver<Mode>,
    reached: watch::Sender<Mode>,
}

impl Acceptor {
    async fn run(mut self, listener: TcpListener) {
        let mut listener = Some(listener);
        let mut connections = JoinSet::new();
        loop {
            let mode = *self.modes.borrow_and_update();
            if mode == Mode::Refuse {
                listener = None;
                connections.shutdown().await;
            } else if listener.is_none() {
                listener = Some(self.listen().await);
            }
            self.reached.send_replace(mode);
            tokio::select! {
                changed = self.modes.changed() => if changed.is_err() { return },
                Some(client) = accept(listener.as_ref()) => {
                    connections.spawn(connection(client, self.target, self.modes.clone()));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Listens on the same port again; somebody's connection may hold it for a moment.
    async fn listen(&self) -> TcpListener {
        loop {
            if let Ok(listener) = TcpListener::bind(self.address).await {
                return listener;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The next client; none for ever without a listener.
async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

async fn connection(client: TcpStream, target: SocketAddr, modes: watch::Receiver<Mode>) {
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    for stream in [&client, &server] {
        // A proxy that waits for more bytes would delay what it should pass at once.
        let _ = stream.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // An error in one direction ends both: the streams drop together.
    let _ = tokio::try_join!(
        direction(from_client, to_server, modes.clone()),
        direction(from_server, to_client, modes)
    );
}

/// Moves bytes one way until their end, which is passed on.
async fn direction(
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    modes: watch::Receiver<Mode>,
) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel(UNDER_WAY);
    tokio::try_join!(read(from, sender, modes.clone()), write(to, receiver, modes))?;
    Ok(())
}

type Chunk = (Instant, Vec<u8>);

async fn read(
    mut from: impl AsyncRead + Unpin,
    sender: mpsc::Sender<Chunk>,
    mut modes: watch::Receiver<Mode>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let delay = moving(&mut modes).await?;
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let chunk = (Instant::now() + delay, buffer[..count].to_vec());
        sender.send(chunk).await.map_err(|_| io::ErrorKind::BrokenPipe)?;
    }
}

async fn write(
    mut to: impl AsyncWrite + Unpin,
    mut receiver: mpsc::Receiver<Chunk>,
    mut modes: watch::Receiver<Mode>,
) -> io::Result<()> {
    while let Some((due, bytes)) = receiver.recv().await {
        sleep_until(due).await;
        moving(&mut modes).await?;
        to.write_all(&bytes).await?;
    }
    to.shutdown().await
}

/// Waits while nothing moves; how late bytes are to be.
async fn moving(modes: &mut watch::Receiver<Mode>) -> io::Result<Duration> {
    let mode = modes.wait_for(|mode| matches!(mode, Mode::Pass(_))).await;
    match mode.map(|mode| *mode) {
        Ok(Mode::Pass(delay)) => Ok(delay),
        _ => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::{PATIENCE, eventually};
    use tokio::time::timeout;

    /// A server that gives back what it gets.
    async fn echo() -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                clients.spawn(async move {
                    let (mut read, mut write) = client.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        (address, tasks)
    }

    async fn ask(client: &mut TcpStream, word: &[u8; 4]) {
        client.write_all(word).await.unwrap();
        let mut answer = [0; 4];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, word);
    }

    #[tokio::test]
    async fn bytes_pass_stall_and_pass_again_on_the_same_connection() {
        let (target, _server) = echo().await;
        let proxy = Proxy::start(target).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        ask(&mut client, b"ping").await;
        proxy.stall().await;
        client.write_all(b"held").await.unwrap();
        let mut answer = [0; 4];
        let heard = timeout(Duration::from_millis(100), client.read_exact(&mut answer)).await;
        assert!(heard.is_err(), "a byte moved");
        proxy.pass().await;
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"held");
    }

    #[tokio::test]
    async fn refusing_closes_what_there_is_and_passing_opens_the_same_port() {
        let (target, _server) = echo().await;
        let proxy = Proxy::start(target).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        ask(&mut client, b"ping").await;
        proxy.refuse().await;
        assert!(!matches!(timeout(PATIENCE, client.read(&mut [0; 4])).await.unwrap(), Ok(1..)));
        assert!(TcpStream::connect(proxy.address()).await.is_err());
        proxy.pass().await;
        eventually("a connection", PATIENCE, async || TcpStream::connect(proxy.address()).await.is_ok())
            .await;
        ask(&mut TcpStream::connect(proxy.address()).await.unwrap(), b"back").await;
    }

    #[tokio::test]
    async fn a_delay_delays_and_the_end_of_a_stream_is_passed_on() {
        let (target, _server) = echo().await;
        let proxy = Proxy::start(target).await.unwrap();
        proxy.delay(Duration::from_millis(50)).await;
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let asked = Instant::now();
        ask(&mut client, b"late").await;
        assert!(asked.elapsed() >= Duration::from_millis(100), "both ways are delayed");
        client.shutdown().await.unwrap();
        assert_eq!(timeout(PATIENCE, client.read(&mut [0; 4])).await.unwrap().unwrap(), 0);
    }
}
