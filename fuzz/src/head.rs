//! Request heads: however an administrative path is spelled it is refused, the query means
//! nothing, and what is not to be read is not waited for.

use std::io;
use std::sync::OnceLock;

use codecs::Coding;
use picker_core::{Config, Course, Head, Refusal, ResponseKind, Role, Shape, parse_config};
use serde_json::Value;

use crate::input::Input;

/// A byte of flags, then in lines the path, the host, the method and a header's value.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let flags = input.byte();
    let text = String::from_utf8_lossy(input.0);
    let mut lines = text.split('\n').map(String::from);
    let mut line = || lines.next().unwrap_or_default();
    let head = Head {
        path: line().into(),
        host: line().into(),
        method: line().into(),
        ends: flags & 1 != 0,
        upgrades: flags & 2 != 0,
        encoded: flags & 4 != 0,
        content_length: (flags & 8 != 0).then_some(u64::from(flags) << 6),
        ..Head::default()
    };
    let Some(config) = CONFIG.get_or_init(config) else {
        return;
    };
    let course = config.course(&head);
    follows_its_head(config, &head, course);
    spelling_does_not_matter(config, &head, course);
    headers_are_read_alike(&line());
}

/// Paths of engines, administrative ones and odd ones.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let lines = [
        "\0/v1/chat/completions\nexample.com\nPOST\ngzip",
        "\0/openai/deployments/a/chat/completions?api-version=1\n[::1]:80\nPOST\nbr",
        "\x08/v1/completions/\nllm.example.com:8080\nPOST\napplication/json; charset=utf-8",
        "\x01/v1/models\n\nGET\ntext/event-stream",
        "\0/%73leep//?level=1#x\nexample.com\nPOST\nidentity",
        "\0/v1/load_lora_adapter\nexample.com\nPOST\nx-gzip",
        "\x02/tokenize\nexample.com\nCONNECT\nzstd",
    ];
    Ok(lines.map(|text| text.as_bytes().to_vec()).to_vec())
}

fn config() -> Option<Config> {
    match parse_config(DOCUMENT.as_bytes()) {
        Ok(Role::Filter(config)) => Some(*config),
        _ => None,
    }
}

fn follows_its_head(config: &Config, head: &Head<'_>, course: Course) {
    let may_wait = !head.ends && !head.upgrades && !head.encoded && head.method != "CONNECT";
    match course {
        Course::Pass => unreachable!("the last pool takes every request"),
        Course::Decide(pool) => assert!(pool < config.pools.len()),
        Course::ListModels(pools) => assert!(config.default_pool(pools).is_some()),
        Course::Read(pools, shape) => {
            assert!(config.default_pool(pools).is_some());
            let limit = config.body_limit(pools);
            assert!(may_wait && head.content_length.is_none_or(|length| length <= limit));
            assert_eq!(
                Shape::of_path(&head.path, &config.paths.prefixes),
                Some(shape)
            );
        }
        Course::Refuse(_, refusal, shape) => {
            assert!((400..600).contains(&refusal.status()));
            let body = refusal.body(shape);
            assert!(serde_json::from_str::<Value>(&body).is_ok(), "{body}");
        }
    }
}

fn spelling_does_not_matter(config: &Config, head: &Head<'_>, course: Course) {
    let with_path = |path: String| {
        config.course(&Head {
            path: path.into(),
            ..head.clone()
        })
    };
    if !head.path.contains(['?', '#']) {
        assert_eq!(
            with_path(format!("{}?a=/v1/completions", head.path)),
            course
        );
    }
    let is_refused = |course| matches!(course, Course::Refuse(_, Refusal::AdminPath, _));
    if !is_refused(course) {
        return;
    }
    let (path, query) = head
        .path
        .split_at(head.path.find(['?', '#']).unwrap_or(head.path.len()));
    assert!(is_refused(with_path(format!("{path}/{query}"))));
    assert!(is_refused(with_path(format!("/any{path}#{query}"))));
    if !path.contains('%') {
        let escaped: String = path.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert!(is_refused(with_path(escaped + query)));
    }
}

/// Case and blanks mean nothing in a header, nor do parameters in a content type.
fn headers_are_read_alike(value: &str) {
    let coding = Coding::named(value);
    assert_eq!(
        Coding::named(&format!(" {} ", value.to_ascii_uppercase())),
        coding
    );
    let kind = ResponseKind::of_headers(Some(value), None);
    let parameters = format!("{} ; charset=utf-8", value.to_ascii_uppercase());
    assert_eq!(
        ResponseKind::of_headers(Some(&parameters), Some("identity")),
        kind
    );
    if coding.is_some() {
        let kind = ResponseKind::of_headers(Some("application/json"), Some(value));
        assert_eq!(kind, ResponseKind::Coded);
    }
}

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

const DOCUMENT: &str = r#"{"pools":[
    {"name":"a","match":{"hosts":["llm.example.com"]},"endpoints":[{"address":"10.0.0.1:8000"}]},
    {"name":"b","endpoints":[{"address":"10.0.0.2:8000"}],"limits":{"requestBodyBytes":1000}}],
    "paths":{"prefixes":["/openai","/models/"]}}"#;
