//! Our own answers.

use picker_core::{ListModels, Pools, Refusal, Shape, Stat};

use crate::host::{self, Host, HostError};
use crate::worker::Worker;

impl Worker {
    /// Answers the request of the current stream in the endpoint's place; when the host does not take
    /// the answer, the route decides.
    pub(crate) fn refuse(
        &mut self,
        index: usize,
        refusal: Refusal,
        shape: Option<Shape>,
    ) -> Result<(), HostError> {
        let Some(pool) = self.pools.get_mut(index) else {
            return Err(HostError(0));
        };
        let reason = refusal.reason();
        pool.stats.add(Stat::Refusals(reason), 1);
        let _ = host::set_filter_state(
            "picker",
            &format!("pool={} refused={reason}", pool.pool.name()),
        );
        let mut headers = vec![("content-type", "application/json"), (REASON, reason)];
        let seconds = pool.pool.retry_after(refusal, &mut self.draws, host::now());
        let seconds = seconds.map(|it| it.to_string());
        headers.extend(seconds.as_deref().map(|it| ("retry-after", it)));
        let details = format!("picker_{}", reason.replace('-', "_"));
        let replied = host::reply(refusal.status(), &details, &headers, &refusal.body(shape));
        if replied.is_err() {
            log::error!("picker: the host did not take our answer; the route decides");
        }
        replied
    }

    /// Answers the current stream with the models of `pools`, where the configuration says that the
    /// picker does so now; whether it did.
    pub(crate) fn list_models(&mut self, pools: Pools) -> bool {
        // Workers learn of endpoints at different times; whoever asks twice is told the same.
        let now = host::now();
        for place in pools.iter() {
            if let Some(pool) = self.pools.get_mut(place) {
                pool.pool.refresh(&Host, now);
            }
        }
        let mut known = pools.iter().filter_map(|it| self.pools.get(it));
        let is_always = self.config.list_models == ListModels::Always;
        if !is_always && known.clone().any(|it| it.pool.has_endpoints()) {
            return false;
        }
        let served = known.clone().flat_map(|it| it.pool.served_models());
        let Some(list) = self.config.model_list(pools, served) else {
            return false;
        };
        let name = known.next().map_or("", |it| it.pool.name());
        let _ = host::set_filter_state("picker", &format!("pool={name} models"));
        let headers = [("content-type", "application/json")];
        host::reply(200, "picker_models", &headers, &list).is_ok()
    }
}

/// Names the reason of a refusal to the client, as the reference picker does.
const REASON: &str = "x-llm-d-request-dropped-reason";
