//! Whose a request is, by the model that it names.

use alloc::string::{String, ToString};

use crate::config::{Config, PoolConfig};
use crate::draw::Draws;
use crate::refusal::Refusal;
use crate::rewrite::rule_for;

/// Some pools of a configuration, by their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pools(u64);

impl Pools {
    /// Their places.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        (0..u64::BITS as usize).filter(move |place| self.0 >> place & 1 == 1)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<usize> for Pools {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        let bits = places.into_iter().filter(|it| *it < u64::BITS as usize);
        Self(bits.fold(0, |all, place| all | 1 << place))
    }
}

impl Config {
    /// The pool of a request that names no model, or none that is known: the first of `pools` that
    /// serves every model, else the first.
    pub fn default_pool(&self, pools: Pools) -> Option<usize> {
        let serves_every = |place: &usize| {
            let pool = self.pools.get(*place);
            pool.is_some_and(|it| it.models.is_empty())
        };
        let mut places = pools.iter();
        places.clone().find(serves_every).or_else(|| places.next())
    }

    /// The pool of a request that names `model`: of `pools` the first that has this name, else the
    /// one with the longest prefix of it, else the default one. `None` where `pools` has none.
    ///
    /// Refused where the configuration is strict with models and no pool serves this one.
    pub fn pool_of(&self, pools: Pools, model: Option<&str>) -> Result<Option<usize>, Refusal> {
        let Some(model) = model else {
            return Ok(self.default_pool(pools));
        };
        let mut best: Option<(usize, usize)> = None;
        for place in pools.iter() {
            let fit = self.pools.get(place).and_then(|it| it.fit(model));
            if let Some(fit) = fit.filter(|fit| best.is_none_or(|(best, _)| *fit > best)) {
                best = Some((fit, place));
            }
        }
        match best {
            Some((_, place)) => Ok(Some(place)),
            None if self.strict_models && !pools.is_empty() => Err(Refusal::UnknownModel),
            None => Ok(self.default_pool(pools)),
        }
    }

    /// The pool that serves for `place` while it has no endpoint, and the name that the model has
    /// there where the configuration gives one.
    pub fn fallback_of(&self, place: usize) -> Option<(usize, Option<&str>)> {
        let fallback = self.pools.get(place)?.fallback.as_ref()?;
        let other = self.pools.iter().position(|it| it.name == fallback.pool)?;
        Some((other, fallback.model.as_deref()))
    }

    /// The base model of an adapter; of a base model itself. Empty for what is neither.
    pub fn base_model<'a>(&'a self, model: &'a str) -> &'a str {
        let known = self.model_headers.iter().flatten();
        let mut bases =
            known.filter(|it| it.model == model || it.adapters.iter().any(|it| it == model));
        bases.next().map_or("", |it| &it.model)
    }
}

impl PoolConfig {
    /// How closely a name or pattern of the pool fits `model`; `None` when it does not serve it.
    fn fit(&self, model: &str) -> Option<usize> {
        let is_rewritten = self.rewrites.iter().flat_map(|it| &it.models);
        if self.models.iter().chain(is_rewritten).any(|it| it == model) {
            return Some(usize::MAX);
        }
        let prefixes = self.models.iter().filter_map(|it| it.strip_suffix('*'));
        let fitting = prefixes.filter(|it| model.starts_with(it));
        let longest = fitting.map(|it| it.len() + 1).max();
        longest.or_else(|| self.models.is_empty().then_some(0))
    }

