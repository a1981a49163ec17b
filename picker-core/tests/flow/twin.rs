//! What should be: one list of all that waits, and who is next by sorting it.

use std::collections::BTreeMap;

use picker_core::{
    Band, Capacity, EndpointId, Fairness, LeastAttained, Ordering, Refusal, Span, Timestamp,
    UsageLimit, WaitId,
};

use crate::rules::Rules;

/// All that waits and all that runs, of all workers.
#[derive(Default)]
pub(crate) struct Twin {
    pub(crate) waiting: Vec<Waiter>,
    /// Where requests run.
    pub(crate) running: Vec<EndpointId>,
    /// Endpoints that are ready.
    pub(crate) ready: Vec<EndpointId>,
    /// Since when there have been some, or none.
    pub(crate) since: Timestamp,
    /// By band, who was served last.
    served: BTreeMap<i32, String>,
    /// What tenants have had, and when it was reckoned.
    attained: BTreeMap<String, (f64, Timestamp)>,
}

/// A request that waits.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Waiter {
    pub(crate) owner: u64,
    pub(crate) id: WaitId,
    /// That of its band.
    pub(crate) priority: i32,
    pub(crate) flow: String,
    pub(crate) bytes: u64,
    /// What its policy goes by, and then when it came.
    pub(crate) rank: (u64, u64),
    pub(crate) queued_at: Timestamp,
}

impl Waiter {
    /// What of two of a flow is the first.
    fn place(&self) -> ((u64, u64), u64, WaitId) {
        (self.rank, self.owner, self.id)
    }
}

impl Twin {
    /// How full the endpoints are.
    pub(crate) fn saturation(&self, rules: &Rules) -> Option<f64> {
        let at = |id: &EndpointId| self.running.iter().filter(|it| *it == id).count();
        let room = self.ready.len() * rules.limit as usize;
        let sent: usize = self.ready.iter().map(at).sum();
        let cap = rules.cap.map_or(usize::MAX, |it| it as usize);
        let is_capped = self.ready.iter().all(|id| at(id) >= cap);
        let saturation = sent as f64 / room as f64;
        let saturation = if is_capped {
            saturation.max(1.0)
        } else {
            saturation
        };
        (room > 0).then_some(saturation)
    }

    /// Whether a request of the band at this place may be sent.
    pub(crate) fn has_room(&self, rules: &Rules, band: usize) -> bool {
        self.saturation(rules)
            .is_some_and(|it| it < ceiling(rules, band))
    }

    /// How much waits in a band, or in all.
    pub(crate) fn waiting(&self, priority: Option<i32>) -> (u64, u64) {
        let all = self.waiting.iter();
        let all = all.filter(|it| priority.is_none_or(|priority| it.priority == priority));
        all.fold((0, 0), |(requests, bytes), it| {
            (requests + 1, bytes + it.bytes)
        })
    }

    /// Since when the first of those wait that are the first of their worker and flow.
    pub(crate) fn waiting_since(&self, priority: i32) -> Option<Timestamp> {
        let all = || self.waiting.iter().filter(|it| it.priority == priority);
        let of = |it: &Waiter| (it.owner, it.flow.clone());
        let is_first = |it: &&Waiter| {
            all()
                .filter(|other| of(other) == of(it))
                .all(|other| it.place() <= other.place())
        };
        all().filter(is_first).map(|it| it.queued_at).min()
    }

    /// Whether one more of `bytes` may wait in a band.
    pub(crate) fn may_wait(&self, rules: &Rules, band: usize, bytes: u64) -> bool {
        let Band {
            priority, capacity, ..
        } = rules.flow.bands[band];
        let holds = |it: Capacity, (requests, held): (u64, u64)| {
            requests < it.requests && held + bytes <= it.bytes
        };
        holds(capacity, self.waiting(Some(priority)))
            && holds(rules.flow.capacity, self.waiting(None))
    }

    /// Who is next: nobody, one, or those that nothing tells apart but the rounding of numbers.
    pub(crate) fn next(&self, rules: &Rules, now: Timestamp) -> Vec<&Waiter> {
        for (place, band) in rules.flow.bands.iter().enumerate() {
            let of_band = |it: &&Waiter| it.priority == band.priority;
            let mut waiting: Vec<&Waiter> = self.waiting.iter().filter(of_band).collect();
            if waiting.is_empty() {
                continue;
            }
            if !self.has_room(rules, place) {
                return Vec::new();
            }
            waiting.sort_by_key(|it| (it.flow.clone(), it.place()));
            waiting.dedup_by_key(|it| it.flow.clone());
            return self.next_of(band, waiting, now);
        }
        Vec::new()
    }

