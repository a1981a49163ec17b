//! The list of models, where the picker answers it in the endpoints' place.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Value, json};

use crate::config::{Config, ListModels};
use crate::sorted::SortedMap;
use crate::whose::Pools;

impl Config {
    /// Whether the picker may answer a request for the models of these pools.
    pub(crate) fn may_list(&self, pools: Pools) -> bool {
        match self.list_models {
            ListModels::Always => true,
            ListModels::WhenEmpty => self.named(pools).next().is_some(),
            ListModels::Never => false,
        }
    }

    /// The list of the models of these pools as the `OpenAI` API has it, each once: those that the
    /// configuration names, then `served`, what endpoints say. `None` where there is none.
    pub fn model_list<'a>(
        &'a self,
        pools: Pools,
        served: impl Iterator<Item = &'a str>,
    ) -> Option<String> {
        let mut known: SortedMap<&str, ()> = SortedMap::default();
        let mut models: Vec<Value> = Vec::new();
        for id in self.named(pools).chain(served) {
            if known.add(id, ()) {
                models.push(model(id));
            }
        }
        let list = json!({"object": "list", "data": models});
        (!models.is_empty()).then(|| list.to_string())
    }

    fn named(&self, pools: Pools) -> impl Iterator<Item = &str> {
        let pools = pools.iter().filter_map(|it| self.pools.get(it));
        pools.flat_map(|it| it.listed_models())
    }
}

fn model(id: &str) -> Value {
    // When it was made is not known.
    json!({"id": id, "object": "model", "created": 0, "owned_by": "picker"})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Role, parse};
    use alloc::boxed::Box;
    use alloc::format;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn read(document: &Value) -> Box<Config> {
        match parse(document.to_string().as_bytes()) {
            Ok(Role::Filter(config)) => config,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn check(pools: &[Value], served: &[&str], expected: &[&str]) {
        let pool = |(place, more): (usize, &Value)| {
            let mut pool = json!({
                "name": format!("p{place}"),
                "endpoints": [{"address": "10.0.0.1:8000"}],
            });
            let more = more.as_object().unwrap().clone();
            pool.as_object_mut().unwrap().extend(more);
            pool
        };
        let list: Vec<Value> = pools.iter().enumerate().map(pool).collect();
        let config = read(&json!({"pools": list}));
        let all = (0..pools.len()).collect();
        let list = config.model_list(all, served.iter().copied());
        let list = list.map(|it| serde_json::from_str::<Value>(&it).unwrap());
        let model =
            |id: &&str| json!({"id": id, "object": "model", "created": 0, "owned_by": "picker"});
        let data: Vec<Value> = expected.iter().map(model).collect();
        let expected = (!data.is_empty()).then(|| json!({"object": "list", "data": data}));
        assert_eq!(list, expected, "{pools:?}");
    }

    #[test]
    fn models_are_listed_as_they_are_named_and_patterns_are_not() {
        check(&[json!({"models": []})], &[], &[]);
        check(&[json!({"models": ["*"]})], &[], &[]);
        check(
            &[json!({"models": ["b", "meta/a*", "a"]})],
            &[],
            &["b", "a"],
        );
        check(
            &[json!({"models": ["a \"quoted\" name"]})],
            &[],
            &["a \"quoted\" name"],
        );
    }

    #[test]
    fn the_list_is_the_union_of_what_pools_and_endpoints_name() {
        let rewrite = json!([{
            "matches": [{"model": {"value": "public"}}],
            "targets": [{"modelRewrite": "hidden"}],
        }]);
        check(
            &[
                json!({"models": ["b", "a"], "modelRewrites": rewrite}),
                json!({"models": ["c", "a"]}),
            ],
            &["d", "b", "d"],
            &["b", "a", "public", "c", "d"],
        );
        check(&[json!({})], &["d"], &["d"]);
    }

    #[test]
    fn who_may_list_models_is_configured() {
        for (list_models, models, expected) in [
            ("whenEmpty", json!(["a"]), true),
            ("whenEmpty", json!(["a*"]), false),
            ("always", json!([]), true),
            ("never", json!(["a"]), false),
        ] {
            let config = read(&json!({
                "listModels": list_models,
                "pools": [{
                    "name": "a",
                    "endpoints": [{"address": "10.0.0.1:8000"}],
                    "models": models,
                }],
            }));
            let may = config.may_list([0].into_iter().collect());
            assert_eq!(may, expected, "{list_models} {models}");
        }
    }
}