    /// Whether it takes every request that `other` would.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let names = other.models.iter();
        let mut names = names.chain(other.rewrites.iter().flat_map(|it| &it.models));
        let covers_models = if other.models.is_empty() {
            self.models.is_empty() && names.all(|it| self.fit(it) == Some(usize::MAX))
        } else {
            names.all(|it| self.models.contains(it))
        };
        covers_models && self.matches.covers(&other.matches)
    }

    /// Whether models of requests may get other names.
    pub fn may_rename(&self) -> bool {
        !self.rewrites.is_empty() || self.fallback.as_ref().is_some_and(|it| it.model.is_some())
    }

    /// The name that `model` gets in a request with these headers, perhaps its own; `None` where no
    /// rule is for it.
    pub fn rewritten(
        &self,
        model: Option<&str>,
        headers: &[(String, String)],
        draws: &mut Draws,
    ) -> Option<String> {
        let target = rule_for(&self.rewrites, model)?.target(headers, draws)?;
        Some(target.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Role, parse};
    use alloc::boxed::Box;
    use serde_json::{Value, json};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn config(pools: &[(&str, Value)], more: Value) -> Box<Config> {
        let pools = pools.iter().map(|(name, more)| {
            let mut pool = json!({"name": name, "endpoints": [{"address": "10.0.0.1:8000"}]});
            let more = more.as_object().unwrap().clone();
            pool.as_object_mut().unwrap().extend(more);
            pool
        });
        let mut document = more;
        document["pools"] = pools.collect();
        match parse(document.to_string().as_bytes()) {
            Ok(Role::Filter(config)) => config,
            other => panic!("{other:?}"),
        }
    }

    fn renaming(from: &str, to: &str) -> Value {
        json!([{"matches": [{"model": {"value": from}}], "targets": [{"modelRewrite": to}]}])
    }

    #[test]
    fn a_name_goes_before_the_longest_prefix_and_that_before_the_pool_for_every_model() {
        let config = config(
            &[
                ("llama", json!({"models": ["meta/llama", "meta/*"]})),
                ("rest", json!({})),
                (
                    "reviews",
                    json!({"models": ["meta/reviews-*", "meta/llama-2"]}),
                ),
                (
                    "other",
                    json!({"models": ["meta/llama", "o*"], "modelRewrites": renaming("gpt", "o1")}),
                ),
            ],
            json!({}),
        );
        let all: Pools = (0..4).collect();
        for (model, expected) in [
            (Some("meta/llama"), 0),
            (Some("meta/llama-2"), 2),
            (Some("meta/llama-3"), 0),
            (Some("meta/reviews-7"), 2),
            (Some("meta/reviews-"), 2),
            (Some("meta/reviews"), 0),
            (Some("gpt"), 3),
            (Some("gpt-4"), 1),
            (Some("Meta/llama"), 1),
            (Some(""), 1),
            (None, 1),
        ] {
            assert_eq!(config.pool_of(all, model), Ok(Some(expected)), "{model:?}");
        }
        let some: Pools = [2, 3].into_iter().collect();
        for (model, expected) in [(Some("meta/llama"), 3), (Some("what"), 2), (None, 2)] {
            assert_eq!(config.pool_of(some, model), Ok(Some(expected)), "{model:?}");
        }
        assert_eq!(config.pool_of(Pools::default(), Some("gpt")), Ok(None));
    }

    #[test]
    fn a_model_that_no_pool_serves_is_refused_only_where_that_is_wanted() {
        let pools = [
            (
                "a",
                json!({"models": ["a"], "modelRewrites": renaming("alias", "a")}),
            ),
            ("b", json!({"models": ["b*"]})),
        ];
        let all: Pools = (0..2).collect();
        for (strict, model, expected) in [
            (false, Some("c"), Ok(Some(0))),
            (true, Some("c"), Err(Refusal::UnknownModel)),
            (true, Some("alias"), Ok(Some(0))),
            (true, Some("b1"), Ok(Some(1))),
            (true, None, Ok(Some(0))),
        ] {
            let config = config(&pools, json!({"strictModels": strict}));
            assert_eq!(config.pool_of(all, model), expected, "{strict} {model:?}");
        }
        let open = config(&[("every", json!({}))], json!({"strictModels": true}));
        assert_eq!(
            open.pool_of([0].into_iter().collect(), Some("c")),
            Ok(Some(0))
        );
    }

    #[test]
    fn a_name_is_rewritten_once_by_the_rules_of_its_pool() {
        let rules = json!([
            {"matches": [{"model": {"type": "Exact", "value": "a"}}], "targets": [{"modelRewrite": "b"}]},
            {"targets": [{"modelRewrite": "c"}]},
        ]);
        let first = json!([rules[0]]);
        let one = config(&[("p", json!({"modelRewrites": first}))], json!({}));
        let config = config(&[("p", json!({"modelRewrites": rules}))], json!({}));
        let mut draws = Draws::new(1);
        for (model, expected) in [
            (Some("a"), Some("b")),
            (Some("b"), Some("c")),
            (Some("c"), Some("c")),
            (None, Some("c")),
        ] {
            let found = config.pools[0].rewritten(model, &[], &mut draws);
            assert_eq!(found.as_deref(), expected, "{model:?}");
        }
        assert_eq!(one.pools[0].rewritten(Some("b"), &[], &mut draws), None);
    }

    #[test]
    fn a_fallback_is_a_pool_and_perhaps_a_name_there() {
        let config = config(
            &[
                (
                    "a",
                    json!({"models": ["a"], "fallback": {"pool": "c", "model": "big"}}),
                ),
                ("b", json!({"models": ["b"], "fallback": {"pool": "a"}})),
                ("c", json!({})),
            ],
            json!({}),
        );
        assert_eq!(config.fallback_of(0), Some((2, Some("big"))));
        assert_eq!(config.fallback_of(1), Some((0, None)));
        assert_eq!(config.fallback_of(2), None);
        assert_eq!(config.fallback_of(3), None);
    }

    #[test]
    fn an_adapter_is_of_its_base_model_and_that_of_itself() {
        let bases = json!([
            {"baseModel": "llama", "adapters": ["reviews", "sql"]},
            {"baseModel": "qwen"},
        ]);
        let config = config(
            &[("a", json!({}))],
            json!({"modelHeaders": {"baseModels": bases}}),
        );
        for (model, expected) in [
            ("sql", "llama"),
            ("llama", "llama"),
            ("qwen", "qwen"),
            ("gpt", ""),
        ] {
            assert_eq!(config.base_model(model), expected, "{model}");
        }
    }
}
