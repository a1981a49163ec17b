//! How much a request matters, and whose it is.

use std::borrow::Cow;

use picker_core::{Request, Stat, TrustSource, property_text};

use crate::host;
use crate::worker::Worker;

impl Worker {
    /// Finds out how much a request of pool `index` matters and whose it is, as far as that makes a
    /// difference.
    pub(crate) fn trust(&mut self, index: usize, request: &mut Request) {
        let (Some(config), Some(pool)) = (self.config.pools.get(index), self.pools.get_mut(index))
        else {
            return;
        };
        let trust = &self.config.trust;
        let sources = [trust.priority_source(config), trust.fairness_source(config)];
        // A request may wait for long, and clients decide how long their headers are.
        let asks = |name: &String| config.plan.headers.contains(name);
        if sources == [None; 2] {
            request.headers.retain(|(name, _)| asks(name));
            return;
        }
        let [priority, fairness] = sources.map(|it| it.map(|source| found(source, request)));
        for is_disputed in [&priority, &fairness].map(|it| it.as_ref().is_some_and(|it| it.1)) {
            pool.stats
                .add(Stat::ObjectiveConflicts, u64::from(is_disputed));
        }
        let id = fairness.and_then(|(id, _)| {
            let id = trust.fairness(id.as_deref(), config, request);
            id.map(str::to_owned)
        });
        if let Some((value, _)) = priority {
            request.priority = trust.priority(value.as_deref(), config);
        }
        request.fairness_id = id;
        request.headers.retain(|(name, _)| asks(name));
    }
}

/// What stands there, and whether another header says something else.
fn found<'r>(source: &TrustSource, request: &'r Request) -> (Option<Cow<'r, str>>, bool) {
    let property = source.property();
    if property.is_empty() {
        let claim = source.claim(request);
        return (claim.value.map(Cow::Borrowed), claim.is_disputed);
    }
    let value = host::property(&property);
    let text = value.and_then(|it| property_text(&it));
    (text.map(Cow::Owned), false)
}
