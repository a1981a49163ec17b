//! What we count about ourselves, and the final names of it.
//!
//! A name carries its labels as `;key=value`; the `stats_tags` of the shipped configurations turn
//! them into labels.

use alloc::format;
use alloc::string::String;

use crate::scrape::ScrapeFailure;

/// One stat of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stat {
    /// Counter: requests sent to an endpoint of our choice.
    Picks,
    /// Counter: blocks of prompt in those requests.
    PromptBlocks,
    /// Counter: blocks of those that the chosen endpoint held.
    MatchedBlocks,
    /// Counter: tokens of prompts, as endpoints counted them in their answers.
    PromptTokens,
    /// Counter: those of them that an endpoint found in its cache.
    CachedTokens,
    /// Counter: tokens generated; events with output where a stream does not count its tokens.
    OutputTokens,
    /// Counter: answers with a content coding, whose tokens are not counted.
    CodedAnswers,
    /// Counter: answers with a content coding that show another name of the model than they should.
    UnrenamedAnswers,
    /// Counter: streams whose first token came.
    FirstTokens,
    /// Counter: microseconds from the choice to the first token, over these streams.
    FirstTokenMicros,
    /// Counter: tokens of streams after the first of each.
    LaterTokens,
    /// Counter: microseconds from the first token to the end, over these streams.
    LaterTokenMicros,
    /// Counter: requests sent in stages, by how these were divided.
    Divided(&'static str),
    /// Counter: requests answered by us, with the reason that the answer gives.
    Refusals(&'static str),
    /// Counter: requests left to the route because no endpoint was eligible.
    FailedOpen,
    /// Counter: requests that other pools served, for this one had no endpoint.
    Fallbacks,
    /// Counter: requests whose model got another name.
    ModelRewrites,
    /// Counter: headers that name another objective, or another tenant, than the one that counts.
    ObjectiveConflicts,
    /// Counter: request bodies that could not be understood.
    UnreadableBodies,
    /// Counter: requests served by another endpoint than the one chosen.
    OverrideMissed,
    /// Counter: scrapes that taught something.
    Scrapes,
    /// Counter: scrapes that did not.
    ScrapeFailures(ScrapeFailure),
    /// Counter: endpoints found to have restarted.
    Restarts,
    /// Counter: answers that should have told the endpoints and did not, by reason.
    DiscoveryFailures(&'static str),
    /// Gauge: endpoints that are known where they are discovered.
    DiscoveredEndpoints,
    /// Gauge: how long no answer has told the endpoints, in milliseconds; they stay as they were.
    DiscoveryAge,
    /// Gauge: 1 while a list is doubted because more than half of the endpoints are missing.
    DiscoveryHeld,
    /// Counter: times another worker wrote the ledger between our reading and our writing.
    LedgerConflicts,
    /// Counter: times a worker was too far behind to read the ring in full.
    RingLapped,
    /// Counter: placements that could not be understood.
    PlacementsUnlinked,
    /// Counter: snapshots that could not be read.
    SnapshotsUnreadable,
    /// Gauge: how much waits in the band of this priority, in all workers.
    Queue(Queued, i32),
    /// Gauge: how full the endpoints are, in percent; that of none is 100.
    Saturation,
    /// Gauge: 1 while a worker that came late lacks what was placed before.
    TwinCold,
    /// Gauge: 1 while an older configuration of this pool is still in use beside a newer one.
    ConfigConflict,
}

/// What is told of a queue. Autoscalers know it by the names of the reference picker, those of today
/// and those it had before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queued {
    /// Requests.
    Size,
    /// Requests, by the old name.
    OldSize,
    /// Bytes of their bodies.
    Bytes,
    /// Bytes of their bodies, by the old name.
    OldBytes,
    /// How long the first of those has waited that are first in their flows, in milliseconds: what
    /// shows that a band starves. It has no name in the reference picker.
    Oldest,
}

impl Stat {
    /// The name under which `pool` counts this.
    pub fn name(self, pool: &str) -> String {
        let (name, label) = match self {
            Self::Queue(queued, priority) => {
                let (prefix, name) = match queued {
                    Queued::Oldest => {
                        return format!("picker_queue_oldest_ms;pool={pool};priority={priority}");
                    }
                    Queued::Size => (REFERENCE, "queue_size"),
                    Queued::OldSize => (OLD_REFERENCE, "queue_size"),
                    Queued::Bytes => (REFERENCE, "queue_bytes"),
                    Queued::OldBytes => (OLD_REFERENCE, "queue_bytes"),
                };
                return format!(
                    "{prefix}_flow_control_{name};inference_pool={pool};priority={priority}"
                );
            }
            Self::Saturation => ("saturation_percent", None),
            Self::Picks => ("picks_total", None),
            Self::PromptBlocks => ("prompt_blocks_total", None),
            Self::MatchedBlocks => ("matched_blocks_total", None),
            Self::PromptTokens => ("prompt_tokens_total", None),
            Self::CachedTokens => ("cached_tokens_total", None),
            Self::OutputTokens => ("output_tokens_total", None),
            Self::CodedAnswers => ("coded_answers_total", None),
            Self::UnrenamedAnswers => ("unrenamed_answers_total", None),
            Self::FirstTokens => ("first_tokens_total", None),
            Self::FirstTokenMicros => ("first_token_us_total", None),
            Self::LaterTokens => ("later_tokens_total", None),
            Self::LaterTokenMicros => ("later_token_us_total", None),
            Self::Divided(division) => ("disagg_decision_total", Some(("decision_type", division))),
            Self::Refusals(reason) => ("refusals_total", Some(("reason", reason))),
            Self::FailedOpen => ("failed_open_total", None),
            Self::Fallbacks => ("fallbacks_total", None),
            Self::ModelRewrites => ("model_rewrites_total", None),
            Self::ObjectiveConflicts => ("objective_conflicts_total", None),
            Self::UnreadableBodies => ("unreadable_bodies_total", None),
            Self::OverrideMissed => ("override_missed_total", None),
            Self::Scrapes => ("scrapes_total", None),
            Self::ScrapeFailures(failure) => {
                ("scrape_failures_total", Some(("reason", failure.reason())))
            }
            Self::Restarts => ("endpoint_restarts_total", None),
            Self::DiscoveryFailures(reason) => {
                ("discovery_failures_total", Some(("reason", reason)))
            }
            Self::DiscoveredEndpoints => ("discovered_endpoints", None),
            Self::DiscoveryAge => ("discovery_age_ms", None),
            Self::DiscoveryHeld => ("discovery_held", None),
            Self::LedgerConflicts => ("ledger_conflicts_total", None),
            Self::RingLapped => ("ring_lapped_total", None),
            Self::PlacementsUnlinked => ("placements_unlinked_total", None),
            Self::SnapshotsUnreadable => ("snapshots_unreadable_total", None),
            Self::TwinCold => ("twin_cold", None),
            Self::ConfigConflict => ("config_conflict", None),
        };
        match label {
            None => format!("picker_{name};pool={pool}"),
            Some((tag, value)) => format!("picker_{name};pool={pool};{tag}={value}"),
        }
    }

    /// Whether this is a gauge; all others only grow.
    pub fn is_gauge(self) -> bool {
        matches!(
            self,
            Self::ConfigConflict
                | Self::DiscoveredEndpoints
                | Self::DiscoveryAge
                | Self::DiscoveryHeld
                | Self::Queue(..)
                | Self::Saturation
                | Self::TwinCold
        )
    }
}

/// What the reference picker's names begin with.
const REFERENCE: &str = "llm_d_epp";

/// What they began with before the project moved.
const OLD_REFERENCE: &str = "inference_extension";
