//! One run: what the fleet can serve, how it answers while there is room, or too much for it.

use std::time::Duration;

use super::driver::{self, Load, Setup};
use super::figures::Figures;
use super::traffic::Traffic;
use super::variant::Variant;
use crate::profile::Profile;

/// The servers.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Each of them.
    pub profile: Profile,
    /// How many.
    pub servers: usize,
}

/// What a fleet can serve, a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rate {
    /// Requests.
    pub requests: f64,
    /// Tokens of their answers.
    pub tokens: f64,
}

/// A run that has not been made yet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Case {
    /// The configuration.
    pub variant: Variant,
    /// Who asks for what.
    pub traffic: Traffic,
    /// Workers of the Envoy.
    pub workers: usize,
    /// Requests a second, of those that the fleet can serve.
    pub load: f64,
    /// The same seed gives the same figures.
    pub seed: u64,
}

impl Fleet {
    /// What it serves to so many clients for each server, who never wait between two requests.
    ///
    /// `None` when the picker cannot read its configuration.
    pub fn rate(&self, clients: usize, seed: u64) -> Option<Rate> {
        let traffic = Traffic::Tenants;
        let load = Load::Closed {
            requests: traffic.requests(seed),
            clients: clients * self.servers,
            until: CLOSED_FOR,
        };
        let counted = (CLOSED_RAMP, CLOSED_FOR);
        let figures = self.run((Variant::None, traffic, 1, seed), load, counted)?;
        Some(Rate {
            requests: figures.requests_per_s,
            tokens: figures.tokens_per_s,
        })
    }

    /// Makes the run of `case`, where the fleet can serve so many `requests` a second.
    pub fn case(&self, case: Case, requests: f64) -> Option<Figures> {
        let Case {
            variant,
            traffic,
            workers,
            load,
            seed,
        } = case;
        let requests = traffic.poisson(seed, load * requests, OPEN_FOR);
        let of = (variant, traffic, workers, seed);
        self.run(of, Load::Open(requests), (OPEN_RAMP, OPEN_FOR))
    }

    fn run(
        &self,
        (variant, traffic, workers, seed): (Variant, Traffic, usize, u64),
        load: Load,
        (from, until): (Duration, Duration),
    ) -> Option<Figures> {
        let priorities = traffic.bands().iter().map(|it| it.0);
        let outcome = driver::run(Setup {
            load,
            servers: vec![self.profile.clone(); self.servers],
            workers,
            picker: variant.picker(priorities),
            seed,
        })?;
        Some(Figures::of(&outcome, from, until))
    }
}

/// Clients for each server that its capacity is looked for with.
pub const CLIENTS: [usize; 5] = [32, 64, 128, 256, 512];

/// The load while there is room, of what the fleet can serve.
pub const ROOMY: f64 = 0.3;

/// The load that is too much.
pub const TOO_MUCH: f64 = 1.5;

/// The time before anything counts, in which the servers fill up.
const OPEN_RAMP: Duration = Duration::from_secs(15);

/// How long requests come: five minutes that count.
const OPEN_FOR: Duration = Duration::from_secs(315);

/// The time before anything counts of clients that all begin at once: that of their longest answers.
const CLOSED_RAMP: Duration = Duration::from_secs(60);

/// How long those ask.
const CLOSED_FOR: Duration = Duration::from_secs(180);
