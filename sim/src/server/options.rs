//! What a server is started with.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::faults::Faults;
use crate::engine::Config;
use crate::profile::Profile;

/// The settings of one server; the default is an L4 in real time on a free loopback port.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The served model, as answers and metrics name it.
    pub model: String,
    /// Other names of the same model.
    pub aliases: Vec<String>,
    /// LoRA adapters: served under their own names, with a cache of their own.
    pub adapters: Vec<String>,
    /// Whether a request for any other model is answered with 404.
    ///
    /// If not, another name is one more adapter.
    pub strict_models: bool,
    /// How fast the server is and how much it holds.
    pub profile: Profile,
    /// By how much everything is faster than the profile says; 10 makes a step ten times shorter.
    pub time_scale: f64,
    /// KV blocks on the metrics page; without [`usable_blocks`](Self::usable_blocks), all but one
    /// of them are used.
    pub num_gpu_blocks: Option<u32>,
    /// KV blocks that really hold something.
    pub usable_blocks: Option<u32>,
    /// Most requests that run at once.
    pub max_num_seqs: Option<usize>,
    /// Most tokens computed in one step.
    pub max_num_batched_tokens: Option<usize>,
    /// Most tokens of a request, prompt and output together.
    pub max_model_len: Option<usize>,
    /// Adapters that stay in memory, and whose requests run at once; any number unless set.
    pub max_loras: Option<usize>,
    /// Whether blocks are kept by their content.
    pub prefix_caching: bool,
    /// Whether `usage` tells how many tokens came from the cache.
    pub prompt_tokens_details: bool,
    /// Whether a POST to an unknown path reads the body and succeeds.
    pub accept_unknown: bool,
    /// After how long an idle connection is closed.
    pub keep_alive: Duration,
    /// What goes wrong from the start.
    pub faults: Faults,
    /// How many requests the log keeps.
    pub log_len: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            model: "sim-model".to_owned(),
            aliases: Vec::new(),
            adapters: Vec::new(),
            strict_models: false,
            profile: Profile::l4(),
            time_scale: 1.0,
            num_gpu_blocks: None,
            usable_blocks: None,
            max_num_seqs: None,
            max_num_batched_tokens: None,
            max_model_len: None,
            max_loras: None,
            prefix_caching: true,
            prompt_tokens_details: true,
            accept_unknown: false,
            keep_alive: KEEP_ALIVE,
            faults: Faults::default(),
            log_len: LOG_LEN,
        }
    }
}

impl ServerOptions {
    /// The engine's limits: the profile's, where nothing else was asked for.
    pub fn engine(&self) -> Config {
        let profile = &self.profile.engine;
        let usable = match (self.usable_blocks, self.num_gpu_blocks) {
            (Some(usable), _) => usable,
            (None, Some(reported)) => reported.saturating_sub(1),
            (None, None) => profile.num_blocks - 1,
        };
        let usable = usable.clamp(1, USABLE_BLOCKS_MAX);
        let room = usable as usize * profile.block_size;
        Config {
            num_blocks: usable + 1,
            max_num_seqs: self.max_num_seqs.unwrap_or(profile.max_num_seqs).max(1),
            max_num_batched_tokens: self
                .max_num_batched_tokens
                .unwrap_or(profile.max_num_batched_tokens)
                .max(1),
            max_model_len: self
                .max_model_len
                .unwrap_or(profile.max_model_len)
                .clamp(2, room),
            prefix_caching: self.prefix_caching,
            max_adapters: self.max_loras.unwrap_or(profile.max_adapters),
            ..profile.clone()
        }
    }

    /// The number of blocks on the metrics page.
    pub fn blocks_reported(&self) -> u32 {
        match (self.num_gpu_blocks, self.usable_blocks) {
            (Some(reported), _) => reported,
            (None, Some(usable)) => usable.saturating_add(1),
            (None, None) => self.profile.blocks_reported,
        }
    }
}

/// What vLLM's HTTP server has unless told otherwise.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Requests kept in the log: more than any test sends.
const LOG_LEN: usize = 1024;

/// 256 million tokens, more than any accelerator holds; bounds what the pool allocates.
const USABLE_BLOCKS_MAX: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_reported_and_blocks_used_may_differ() {
        for (reported, usable, expected) in [
            (None, None, (10_217, 9_818)),
            (Some(101), None, (101, 100)),
            (None, Some(100), (101, 100)),
            (Some(500), Some(100), (500, 100)),
        ] {
            let options = ServerOptions {
                num_gpu_blocks: reported,
                usable_blocks: usable,
                ..ServerOptions::default()
            };
            let got = (options.blocks_reported(), options.engine().num_blocks - 1);
            assert_eq!(got, expected, "{reported:?} {usable:?}");
        }
    }
}
