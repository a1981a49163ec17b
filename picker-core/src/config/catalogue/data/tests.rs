use super::super::super::picker::tests::{check, plan_of};
use super::super::super::tests::{check_pool, config, with_pool};
use super::*;
use crate::config::PoolConfig;
use crate::draw::Draws;
use crate::pool::{Pool, PoolOptions};
use crate::request::Request;
use crate::scrape::{Answer, Scrape, Scraper};
use crate::shared::LocalData;
use crate::snapshot::{Snapshot, stored};
use crate::sources::DataSources;
use crate::{EndpointId, Span, Timestamp};
use alloc::string::String;
use alloc::vec;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A plan of these plugins besides a scorer, with these sources.
fn picker(plugins: &[Value], sources: Value) -> Value {
    let mut all = vec![json!({"type": "queue-scorer"})];
    all.extend(plugins.iter().cloned());
    json!({"plugins": all, "dataLayer": {"sources": sources}})
}

fn plugin(kind: &str, parameters: Value) -> Value {
    json!({"type": kind, "parameters": parameters})
}

fn uses(source: &str, extractor: &str) -> Value {
    json!({"pluginRef": source, "extractors": [{"pluginRef": extractor}]})
}

fn asks(path: Option<&str>, port: Option<u16>, millis: Option<u64>) -> DataSource {
    DataSource {
        path: path.map(String::from),
        port,
        interval: millis.map(Span::from_millis),
    }
}

#[test]
fn sources_say_where_endpoints_are_asked() {
    let usual = DataSource::default;
    let place = json!({"scheme": "http", "path": "/m", "port": 9000, "interval": "200ms"});
    let metrics = plugin("metrics-data-source", place.clone());
    let models = plugin("models-data-source", json!({"path": "/v2/models"}));
    let gpus = plugin("dcgm-data-source", json!({"port": 9401, "interval": ""}));
    let of_models = uses("models-data-source", "models-data-extractor");
    let of_gpus = uses("dcgm-data-source", "dcgm-extractor");
    let placed = asks(Some("/m"), Some(9000), Some(200));
    for (plugins, sources, expected) in [
        (&[][..], json!([]), (usual(), None, None)),
        // What nobody refers to does nothing; the metrics are what the defaults refer to.
        (
            &[metrics.clone(), models.clone(), gpus.clone()],
            json!([]),
            (placed.clone(), None, None),
        ),
        // An answer that nobody reads is not asked for.
        (
            core::slice::from_ref(&models),
            json!([{"pluginRef": "models-data-source"}]),
            (usual(), None, None),
        ),
        (
            &[metrics, models.clone(), gpus],
            json!([of_models, of_gpus]),
            (
                placed,
                Some(asks(Some("/v2/models"), None, None)),
                Some(asks(None, Some(9401), None)),
            ),
        ),
        // Neither has to be declared.
        (
            &[],
            json!([of_models, of_gpus]),
            (usual(), Some(usual()), Some(usual())),
        ),
        (
            &[json!({"type": "metrics-data-source", "name": "mine", "parameters": place})],
            json!([{"pluginRef": "mine"}]),
            (asks(Some("/m"), Some(9000), Some(200)), None, None),
        ),
    ] {
        let sources = plan_of(picker(plugins, sources)).sources;
        let (metrics, models, gpus) = expected;
        let expected = DataSources {
            metrics,
            models,
            gpus,
            engines: Engines::default(),
        };
        assert_eq!(sources, expected, "{plugins:?}");
    }
}

