//! Requests that belong together go to one endpoint.
//!
//! Either the answer carries a token for the endpoint and the client repeats it, or the client
//! names its session and all workers remember where that is. A token says nothing to who has not
//! the key it was made with. It names an address of the pool or nothing, so no client can send
//! itself elsewhere.

mod bindings;
mod key;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

use self::bindings::{Binding, bind, find};
pub use self::key::SessionKey;
use crate::draw::Draws;
use crate::identity::{Identity, Source};
use crate::plan::Plan;
use crate::request::Request;
use crate::shared::SharedData;
use crate::snapshot::EndpointState;
use crate::sort::sort;
use crate::{Address, EndpointId, Span, Timestamp};

/// How those who come back find their endpoint: what `session-affinity-scorer` and
/// `session-affinity-filter` say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Affinity {
    /// How it is remembered.
    pub by: AffinityBy,
    /// Whether it is the endpoint that computes the prompt, where that is another than the one that
    /// answers.
    pub of_prefill: bool,
}

/// How a session's endpoint is remembered, named as in the reference picker's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AffinityBy {
    /// `session_id`: by the workers, under the name that the client gives the session.
    Id(SessionIds),
    /// `encoded_endpoint_header`: by the client, in this header, in lower case.
    Token(String),
}

/// Sessions that clients name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionIds {
    /// Where a request names its session; the first that is there counts.
    pub sources: Vec<Source>,
    /// How long a session is remembered that is not used.
    pub lifetime: Span,
    /// How much longer it may be, so that not every use has to be noted.
    pub sweep: Span,
}

/// The sessions of a pool, as one worker keeps them.
pub(crate) struct Sessions {
    pool: String,
    rules: Vec<Rule>,
    key: Option<SessionKey>,
    /// The listed endpoints by their tokens.
    tokens: Vec<(u64, EndpointId)>,
}

struct Rule {
    affinity: Affinity,
    /// Its sources, none of them an attribute.
    sources: Vec<Source>,
    /// Keeps its sessions apart from those of others.
    salt: u64,
}

/// What one rule knows of one request.
pub(crate) struct Pin {
    /// The place of the rule.
    rule: usize,
    /// The hash of the session's name; `None` for a token.
    session: Option<u64>,
    bound: Option<Binding>,
    endpoint: Option<EndpointId>,
}

/// Where a request of a session went.
pub(crate) struct Went<'a> {
    /// The endpoints that could have been chosen.
    pub(crate) considered: &'a [EndpointId],
    /// The one that answers.
    pub(crate) endpoint: EndpointId,
    /// The one that computes the prompt, where that is another.
    pub(crate) prefill: Option<EndpointId>,
}

impl Affinity {
    /// An attribute that it asks for and that none of `identities` is; `None` when there is none.
    pub(crate) fn unsaid(&self, identities: &[Identity]) -> Option<&str> {
        let AffinityBy::Id(ids) = &self.by else {
            return None;
        };
        let is_unsaid = |it: &&Source| it.resolved(identities).is_empty();
        ids.sources.iter().find(is_unsaid).map(Source::name)
    }
}

impl Sessions {
    /// The sessions of a pool; `None` when `plan` has no use for them. `key` is the configured one.
    pub(crate) fn new(pool: &str, plan: &Plan, key: Option<SessionKey>) -> Option<Box<Self>> {
        let mut rules: Vec<Rule> = Vec::new();
        for affinity in plan.affinities() {
            if rules.iter().all(|it| it.affinity != *affinity) {
                rules.push(Rule::new(affinity, plan));
            }
        }
        (!rules.is_empty()).then(|| {
            Box::new(Self {
                pool: pool.to_string(),
                rules,
                key,
                tokens: Vec::new(),
            })
        })
    }

    /// Makes tokens for the endpoints that are listed now.
    pub(crate) fn follow(&mut self, endpoints: &[EndpointState]) {
        let tokens = endpoints
            .iter()
            .filter_map(|it| Some((self.token(it.address)?, it.id)));
        let mut tokens: Vec<(u64, EndpointId)> = tokens.collect();
        sort(&mut tokens);
        self.tokens = tokens;
    }

    /// Makes sure of the key.
    pub(crate) fn unlock(
        &mut self,
        shared: &impl SharedData,
        endpoints: &[EndpointState],
        draws: &mut Draws,
    ) {
        if self.key.is_none() {
            self.key = SessionKey::shared(shared, &self.pool, draws);
            self.follow(endpoints);
        }
    }

    /// What the rules know of `request`, in their order; those that know nothing are left out.
    pub(crate) fn pins(
        &self,
        shared: &impl SharedData,
        request: &Request,
        now: Timestamp,
    ) -> Vec<Pin> {
        let rules = self.rules.iter().enumerate();
        rules
            .filter_map(|(place, rule)| {
                let (session, bound, endpoint) = match &rule.affinity.by {
                    AffinityBy::Token(header) => {
                        let token = read_token(request.header(header)?)?;
                        (None, None, self.named_by(token))
                    }
                    AffinityBy::Id(ids) => {
                        let session = self.session(rule, request)?;
                        let lifetime = Span(ids.lifetime.0.saturating_add(ids.sweep.0));
                        let bound = find(shared, &self.pool, session, (lifetime, now));
                        (Some(session), bound, bound.map(|it| it.endpoint))
                    }
                };
                Some(Pin {
                    rule: place,
                    session,
                    bound,
                    endpoint,
                })
            })
            .collect()
    }

