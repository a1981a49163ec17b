//! Chats without a pause, from several clients, and what became of each.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use sim::server::Server;
use tokio::task::JoinHandle;
use xtask::draw::Draw;
use xtask::http::{Connection, Length, Response, head};

use crate::{CHAT, chat_body, eventually};

/// Clients that send one chat after the other until they are stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    tally: Arc<Mutex<Tally>>,
    clients: Vec<JoinHandle<()>>,
}

/// What became of the chats of all clients.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// In the order in which they ended.
    pub outcomes: Vec<Outcome>,
}

/// What became of one chat.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The status, 500 for a stream that tells of an error; `None` when there was no whole answer
    /// in time.
    pub status: Option<u16>,
    /// The address of the simulated server that answered.
    pub by: Option<String>,
}

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// How many at once.
    pub clients: usize,
    /// How long one waits for bytes before it leaves.
    pub patience: Duration,
}

impl Load {
    /// Starts the clients; every prompt is a new one.
    pub fn start(traffic: SocketAddr, options: LoadOptions) -> Self {
        let (stop, tally) = <(Arc<AtomicBool>, Arc<Mutex<Tally>>)>::default();
        let clients = (0..options.clients).map(|client| {
            let (stop, tally) = (Arc::clone(&stop), Arc::clone(&tally));
            tokio::spawn(async move {
                let mut draw = Draw::new(client as u64);
                while !stop.load(Ordering::Relaxed) {
                    let response = chat(traffic, &draw.prose(200), options.patience).await;
                    let outcome = response.map_or_else(|_| Outcome::default(), Outcome::of);
                    lock(&tally).outcomes.push(outcome);
                }
            })
        });
        Self {
            clients: clients.collect(),
            stop,
            tally,
        }
    }

    /// What came of the chats so far.
    pub fn tally(&self) -> Tally {
        lock(&self.tally).clone()
    }

    /// Waits for `count` more chats to end, and gives what came of those that ended meanwhile.
    pub async fn more(&self, count: usize) -> Result<Tally> {
        let before = self.tally().outcomes.len();
        let more = eventually(async || self.tally().outcomes.len() >= before + count);
        ensure!(more.await, "requests no longer end");
        Ok(self.tally().after(before))
    }

    /// Ends the clients, each after its last chat.
    pub async fn stop(self) -> Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await?;
        }
        Ok(lock(&self.tally).clone())
    }
}

impl Outcome {
    fn of(response: Response) -> Self {
        let is_error = response.text().starts_with("data: {\"error\"");
        Self {
            status: Some(if is_error { 500 } else { response.status }),
            by: response.header("x-sim-endpoint").map(str::to_owned),
        }
    }
}

impl Tally {
    /// Without the first `count`.
    #[must_use]
    pub fn after(mut self, count: usize) -> Self {
        self.outcomes.drain(..count.min(self.outcomes.len()));
        self
    }

    /// How many had no whole answer, or another one than 200.
    pub fn failed(&self) -> usize {
        let is_ok = |outcome: &&Outcome| outcome.status == Some(200);
        self.outcomes.len() - self.outcomes.iter().filter(is_ok).count()
    }

    /// How many `server` has answered with 200.
    pub fn served_by(&self, server: &Server) -> usize {
        let address = server.address().to_string();
        let is_its = |outcome: &&Outcome| {
            outcome.status == Some(200) && outcome.by.as_deref() == Some(&address)
        };
        self.outcomes.iter().filter(is_its).count()
    }
}

async fn chat(traffic: SocketAddr, prompt: &str, patience: Duration) -> Result<Response> {
    let body = chat_body(prompt, 1);
    let mut connection = Connection::open(traffic).await?.with_limit(patience);
    let headers = [
        ("content-type", "application/json"),
        ("connection", "close"),
    ];
    let mut bytes = head("POST", CHAT, &headers, Length::Known(body.len()));
    bytes.extend_from_slice(body.as_bytes());
    connection.send(&bytes).await?;
    connection.response(false).await
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}