    fn next_of<'a>(
        &self,
        band: &Band,
        mut firsts: Vec<&'a Waiter>,
        now: Timestamp,
    ) -> Vec<&'a Waiter> {
        match band.fairness {
            Fairness::GlobalStrict => {
                firsts.sort_by_key(|it| it.rank);
                firsts.truncate(1);
            }
            Fairness::RoundRobin => {
                let last = self.served.get(&band.priority);
                let has_been = |it: &&Waiter| last.is_some_and(|last| it.flow <= *last);
                firsts.sort_by_key(|it| has_been(it));
                firsts.truncate(1);
            }
            Fairness::ProgramAware(weights) => {
                let scores = self.scores(&firsts, &weights, now);
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let mut scores = scores.iter();
                firsts.retain(|_| scores.next().is_some_and(|it| *it > most - 1e-9));
            }
        }
        firsts
    }

    fn scores(&self, firsts: &[&Waiter], weights: &LeastAttained, now: Timestamp) -> Vec<f64> {
        let norm = |numbers: Vec<f64>| -> Vec<f64> {
            let least = numbers.iter().copied().fold(f64::MAX, f64::min);
            let most = numbers.iter().copied().fold(f64::MIN, f64::max);
            let of = |it: &f64| {
                if most > least {
                    (it - least) / (most - least)
                } else {
                    0.0
                }
            };
            numbers.iter().map(of).collect()
        };
        let attained = firsts
            .iter()
            .map(|it| self.attained(&it.flow, weights, now));
        let waited = firsts.iter().map(|it| now.since(it.queued_at).0 as f64);
        let (attained, waited) = (norm(attained.collect()), norm(waited.collect()));
        let parts = attained.iter().zip(&waited);
        let score = |(attained, waited): (&f64, &f64)| 0.8 * (1.0 - attained) + 0.2 * waited;
        parts.map(score).collect()
    }

    fn attained(&self, flow: &str, weights: &LeastAttained, now: Timestamp) -> f64 {
        let attained = self.attained.get(flow);
        attained.map_or(0.0, |(tokens, at)| weights.decayed(*tokens, now.since(*at)))
    }

    /// Takes note that a flow has had more.
    pub(crate) fn attain(&mut self, flow: &str, tokens: f64, by: &LeastAttained, now: Timestamp) {
        let had = self.attained(flow, by, now);
        self.attained.insert(flow.into(), (had + tokens, now));
    }

    /// Takes out one that is sent after it has waited.
    pub(crate) fn serve(&mut self, owner: u64, id: WaitId) {
        let it = self.take(owner, id).expect("it waits");
        self.served.insert(it.priority, it.flow);
    }

    /// Takes one out.
    pub(crate) fn take(&mut self, owner: u64, id: WaitId) -> Option<Waiter> {
        let mut all = self.waiting.iter();
        let place = all.position(|it| (it.owner, it.id) == (owner, id))?;
        Some(self.waiting.remove(place))
    }

    /// Those of a worker that have waited as long as they may, and what they are told.
    pub(crate) fn expired(
        &self,
        owner: u64,
        rules: &Rules,
        now: Timestamp,
    ) -> Vec<(WaitId, Refusal)> {
        let (ttl, refusal) = if self.ready.is_empty() {
            (rules.flow.no_endpoint_ttl, Refusal::WaitedWithoutEndpoint)
        } else {
            (rules.flow.request_ttl, Refusal::WaitedTooLong)
        };
        let is_over = |it: &&Waiter| {
            let begun = it.queued_at.max(self.since);
            it.owner == owner && ttl.is_some_and(|ttl| begun.after(ttl) <= now)
        };
        let over = self.waiting.iter().filter(is_over);
        over.map(|it| (it.id, refusal)).collect()
    }
}

/// What orders a request in a band.
pub(crate) fn rank(
    band: &Band,
    (received_at, queued_at): (Timestamp, Timestamp),
    (ttl, ttft): (Option<Span>, Option<Span>),
) -> (u64, u64) {
    let never = u64::MAX;
    match band.ordering {
        Ordering::Fcfs => (queued_at.0, queued_at.0),
        Ordering::Edf => (ttl.map_or(never, |it| queued_at.0 + it.0), queued_at.0),
        Ordering::SloDeadline => (ttft.map_or(never, |it| received_at.0 + it.0), received_at.0),
    }
}

/// How full the endpoints may be for the band at this place.
fn ceiling(rules: &Rules, place: usize) -> f64 {
    let bands = &rules.flow.bands;
    let of = |place: usize| f64::from(bands[place].priority);
    let last = bands.len() - 1;
    match rules.flow.usage_limit {
        UsageLimit::Static(limit) => limit,
        UsageLimit::Holdback { .. } if last == 0 => 1.0,
        UsageLimit::Holdback { by_value, .. } => {
            let part = if by_value {
                (of(0) - of(place)) / (of(0) - of(last))
            } else {
                place as f64 / last as f64
            };
            1.0 - 0.5 * part
        }
        UsageLimit::SoftReflective => panic!("no rules have it"),
    }
}
