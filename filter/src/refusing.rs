//! Our own answers.

use picker_core::{Refusal, Shape, Stat};

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

    /// Answers the current stream with the models of pool `index`, while none of its endpoints is
    /// ready to say them; whether it did.
    pub(crate) fn list_models(&mut self, index: usize) -> bool {
        let (Some(config), Some(pool)) = (self.config.pools.get(index), self.pools.get_mut(index))
        else {
            return false;
        };
        // Workers learn of endpoints at different times; whoever asks twice is told the same.
        pool.pool.refresh(&Host, host::now());
        let list = config.model_list().filter(|_| !pool.pool.has_endpoints());
        list.is_some_and(|list| {
            let _ = host::set_filter_state("picker", &format!("pool={} models", config.name));
            let headers = [("content-type", "application/json")];
            host::reply(200, "picker_models", &headers, &list).is_ok()
        })
    }
}

/// Names the reason of a refusal to the client, as the reference picker does.
const REASON: &str = "x-llm-d-request-dropped-reason";
