//! Configurations: what is accepted, shown as JSON, is accepted again and the same; what is
//! refused, is refused in lines that name a place.

use std::io;

use picker_core::{CONFIG_ERRORS_MAX, Config, ConfigError, Role, parse_config};

/// The bytes that Envoy hands over: JSON, or a serialized `Struct`.
pub fn check(input: &[u8]) {
    match parse_config(input) {
        Ok(Role::Filter(config)) => shows_itself(*config),
        Ok(Role::Page | Role::Service) => {}
        Err(errors) => are_lines(&errors),
    }
}

/// Documents that are accepted, in full and in short, and some that are not.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for document in DOCUMENTS {
        seeds.push(document.as_bytes().to_vec());
        if let Ok(Role::Filter(config)) = parse_config(document.as_bytes()) {
            seeds.push(config.to_json().into_bytes());
            seeds.extend(
                config
                    .pools
                    .iter()
                    .map(|pool| pool.to_document().into_bytes()),
            );
        }
    }
    Ok(seeds)
}

fn shows_itself(mut config: Config) {
    assert!(config.warnings.iter().all(|it| !it.to_string().is_empty()));
    config.warnings.clear();
    let shown = config.to_json();
    let read = parse_config(shown.as_bytes());
    assert_eq!(read, Ok(Role::Filter(Box::new(config.clone()))), "{shown}");
    for pool in config.pools {
        let document = pool.to_document();
        let read = parse_config(document.as_bytes());
        let alone = read.map(|role| match role {
            Role::Filter(config) => config.pools,
            Role::Page | Role::Service => Vec::new(),
        });
        assert_eq!(alone, Ok(vec![pool]), "{document}");
    }
}

pub(crate) fn are_lines(errors: &[ConfigError]) {
    assert!(!errors.is_empty() && errors.len() <= CONFIG_ERRORS_MAX + 1);
    for error in errors {
        let line = error.to_string();
        assert!(!line.contains(['\n', '\r']), "{line:?}");
        assert!(line.contains("Fix: ") || line.contains("more"), "{line}");
    }
}

/// Between them they have every key.
pub(crate) const DOCUMENTS: [&str; 6] = [
    "{\"serve\": \"page\"}",
    r#"{"pools":[{"name":"llm","endpoints":[{"address":"10.0.0.1:8000"},{"address":"[::1]:80"}]}]}"#,
    r#"{"pools":[
        {"name":"a","match":{"clusters":["c"],"routes":["r"],"hosts":["h"],"pathPrefixes":["/p"]},
         "engine":"sglang",
         "endpoints":[{"address":"10.0.0.1:8000","labels":{"llm-d.ai/engine-type":"vllm","x":"y"}}],
         "scrape":{"cluster":"c","interval":"1ms","timeout":"1m30s","path":"/m","stalenessThreshold":"3s"},
         "cache":{"capacityTokens":1000,"hashSeed":"s"},
         "failureMode":"FailClose","limits":{"requestBodyBytes":"500k"}},
        {"name":"b","endpoints":[{"address":"10.0.0.2:8000"}],"cache":{"capacityTokens":"auto"}}],
        "destination":{"via":"filterState"},"paths":{"prefixes":["/openai"],"admin":[]}}"#,
    r#"{"pools":[{"name":"a","endpoints":[{"address":"10.0.0.1:8000"}],"picker":{
        "apiVersion":"inference.networking.x-k8s.io/v1alpha1","kind":"EndpointPickerConfig",
        "plugins":[{"type":"queue-scorer"},{"type":"prefix-cache-scorer","name":"p","parameters":{}},
            {"type":"kv-cache-utilization-scorer"},{"type":"max-score-picker","parameters":{"maxNumOfEndpoints":3}}],
        "schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"queue-scorer","weight":2},
            {"pluginRef":"p","weight":0.5},{"pluginRef":"kv-cache-utilization-scorer"},{"pluginRef":"max-score-picker"}]}]}}],
        "destination":{"via":"header","header":"x-endpoint"}}"#,
    r#"{"pools":[{"name":"a","endpoints":[{"address":"10.0.0.1:8000"}],"picker":{
        "apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig",
        "plugins":[{"type":"least-cost-scorer","parameters":{"baseTokens":512,"overflowWeight":48.5,"backlogWeight":4}}],
        "schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"least-cost-scorer"}]}]}}]}"#,
    r#"{"pools":[{"name":"A!","endpoints":[{"address":"localhost:0"}],"engnie":1,"engine":true,"failureMode":5,"scrape":{"interval":"1x"},"cache":{"capacityTokens":-0.5}}],"x":null}"#,
];