#[test]
fn mistakes_of_sources_are_told() {
    let tls = "TLS to endpoints is a matter of the Envoy cluster that they are asked through. \
               Fix: remove it, and set up TLS in the cluster that scrape.cluster names.";
    for (kind, parameters, key, told) in [
        (
            "metrics-data-source",
            json!({"scheme": "https"}),
            "scheme",
            tls,
        ),
        (
            "models-data-source",
            json!({"insecureSkipVerify": false}),
            "insecureSkipVerify",
            tls,
        ),
        (
            "dcgm-data-source",
            json!({"caCertPath": "/ca"}),
            "caCertPath",
            tls,
        ),
        (
            "dcgm-data-source",
            json!({"useNodeAddress": true}),
            "useNodeAddress",
            "the address of an endpoint's node is not known here. Fix: remove it, and let the \
             exporter listen at the endpoint's address.",
        ),
        (
            "metrics-data-source",
            json!({"path": "metrics"}),
            "path",
            "this is not a path. Fix: write a path that begins with / and has no query, like \
             /metrics.",
        ),
        (
            "metrics-data-source",
            json!({"interval": "often"}),
            "interval",
            "this is not a duration of use. Fix: write a number with a unit, like 100ms or 2s.",
        ),
        (
            "metrics-data-source",
            json!({"port": 0}),
            "port",
            "0 is not between 1 and 65535. Fix: choose a value from 1 to 65535.",
        ),
    ] {
        check(
            picker(&[plugin(kind, parameters)], json!([])),
            &[&format!(".plugins[1].parameters.{key}: {told}")],
        );
    }
}

#[test]
fn sources_that_contradict_each_other_are_told() {
    let named = |kind: &str, name: &str| json!({"type": kind, "name": name});
    check(
        picker(
            &[
                named("metrics-data-source", "a"),
                named("metrics-data-source", "b"),
            ],
            json!([{"pluginRef": "a"}, {"pluginRef": "b"}]),
        ),
        &[
            ".dataLayer.sources: 'a' and 'b' both ask endpoints for the same. Fix: keep one of them.",
        ],
    );
    check(
        picker(
            &[named(METRICS_EXTRACTOR, "a"), named(METRICS_EXTRACTOR, "b")],
            json!([{
                "pluginRef": "metrics-data-source",
                "extractors": [{"pluginRef": "a"}, {"pluginRef": "b"}],
            }]),
        ),
        &[
            ".dataLayer.sources: 'a' and 'b' both say what metrics pages mean. \
           Fix: keep one of them.",
        ],
    );
    check(
        picker(&[], json!([uses("models-data-source", "dcgm-extractor")])),
        &[
            ".dataLayer.sources[0].extractors[0].pluginRef: 'dcgm-extractor' cannot read what \
           'models-data-source' asks for. Fix: put it below a source of its own kind.",
        ],
    );
    let slow = plugin("metrics-data-source", json!({"interval": "2s"}));
    check_pool(
        json!({"picker": picker(&[slow], json!([]))}),
        &[
            "pools[0].scrape.stalenessThreshold: metrics are stale before the next ones come, \
           after 2s. Fix: make it longer than the interval.",
        ],
    );
}

#[test]
fn mistakes_of_engines_are_told() {
    let engine = |keys: Value| {
        let mut engine = json!({"name": "mine"});
        let keys = keys.as_object().unwrap().clone();
        engine.as_object_mut().unwrap().extend(keys);
        json!({"engineConfigs": [{"name": "other"}, engine]})
    };
    let custom = |attribute: &str, spec: &str| {
        engine(json!({"customMetrics": [{"attributeKey": attribute, "metricSpec": spec}]}))
    };
    let long = "a".repeat(129);
    for (parameters, told) in [
        (
            engine(json!({"name": ""})),
            "engineConfigs[1].name: \"\" is not a name. Fix: write a text that is not empty.",
        ),
        (
            engine(json!({"name": "default"})),
            "engineConfigs[1].name: the name 'default' is reserved. \
             Fix: write another name, and name that in defaultEngine.",
        ),
        (
            json!({"defaultEngine": "min", "engineConfigs": [{"name": "mine"}]}),
            "defaultEngine: \"min\" is no known engine. Fix: write \"mine\".",
        ),
        (
            engine(json!({"kvUsageSpec": "kv{a=b"})),
            "engineConfigs[1].kvUsageSpec: \"kv{a=b\" selects no metric: a value, with both its \
             quotes or none is expected at column 6. Fix: write the name of a metric, with labels \
             in braces like name{label=value}.",
        ),
        (
            custom("heat", "9"),
            "engineConfigs[1].customMetrics[0].metricSpec: \"9\" selects no metric: the name of a \
             metric is expected at column 1. Fix: write the name of a metric, with labels in \
             braces like name{label=value}.",
        ),
        (
            custom(&long, "heat"),
            "engineConfigs[1].customMetrics[0].attributeKey: the name of an attribute is empty or \
             too long. Fix: write a shorter name.",
        ),
    ] {
        check(
            picker(&[plugin(METRICS_EXTRACTOR, parameters)], json!([])),
            &[&format!(".plugins[1].parameters.{told}")],
        );
    }
}

