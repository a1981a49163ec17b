//! Endpoints that cost next to nothing: they read a request and always answer with the same bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::ports;

/// Endpoints on loopback; they end when this is dropped.
pub(super) struct Upstream {
    addresses: Vec<SocketAddr>,
    awake: Arc<AtomicUsize>,
    page_bytes: Arc<AtomicUsize>,
    blocks: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Upstream {
    /// Starts `count` endpoints, on ports from `first_port` on or on free ones.
    pub(super) async fn start(count: usize, first_port: Option<u16>) -> Result<Self> {
        let awake = Arc::new(AtomicUsize::new(ALL));
        let page_bytes = Arc::new(AtomicUsize::new(0));
        let blocks = Arc::new(AtomicUsize::new(BLOCKS));
        let (mut addresses, mut tasks) = (Vec::new(), JoinSet::new());
        for number in 0..count {
            let address = match first_port {
                Some(first) => SocketAddr::from(([127, 0, 0, 1], first + number as u16)),
                None => ports::free()?,
            };
            let listener = TcpListener::bind(address).await;
            let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
            addresses.push(address);
            let (awake, page_bytes) = (Arc::clone(&awake), Arc::clone(&page_bytes));
            let blocks = Arc::clone(&blocks);
            tasks.spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let endpoint = Endpoint {
                        number,
                        awake: Arc::clone(&awake),
                        page_bytes: Arc::clone(&page_bytes),
                        blocks: Arc::clone(&blocks),
                    };
                    tokio::spawn(endpoint.serve(stream));
                }
            });
        }
        Ok(Self {
            addresses,
            awake,
            page_bytes,
            blocks,
            _tasks: tasks,
        })
    }

    /// Where they listen, in order.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Makes metrics pages at least this long, by histograms as engines have them.
    pub(super) fn pad_pages(&self, bytes: usize) {
        self.page_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Lets every endpoint say that its cache has room for so many tokens.
    pub(super) fn tell_tokens(&self, tokens: usize) {
        self.blocks.store(tokens / BLOCK_TOKENS, Ordering::Relaxed);
    }

    /// Lets all but the endpoint `number` say that they sleep; `None` wakes all.
    pub(super) fn wake_only(&self, number: Option<usize>) {
        self.awake.store(number.unwrap_or(ALL), Ordering::Relaxed);
    }
}

struct Endpoint {
    number: usize,
    awake: Arc<AtomicUsize>,
    page_bytes: Arc<AtomicUsize>,
    blocks: Arc<AtomicUsize>,
}

impl Endpoint {
    /// Answers requests until the connection ends, in whatever way.
    async fn serve(self, mut stream: TcpStream) {
        let mut buffer = Vec::with_capacity(1 << 16);
        if stream.set_nodelay(true).is_err() {
            return;
        }
        while let Some(head) = read_request(&mut stream, &mut buffer).await {
            if self.answer(&mut stream, &head).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, stream: &mut TcpStream, head: &str) -> std::io::Result<()> {
        if head.starts_with("get /metrics") {
            let awake = self.awake.load(Ordering::Relaxed);
            let blocks = self.blocks.load(Ordering::Relaxed);
            let mut page = page(awake == ALL || awake == self.number, blocks);
            for number in 0.. {
                if page.len() >= self.page_bytes.load(Ordering::Relaxed) {
                    break;
                }
                page.push_str(&bucket(number));
            }
            let head = self.head("text/plain", &format!("content-length: {}", page.len()));
            return stream.write_all(format!("{head}{page}").as_bytes()).await;
        }
        let chunks = header(head, CHUNKS).and_then(|value| value.parse().ok());
        let Some(chunks) = chunks.filter(|chunks: &u32| *chunks > 0) else {
            let length = format!("content-length: {}", ANSWER.len());
            let head = self.head("application/json", &length);
            return stream.write_all(format!("{head}{ANSWER}").as_bytes()).await;
        };
        let head = self.head("text/event-stream", "transfer-encoding: chunked");
        stream.write_all(head.as_bytes()).await?;
        let chunk = format!("{:x}\r\n{EVENT}\r\n", EVENT.len());
        for _ in 0..chunks {
            stream.write_all(chunk.as_bytes()).await?;
            // Time for Envoy to read this one by itself: what it reads at once is one chunk.
            sleep(PACE).await;
        }
        stream.write_all(b"0\r\n\r\n").await
    }

    fn head(&self, content_type: &str, framing: &str) -> String {
        let number = self.number;
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nx-sim-endpoint: {number}\r\n\
             {framing}\r\n\r\n"
        )
    }
}

