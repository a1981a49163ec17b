//! The list of a pool's models, for when there is no endpoint to ask for it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Value, json};

use crate::config::PoolConfig;

impl PoolConfig {
    /// The list of its models as the `OpenAI` API has it; `None` where none is named.
    pub fn model_list(&self) -> Option<String> {
        let models: Vec<Value> = self.listed_models().map(model).collect();
        let list = json!({"object": "list", "data": models});
        (!models.is_empty()).then(|| list.to_string())
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
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[track_caller]
    fn check(models: &Value, expected: Option<Value>) {
        let document = json!({"pools": [{
            "name": "a",
            "endpoints": [{"address": "10.0.0.1:8000"}],
            "models": models,
        }]});
        let Ok(Role::Filter(config)) = parse(document.to_string().as_bytes()) else {
            panic!("{document}");
        };
        let list = config.pools[0].model_list();
        let list = list.map(|it| serde_json::from_str::<Value>(&it).unwrap());
        assert_eq!(list, expected, "{models}");
    }

    #[test]
    fn models_are_listed_as_they_are_named_and_patterns_are_not() {
        let model =
            |id: &&str| json!({"id": id, "object": "model", "created": 0, "owned_by": "picker"});
        let list = |ids: &[&str]| {
            let data: Vec<Value> = ids.iter().map(model).collect();
            Some(json!({"object": "list", "data": data}))
        };
        check(&json!([]), None);
        check(&json!(["*"]), None);
        check(&json!(["b", "meta/a*", "a"]), list(&["b", "a"]));
        check(&json!(["a \"quoted\" name"]), list(&["a \"quoted\" name"]));
    }
}