#[test]
fn an_endpoint_may_name_an_engine_that_is_described() {
    let pool = |label: &str, engine: &str, label_key: Option<&str>| {
        let mut extractor = json!({"engineConfigs": [{"name": "mine"}]});
        extractor["engineLabelKey"] = label_key.into();
        json!({
            "endpoints": [{"address": "10.0.0.1:8000", "labels": {label: engine}}],
            "picker": picker(&[plugin(METRICS_EXTRACTOR, extractor)], json!([])),
        })
    };
    let usual = "llm-d.ai/engine-type";
    for (label, engine, key) in [
        (usual, "mine", None),
        (usual, "sglang", None),
        ("kind", "mine", Some("kind")),
        // With another key, this one is a label like others.
        (usual, "my", Some("kind")),
    ] {
        config(&with_pool(pool(label, engine, key)));
    }
    for (label, key) in [(usual, None), ("kind", Some("kind"))] {
        let told = "\"min\" is no known engine. Fix: write \"mine\".";
        check_pool(
            pool(label, "min", key),
            &[&format!("pools[0].endpoints[0].labels[{label:?}]: {told}")],
        );
    }
}

/// A pool of two endpoints that answered as told, and the state it chooses by.
struct Asked {
    config: PoolConfig,
    shared: LocalData,
}

impl Asked {
    fn new(picker: Value, target: Target, pages: [&str; 2]) -> Self {
        let endpoint = |host: u8| json!({"address": format!("10.0.0.{host}:8000")});
        let document = json!({"picker": picker, "endpoints": [endpoint(1), endpoint(2)]});
        let config = config(&with_pool(document)).pools[0].clone();
        let shared = LocalData::default();
        let mut scraper = Scraper::new(config.clone(), None);
        let empty = ["vllm:num_requests_waiting 0"; 2];
        for (target, pages) in [(Target::Metrics, empty), (target, pages)] {
            for (endpoint, page) in (1..).zip(pages) {
                let scrape = Scrape {
                    endpoint: EndpointId(endpoint),
                    target,
                    address: config.endpoints[0].address,
                };
                let body = page.as_bytes();
                scraper.handle_answer(scrape, Answer::Response { status: 200, body }, READ_AT);
            }
        }
        scraper.publish(&shared, true);
        Self { config, shared }
    }

    /// The endpoint that is chosen `millis` after the answers; `None` when none fits.
    fn chosen(&self, millis: u64) -> Option<u32> {
        let options = PoolOptions::of(&self.config, None);
        let addresses = self.config.endpoints.iter().map(|it| it.address);
        let mut pool = Pool::new(options, Snapshot::unknown(addresses), 1);
        let request = Request::bodiless();
        let at = Timestamp(READ_AT.0 + millis * 1000);
        let pick = pool.pick(&self.shared, &request, &mut Draws::new(1), at);
        pick.ok().map(|it| it.endpoint.0)
    }
}

/// Half as much in queue as in the heat of these pages.
fn described(name: &str) -> Value {
    json!({
        "type": METRICS_EXTRACTOR,
        "name": name,
        "parameters": {
            "defaultEngine": "mine",
            "engineConfigs": [{
                "name": "mine",
                "queuedRequestsSpec": "queue{state=waiting}",
                "runningRequestsSpec": "running",
                "kvUsageSpec": "kv",
                "loraSpec": "",
                "cacheInfoSpec": "cache",
                "cacheNumBlocksLabelName": "blocks",
                "customMetrics": [{"attributeKey": "heat", "metricSpec": "heat{part='gpu'}"}],
            }],
        },
    })
}

