use super::super::super::picker::tests::{check, plan_of};
use super::super::super::tests::{config, with_pool};
use super::*;
use crate::pool::{Pool, PoolOptions};
use crate::response::Usage;
use crate::snapshot::Snapshot;
use alloc::string::String;
use alloc::vec::Vec;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn picker(attributes: &[Value]) -> Value {
    let reporters = attributes.iter().enumerate().map(|(place, attribute)| {
        json!({
            "type": "request-attribute-reporter",
            "name": format!("{place}"),
            "parameters": {"attributes": [attribute]},
        })
    });
    let plugins = [json!({"type": "queue-scorer"})]
        .into_iter()
        .chain(reporters);
    json!({"plugins": plugins.collect::<Vec<_>>()})
}

fn attribute(name: &str, expression: &str, condition: Option<&str>) -> Value {
    let mut attribute = json!({"key": {"name": name}, "expression": expression});
    if let Some(condition) = condition {
        attribute["condition"] = condition.into();
    }
    attribute
}

#[test]
fn what_an_answer_used_is_reported_under_its_name() {
    let plan = plan_of(picker(&[
        attribute(
            "cost",
            "usage.prompt_tokens + 2 * usage.completion_tokens",
            None,
        ),
        attribute(
            "long",
            "usage.total_tokens",
            Some("usage.total_tokens > 100"),
        ),
        attribute("nothing", "usage.total_tokens * 0", None),
    ]));
    let options = PoolOptions {
        plan,
        ..PoolOptions::default()
    };
    let pool = Pool::new(options, Snapshot::default(), 1);
    let usage = |prompt, output| Usage {
        prompt,
        output,
        ..Usage::default()
    };
    for (usage, expected) in [
        (usage(Some(10), Some(20)), &[("picker.cost", 50)][..]),
        (
            usage(Some(100), Some(20)),
            &[("picker.cost", 140), ("picker.long", 120)],
        ),
        (usage(None, Some(3)), &[("picker.cost", 6)]),
        (usage(None, None), &[]),
    ] {
        let reports: Vec<(&str, i64)> = pool.reports(usage).collect();
        assert_eq!(reports, expected, "{usage:?}");
    }
}

#[test]
fn a_reporter_says_that_it_does_not_write_dynamic_metadata() {
    let config = config(&with_pool(json!({
        "picker": picker(&[attribute("cost", "usage.total_tokens", None)]),
    })));
    let warnings: Vec<String> = config.warnings.iter().map(|it| format!("{it}")).collect();
    assert_eq!(
        warnings,
        [
            "pools[0].picker.plugins[1].parameters.attributes[0].key.namespace: this has no \
             effect, for the value goes to filter state wasm.picker.<name>, which access logs \
             show, and not to dynamic metadata."
        ]
    );
}

#[test]
fn mistakes_of_a_reporter_are_told() {
    let good = attribute("cost", "1", None);
    for (attributes, told) in [
        (
            json!([]),
            "attributes: a reporter has exactly one attribute. \
             Fix: write one, and declare a reporter for each other one.",
        ),
        (
            json!([good, good]),
            "attributes: a reporter has exactly one attribute. \
             Fix: write one, and declare a reporter for each other one.",
        ),
        (
            json!([attribute("scores", "1", None)]),
            "attributes[0].key.name: wasm.picker.scores is where emitScores writes. \
             Fix: write another name.",
        ),
        (
            json!([attribute("cost", "usage.prompt_tokens +", None)]),
            "attributes[0].expression: \"usage.prompt_tokens +\" cannot be read: a number, a count or '(' is \
             expected at column 22. Fix: write an expression over usage, like \
             usage.prompt_tokens + 2 * usage.completion_tokens.",
        ),
        (
            json!([attribute("cost", "1", Some("usage.tokens > 1"))]),
            "attributes[0].condition: \"usage.tokens > 1\" cannot be read: no count of usage, and \
             no function at column 1. Fix: write an expression over usage, like \
             usage.prompt_tokens + 2 * usage.completion_tokens.",
        ),
    ] {
        let plugin = json!({
            "type": "request-attribute-reporter",
            "parameters": {"attributes": attributes},
        });
        check(
            json!({"plugins": [{"type": "queue-scorer"}, plugin]}),
            &[&format!(".plugins[1].parameters.{told}")],
        );
    }
}