    /// The endpoint to which each rule would send the request.
    pub(crate) fn pinned<'a>(&'a self, pins: &[Pin]) -> Vec<(&'a Affinity, EndpointId)> {
        let pinned = pins.iter().filter_map(|pin| {
            let rule = self.rules.get(pin.rule)?;
            Some((&rule.affinity, pin.endpoint?))
        });
        pinned.collect()
    }

    /// Remembers where the request went, for sessions that have no endpoint or whose endpoint could
    /// not be chosen, and that the others were used.
    pub(crate) fn bind(
        &self,
        shared: &impl SharedData,
        pins: &[Pin],
        went: &Went<'_>,
        now: Timestamp,
    ) {
        for pin in pins {
            let rule = self.rules.get(pin.rule);
            let (Some(Rule { affinity, .. }), Some(session)) = (rule, pin.session) else {
                continue;
            };
            let AffinityBy::Id(ids) = &affinity.by else {
                continue;
            };
            let chosen = if affinity.of_prefill {
                went.prefill
            } else {
                Some(went.endpoint)
            };
            let Some(chosen) = chosen else { continue };
            let stays =
                |it: &Binding| it.endpoint == chosen || went.considered.contains(&it.endpoint);
            let kept = pin.bound.filter(stays);
            if kept.is_some_and(|it| now.apart(it.used) < ids.sweep) {
                continue;
            }
            let binding = Binding {
                session,
                endpoint: kept.map_or(chosen, |it| it.endpoint),
                used: now,
            };
            let lifetime = Span(ids.lifetime.0.saturating_add(ids.sweep.0));
            bind(shared, &self.pool, (pin.bound, binding), lifetime);
        }
    }

    /// Whether answers carry tokens.
    pub(crate) fn has_tokens(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|it| matches!(it.affinity.by, AffinityBy::Token(_)))
    }

    /// The headers of an answer that `endpoint` gives, the prompt computed by `prefill` where that is
    /// another.
    pub(crate) fn answer_headers(
        &self,
        endpoint: Option<Address>,
        prefill: Option<Address>,
    ) -> Vec<(String, String)> {
        let headers = self.rules.iter().filter_map(|rule| {
            let AffinityBy::Token(header) = &rule.affinity.by else {
                return None;
            };
            let address = if rule.affinity.of_prefill {
                prefill
            } else {
                endpoint
            };
            Some((header.clone(), write_token(self.token(address?)?)))
        });
        headers.collect()
    }

    /// The token of an address; `None` while there is no key.
    fn token(&self, address: Address) -> Option<u64> {
        let (pool, address) = (self.pool.as_bytes(), address.to_string());
        // No name of a pool contains a NUL.
        Some(
            self.key?
                .hash(&[b"token\0", pool, b"\0", address.as_bytes()]),
        )
    }

    fn named_by(&self, token: u64) -> Option<EndpointId> {
        let place = self.tokens.binary_search_by_key(&token, |it| it.0).ok()?;
        self.tokens.get(place).map(|(_, endpoint)| *endpoint)
    }

    /// The hash of the name that the request gives its session.
    fn session(&self, rule: &Rule, request: &Request) -> Option<u64> {
        let name = rule.sources.iter().find_map(|it| it.value(request))?;
        let salt = rule.salt.to_le_bytes();
        Some(self.key?.hash(&[b"session\0", &salt, name.as_bytes()]))
    }
}

impl Rule {
    fn new(affinity: &Affinity, plan: &Plan) -> Self {
        let sources = match &affinity.by {
            AffinityBy::Id(ids) => ids.sources.as_slice(),
            AffinityBy::Token(_) => &[],
        };
        let resolved = sources.iter().flat_map(|it| it.resolved(&plan.identities));
        let sources: Vec<Source> = resolved.collect();
        // Rules that differ only in how long they remember are about the same sessions.
        let mut names = Vec::from([u8::from(affinity.of_prefill)]);
        for source in &sources {
            names.extend_from_slice(source.name().as_bytes());
            names.push(0);
        }
        Self {
            affinity: affinity.clone(),
            sources,
            salt: xxh3_64(&names),
        }
    }
}

fn write_token(token: u64) -> String {
    alloc::format!("{token:016x}")
}

/// The number of a token as it is written; anything else is none.
fn read_token(text: &str) -> Option<u64> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_token = text.len() == TOKEN_DIGITS && text.bytes().all(is_digit);
    is_token
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
}

const TOKEN_DIGITS: usize = 16;

#[cfg(test)]
mod tests;
