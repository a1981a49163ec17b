//! Whose a request is, and what its model is called there.

use picker_core::{MODEL_HEADERS, Refusal, Stat, Timestamp, is_header_value};

use crate::host::{self, Host};
use crate::reading::Reading;
use crate::renaming::Unrenamed;
use crate::worker::Worker;

/// Whose a request is that was read.
pub(crate) struct Whose {
    pub(crate) pool: usize,
    /// The name that its model has there, where that is another than the client's.
    pub(crate) name: Option<String>,
    /// Whether answers are to show the client's.
    pub(crate) is_public: bool,
}

impl Worker {
    /// The pool of a request with these headers; `None` when it has none.
    pub(crate) fn whose(
        &mut self,
        reading: &Reading,
        headers: &[(String, String)],
        now: Timestamp,
    ) -> Result<Option<Whose>, Refusal> {
        let model = reading.model();
        let Some(place) = self.config.pool_of(reading.pools, model)? else {
            return Ok(None);
        };
        let (pool, name) = self.serving(place, now);
        let config = self.config.pools.get(pool);
        let limit = config.map_or(0, |it| it.limits.request_body_bytes);
        if reading.how().bytes > limit {
            return Err(Refusal::BodyTooLarge { limit });
        }
        let own = || config.and_then(|it| it.rewritten(model, headers, &mut self.draws));
        // A body that names several models is left with one, even where that has its name already.
        let is_new = |it: &String| Some(it.as_str()) != model || reading.has_other_models();
        let name = name.or_else(own).filter(is_new);
        Ok(Some(Whose {
            pool,
            name,
            is_public: config.is_some_and(|it| it.public_names),
        }))
    }

    /// The pool that serves for `place`: its own endpoints, else the first of its fallbacks that has
    /// some, with the name of the model there where that is configured.
    fn serving(&mut self, place: usize, now: Timestamp) -> (usize, Option<String>) {
        let mut at = place;
        let mut name = None;
        loop {
            let next = self.config.fallback_of(at);
            let next = next.map(|(other, model)| (other, model.map(str::to_owned)));
            if (at != place || next.is_some()) && self.has_endpoints(at, now) {
                break;
            }
            // The configuration allows no circles. Where nobody has an endpoint it is for the pool
            // itself to wait for one, or to refuse.
            let Some(next) = next else {
                return (place, None);
            };
            (at, name) = next;
        }
        if at != place
            && let Some(pool) = self.pools.get_mut(place)
        {
            pool.stats.add(Stat::Fallbacks, 1);
        }
        (at, name)
    }

    fn has_endpoints(&mut self, place: usize, now: Timestamp) -> bool {
        self.pools.get_mut(place).is_some_and(|it| {
            it.pool.refresh(&Host, now);
            it.pool.has_endpoints()
        })
    }

    /// Gives the model of a request that was read the name that it has in its pool.
    pub(crate) fn rename(&mut self, reading: &mut Reading, whose: &Whose) -> Result<(), Refusal> {
        let Some(name) = &whose.name else {
            return Ok(());
        };
        match reading.rename(name, whose.is_public) {
            Ok(()) => {
                if let Some(pool) = self.pools.get_mut(whose.pool) {
                    pool.stats.add(Stat::ModelRewrites, 1);
                }
                Ok(())
            }
            Err(Unrenamed::Body(_)) => Err(Refusal::ModelUnclear),
            // The server judges a body that cannot be read, and the host does as it can.
            Err(Unrenamed::Unread | Unrenamed::Host(_)) => Ok(()),
        }
    }

    /// Tells routes which model a request is for, where that is configured.
    pub(crate) fn tell_model(&self, model: Option<&str>) {
        let model = model.filter(|it| is_header_value(it));
        let Some(model) = model.filter(|_| self.config.model_headers.is_some()) else {
            return;
        };
        let told = [model, self.config.base_model(model)];
        for (name, value) in MODEL_HEADERS.into_iter().zip(told) {
            if let Err(error) = host::set_request_header(name, value) {
                log::error!("picker: the host refused the header {name}: {error:?}");
            }
        }
    }
}