/// Reads a request and drops its body; gives its head, `None` when the connection has ended.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(buffer.get(..end)?).to_ascii_lowercase();
    buffer.drain(..end);
    if header(&head, "transfer-encoding").is_some() {
        // Chunks of what was sent with a length; nobody sends trailers here.
        while !buffer.ends_with(b"0\r\n\r\n") {
            let kept = buffer.split_off(buffer.len().saturating_sub(5));
            *buffer = kept;
            if stream.read_buf(buffer).await.ok()? == 0 {
                return None;
            }
        }
        buffer.clear();
        return Some(head);
    }
    let mut left = header(&head, "content-length").map_or(Some(0), |value| value.parse().ok())?;
    loop {
        let taken = buffer.len().min(left);
        buffer.drain(..taken);
        left -= taken;
        if left == 0 {
            return Some(head);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// The value of a header in a head in lower case.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n")
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// A metrics page of vLLM, with what the picker reads.
fn page(awake: bool, blocks: usize) -> String {
    let (awake, asleep) = if awake { (1, 0) } else { (0, 1) };
    format!(
        "process_start_time_seconds 1.7e9\n\
         vllm:num_requests_running{{engine=\"0\"}} 0.0\n\
         vllm:num_requests_waiting{{engine=\"0\"}} 0.0\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.25\n\
         vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"awake\"}} {awake}.0\n\
         vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"weights_offloaded\"}} {asleep}.0\n\
         vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"discard_all\"}} 0.0\n\
         vllm:cache_config_info{{block_size=\"{BLOCK_TOKENS}\",enable_prefix_caching=\"True\",engine=\"0\",\
         num_gpu_blocks=\"{blocks}\"}} 1.0\n"
    )
}

/// A line that the picker passes over.
fn bucket(number: usize) -> String {
    format!(
        "vllm:time_to_first_token_seconds_bucket{{engine=\"0\",le=\"{number}.5\",\
         model_name=\"meta-llama/Llama-3.1-8B-Instruct\"}} {number}.0\n"
    )
}

/// The header that asks for a stream, with the number of its chunks.
pub(super) const CHUNKS: &str = "x-bench-chunks";

/// The value of `awake` while no endpoint sleeps.
const ALL: usize = usize::MAX;

/// Tokens in a block of the KV cache.
const BLOCK_TOKENS: usize = 16;

/// Blocks of an endpoint, unless told otherwise: 3.2 million tokens, so that prompts stay.
const BLOCKS: usize = 200_000;

/// Between two chunks of a stream.
const PACE: Duration = Duration::from_millis(1);

const ANSWER: &str = r#"{"id":"1","object":"chat.completion","choices":[{"index":0,"message":
    {"role":"assistant","content":"Yes."},"finish_reason":"stop"}]}"#;

const EVENT: &str = "data: {\"id\":\"chatcmpl-7c0f4f9d2b0e4a53a5b8f2d4c3e1a0b9\",\
    \"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"llama\",\
    \"choices\":[{\"index\":0,\"delta\":{\"content\":\" tide\"},\"finish_reason\":null}]}\n\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Connection, fetch};

    #[tokio::test]
    async fn bodies_are_read_to_their_end_and_streams_have_the_chunks_asked_for() {
        let upstream = Upstream::start(2, None).await.unwrap();
        let address = upstream.addresses()[1];
        let mut connection = Connection::open(address).await.unwrap();
        for bytes in [0, 1, 100_000] {
            let body = vec![b'x'; bytes];
            let response = connection.request("POST", "/v1/x", &[], &body).await;
            let response = response.unwrap();
            assert_eq!(response.header("x-sim-endpoint"), Some("1"), "{bytes}");
        }
        let response = connection
            .request("POST", "/", &[(CHUNKS, "3")], b"x")
            .await;
        let text = response.unwrap().text();
        assert_eq!(text.matches("data: ").count(), 3, "{text}");
    }

    #[tokio::test]
    async fn only_the_endpoint_that_is_awake_says_so() {
        let upstream = Upstream::start(2, None).await.unwrap();
        upstream.wake_only(Some(0));
        let mut pages = Vec::new();
        for address in upstream.addresses() {
            pages.push(fetch(*address, "/metrics").await.unwrap().text());
        }
        let awake = |page: &String| page.contains("\"awake\"} 1.0");
        assert_eq!(pages.iter().map(awake).collect::<Vec<_>>(), [true, false]);
    }
}