#[test]
fn the_pages_of_a_described_engine_are_read_as_described() {
    let page = "queue{state=\"waiting\"} 4\nqueue{state=\"done\"} 9\nrunning 3\nkv 0.25\n\
                cache{block_size=\"32\",blocks=\"100\"} 1\nheat{part=\"gpu\"} 60\n\
                heat{part=\"cpu\"} 70";
    let asked = Asked::new(
        picker(&[described(METRICS_EXTRACTOR)], json!([])),
        Target::Metrics,
        [page, page],
    );
    let snapshot = stored(&asked.shared, "a").unwrap();
    let metrics = &snapshot.endpoints[1].metrics;
    let gauges = (metrics.waiting, metrics.running, metrics.kv_usage);
    assert_eq!(gauges, (Some(4.0), Some(3.0), Some(0.25)));
    assert_eq!(
        (metrics.block_size, metrics.num_blocks),
        (Some(32), Some(100))
    );
    assert_eq!(metrics.attribute("heat"), Some(60.0));
}

#[test]
fn an_endpoint_is_chosen_by_a_number_of_its_page() {
    let scorer = |better: &str, producer: Option<&str>| {
        let mut parameters = json!({"attributeKey": "heat", "algorithm": {"type": better}});
        if let Some(producer) = producer {
            parameters["producer"] = producer.into();
        }
        json!({"type": "endpoint-attribute-scorer", "parameters": parameters})
    };
    let (lower, higher) = ("linear_lower_is_better", "linear_higher_is_better");
    let pages = ["heat{part=\"gpu\"} 60", "heat{part=\"gpu\"} 20"];
    for (extractor, scorer, expected) in [
        (METRICS_EXTRACTOR, scorer(lower, None), 2),
        (METRICS_EXTRACTOR, scorer(higher, None), 1),
        ("mine", scorer(lower, Some("mine")), 2),
        ("mine", scorer(higher, Some("mine")), 1),
    ] {
        let picker = json!({
            "plugins": [scorer, described(extractor)],
            "dataLayer": {"sources": [uses("metrics-data-source", extractor)]},
        });
        let asked = Asked::new(picker, Target::Metrics, pages);
        assert_eq!(asked.chosen(0), Some(expected), "{scorer}");
    }
}

#[test]
fn an_endpoint_whose_number_is_stale_tells_none() {
    let filter = |on_missing: &str| {
        json!({"type": "endpoint-attribute-filter", "parameters": {
            "attribute": "heat",
            "onMissing": on_missing,
            "algorithm": {
                "type": "threshold",
                "threshold": {"operator": "LessThan", "value": 50},
            },
        }})
    };
    let pages = ["heat{part=\"gpu\"} 60", "heat{part=\"gpu\"} 20"];
    let chosen = |on_missing, millis| {
        let picker = json!({"plugins": [filter(on_missing), described(METRICS_EXTRACTOR)]});
        Asked::new(picker, Target::Metrics, pages).chosen(millis)
    };
    // Two seconds is the usual threshold.
    assert_eq!(chosen("Fail", 2000), Some(2));
    assert_eq!(chosen("Fail", 2001), None);
    assert!(chosen("Pass", 2001).is_some());
}

#[test]
fn an_endpoint_is_chosen_by_its_gpus() {
    let filter = json!({"type": "endpoint-attribute-filter", "parameters": {
        "attribute": "GPUUtilization",
        "producer": "gpus",
        "onMissing": "Fail",
        "algorithm": {"type": "threshold", "threshold": {"operator": "LessThan", "value": 0.5}},
    }});
    let pages = ["DCGM_FI_DEV_GPU_UTIL 51", "DCGM_FI_DEV_GPU_UTIL 49"];
    for (interval, millis, expected) in [
        ("1s", 2000, Some(2)),
        ("1s", 2001, None),
        // One of the questions may stay without an answer.
        ("3s", 6000, Some(2)),
        ("3s", 6001, None),
    ] {
        let picker = json!({
            "plugins": [
                filter,
                {"type": "dcgm-data-source", "parameters": {"interval": interval}},
                {"type": "dcgm-extractor", "name": "gpus"},
            ],
            "dataLayer": {"sources": [uses("dcgm-data-source", "gpus")]},
        });
        let asked = Asked::new(picker, Target::Gpus, pages);
        assert_eq!(asked.chosen(millis), expected, "{interval} {millis}");
    }
}

const READ_AT: Timestamp = Timestamp(1_000_000_000);
