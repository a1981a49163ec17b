//! The JSON Schema of the filter's configuration.

use serde_json::{Value, json};

use super::super::filter::{KEYS, LIST_MODELS};
use super::super::pool::FAILURE_MODES;
use super::super::units::{show_duration, show_size};
use super::super::{
    ADMIN_PATHS_MAX, BASE_MODELS_MAX, CAPACITY_TOKENS_MAX, DESTINATION_HEADER, ENDPOINTS_MAX,
    LABELS_MAX, MATCH_VALUES_MAX, MODELS_MAX, OBJECTIVES_MAX, PATH_PREFIXES_MAX,
    POOL_NAME_BYTES_MAX, POOLS_MAX, REQUEST_BODY_BYTES, REQUEST_BODY_BYTES_MAX,
    REQUEST_BODY_BYTES_MIN, REWRITE_MATCHES_MAX, REWRITE_TARGETS_MAX, REWRITE_WEIGHT_MAX,
    REWRITES_MAX, SCRAPE_CLUSTER, SCRAPE_INTERVAL, SCRAPE_INTERVAL_MIN, SCRAPE_TIMEOUT,
    SESSION_KEY_BYTES_MIN, STALENESS_THRESHOLD, TEXT_BYTES_MAX, TRUST_NAMES_MAX, admin,
};
use super::{DRAFT, DURATION, SIZE, closed, discovery, picker_schema};
use crate::engine::EngineKind;
use crate::time::Span;

/// The JSON Schema (draft 2020-12) of the filter's configuration.
pub fn config_schema() -> Value {
    let mut schema = closed(json!({
        "serve": told(json!({"const": "page"}), "This filter instance serves the picker's pages."),
        "pools": list(POOLS_MAX, pool(), "A request belongs to the first pool that matches and serves its model."),
        "destination": destination(),
        "listModels": told(
            json!({
                "enum": LIST_MODELS.map(|(name, _)| name),
                "default": LIST_MODELS.first().map(|(name, _)| *name),
            }),
            "When the picker answers GET /v1/models: while no endpoint is ready, always, or never.",
        ),
        "modelHeaders": model_headers(),
        "paths": told(
            closed(json!({
                "prefixes": told(
                    paths(PATH_PREFIXES_MAX),
                    "What may stand before an API's path, like /openai.",
                ),
                "admin": told(
                    paths(ADMIN_PATHS_MAX),
                    &alloc::format!(
                        "Ends of paths that are refused, for they administer a server; by default \
                         those of the engines, like {}.",
                        admin::PATHS.first().copied().unwrap_or_default()
                    ),
                ),
            })),
            "Where the APIs are mounted.",
        ),
        "sessionKey": told(
            json!({
                "type": "string",
                "minLength": SESSION_KEY_BYTES_MIN,
                "maxLength": TEXT_BYTES_MAX,
            }),
            "A secret that keys session tokens, so that they hold on all Envoys; random by default.",
        ),
        "strict": told(
            json!({"type": "boolean", "default": false}),
            "Refuse a body that cannot be read, with 400, instead of routing it by load.",
        ),
        "strictModels": told(
            json!({"type": "boolean", "default": false}),
            "Refuse a model that no pool serves, with 404.",
        ),
        "trust": trust(),
    }));
    schema["$schema"] = DRAFT.into();
    schema["title"] = "The configuration of the picker's filter".into();
    let no_others: serde_json::Map<_, _> = KEYS
        .map(|it| (it.into(), false.into()))
        .into_iter()
        .collect();
    schema["if"] = json!({"required": ["serve"]});
    schema["then"] = json!({"properties": no_others});
    schema["else"] = json!({
        "if": {"not": {"required": ["modelHeaders"]}},
        "then": {"required": ["pools"]},
    });
    schema
}

fn pool() -> Value {
    let mut picker = picker_schema();
    if let Some(picker) = picker.as_object_mut() {
        picker.remove("$schema");
    }
    let engines = EngineKind::ALL.map(EngineKind::name);
    let modes = FAILURE_MODES.map(|(name, _)| name);
    let size = json!({
        "type": ["integer", "string"],
        "minimum": REQUEST_BODY_BYTES_MIN,
        "maximum": REQUEST_BODY_BYTES_MAX,
        "pattern": SIZE,
        "default": show_size(REQUEST_BODY_BYTES),
    });
    let mut pool = closed(json!({
        "name": told(
            json!({"type": "string", "maxLength": POOL_NAME_BYTES_MAX, "pattern": POOL_NAME}),
            "A name of its own, also the key of the pool's shared state.",
        ),
        "match": matches(),
        "models": told(
            json!({"type": "array", "maxItems": MODELS_MAX, "items": name(), "uniqueItems": true}),
            "The models it serves, or prefixes like reviews-*; none: every model.",
        ),
        "modelRewrites": rewrites(),
        "publicNames": told(
            json!({"type": "boolean", "default": true}),
            "Show in answers the name that the client has used.",
        ),
        "fallback": fallback(),
        "engine": told(
            json!({"enum": engines, "default": EngineKind::default().name()}),
            "The engine of endpoints whose label llm-d.ai/engine-type names none.",
        ),
        "endpoints": list(ENDPOINTS_MAX, endpoint(), "The servers; no address twice."),
        "discovery": discovery::schema(),
        "scrape": scrape(),
        "cache": cache(),
        "objectives": told(objectives(), "How much requests matter that name them; else 0."),
        "picker": told(picker, "How an endpoint is chosen; by least cost when it is left out."),
        "failureMode": told(
            json!({"enum": modes, "default": modes.first()}),
            "What happens when no endpoint can be used: Envoy chooses, or 503.",
        ),
        "emitScores": told(
            json!({"type": "boolean", "default": false}),
            "Leave the totals of all endpoints in filter state with every choice.",
        ),
        "limits": closed(json!({
            "requestBodyBytes": told(size, "Larger bodies are answered with 413."),
            "requestsPerEndpoint": told(
                json!({"type": "integer", "minimum": 1, "maximum": u32::MAX}),
                "What this Envoy has in flight at one endpoint at most.",
            ),
        })),
    }));
    pool["required"] = json!(["name"]);
    pool["oneOf"] = json!([{"required": ["endpoints"]}, {"required": ["discovery"]}]);
    pool
}

fn matches() -> Value {
    let texts = |item: Value| json!({"type": "array", "maxItems": MATCH_VALUES_MAX, "items": item});
    let host = json!({"type": "string", "maxLength": TEXT_BYTES_MAX, "pattern": HOST});
    told(
        closed(json!({
            "clusters": texts(name()),
            "routes": texts(name()),
            "hosts": texts(host),
            "pathPrefixes": paths(MATCH_VALUES_MAX),
        })),
        "Which requests are the pool's: one value of every list that has some fits. None: all.",
    )
}

fn endpoint() -> Value {
    let mut endpoint = closed(json!({
        "address": told(
            json!({"type": "string", "pattern": ADDRESS}),
            "An IP address and a port, like 10.0.0.1:8000 or [2001:db8::1]:8000.",
        ),
        "labels": told(
            json!({
                "type": "object",
                "maxProperties": LABELS_MAX,
                "additionalProperties": {"type": "string"},
            }),
            "What filters and scorers select by; llm-d.ai/engine-type names the engine, \
             llm-d.ai/engine-rank the data-parallel rank on a metrics page of several, and \
             llm-d.ai/active-ports the only ports that are used.",
        ),
    }));
    endpoint["required"] = json!(["address"]);
    endpoint
}

fn scrape() -> Value {
    let duration = |default: Span, told_of: &str| {
        let schema = json!({
            "type": "string",
            "pattern": DURATION,
            "default": show_duration(default),
        });
        told(schema, told_of)
    };
    let mut cluster = name();
    cluster["default"] = SCRAPE_CLUSTER.into();
    let interval = alloc::format!(
        "From one scrape of an endpoint to the next; at least {}.",
        show_duration(SCRAPE_INTERVAL_MIN)
    );
    told(
        closed(json!({
            "cluster": told(cluster, "The ORIGINAL_DST cluster that reaches any endpoint."),
            "interval": duration(SCRAPE_INTERVAL, &interval),
            "timeout": duration(SCRAPE_TIMEOUT, "When a scrape is given up."),
            "path": told(path(), "The metrics page; by default the usual one of the engine."),
            "stalenessThreshold": duration(
                STALENESS_THRESHOLD,
                "The age at which metrics are stale; longer than the interval.",
            ),
        })),
        "How metrics are collected.",
    )
}

fn objectives() -> Value {
    let mut objective = closed(json!({
        "name": name(),
        "priority": {
            "type": "integer",
            "minimum": i32::MIN,
            "maximum": i32::MAX,
            "default": 0,
        },
    }));
    objective["required"] = json!(["name"]);
    json!({"type": "array", "maxItems": OBJECTIVES_MAX, "items": objective})
}

fn rewrites() -> Value {
    let mut model = closed(json!({
        "type": {"const": "Exact", "default": "Exact"},
        "value": name(),
    }));
    model["required"] = json!(["value"]);
    let mut matches = closed(json!({"model": model}));
    matches["required"] = json!(["model"]);
    let mut target = closed(json!({
        "modelRewrite": told(name(), "The name at the servers."),
        "weight": told(
            json!({"type": "integer", "minimum": 0, "maximum": REWRITE_WEIGHT_MAX}),
            "Its share of the requests; all targets have one or none has, then all get the same.",
        ),
    }));
    target["required"] = json!(["modelRewrite"]);
    let mut rule = closed(json!({
        "matches": told(
            json!({"type": "array", "maxItems": REWRITE_MATCHES_MAX, "items": matches}),
            "The names that it is for; none: every name, and requests that name none.",
        ),
        "targets": list(REWRITE_TARGETS_MAX, target, "What these become."),
        "stickyHeader": told(
            header(),
            "Requests with the same value of this header get the same target.",
        ),
    }));
    rule["required"] = json!(["targets"]);
    told(
        json!({"type": "array", "maxItems": REWRITES_MAX, "items": rule}),
        "Rules that give models the names they have at the servers; one with the name goes before \
         one for every name.",
    )
}

fn fallback() -> Value {
    let mut fallback = closed(json!({
        "pool": name(),
        "model": told(name(), "The name of the model there; by its own rules when it is left out."),
    }));
    fallback["required"] = json!(["pool"]);
    told(
        fallback,
        "The pool that serves while this one has no endpoint.",
    )
}

fn model_headers() -> Value {
    let mut base = closed(json!({
        "baseModel": name(),
        "adapters": {"type": "array", "maxItems": MODELS_MAX, "items": name()},
    }));
    base["required"] = json!(["baseModel"]);
    told(
        closed(json!({
            "baseModels": told(
                json!({"type": "array", "maxItems": BASE_MODELS_MAX, "items": base}),
                "Which adapters belong to which model, for x-gateway-base-model-name.",
            ),
        })),
        "Tell routes the model of a request, in x-gateway-model-name.",
    )
}

fn header() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": TEXT_BYTES_MAX})
}

fn trust() -> Value {
    let header = json!({"anyOf": [
        header(),
        {"type": "array", "minItems": 1, "maxItems": TRUST_NAMES_MAX, "items": header()},
    ]});
    let keys =
        json!({"type": "array", "minItems": 1, "maxItems": TRUST_NAMES_MAX, "items": name()});
    let mut metadata = closed(json!({"namespace": name(), "path": keys}));
    metadata["required"] = json!(["namespace", "path"]);
    let mut source = closed(json!({
        "header": told(header, "The first that is there counts; clients may set it too."),
        "metadata": told(metadata, "Dynamic metadata that another filter wrote."),
        "filterState": told(name(), "Filter state of this name."),
        "none": told(json!({"const": true}), "All requests are alike."),
    }));
    source["minProperties"] = 1.into();
    source["maxProperties"] = 1.into();
    told(
        closed(json!({
            "priority": told(
                source.clone(),
                "The name of an objective, or in metadata and filter state also a number.",
            ),
            "fairness": told(source, "The tenant."),
        })),
        "Where the priorities and the tenants of requests are found.",
    )
}

fn cache() -> Value {
    let tokens = json!({
        "anyOf": [
            {"const": "auto"},
            {"type": "integer", "minimum": 1, "maximum": CAPACITY_TOKENS_MAX},
        ],
        "default": "auto",
    });
    told(
        closed(json!({
            "capacityTokens": told(tokens, "What an endpoint holds; auto is what it reports."),
            "hashSeed": told(name(), "Pools with different seeds share nothing."),
        })),
        "What is assumed of the prefix cache of every endpoint.",
    )
}

fn destination() -> Value {
    let mut header = header();
    header["default"] = DESTINATION_HEADER.into();
    let mut destination = closed(json!({
        "via": {"enum": ["header", "filterState"], "default": "header"},
        "header": header,
        "holdHeaders": told(
            json!({"type": "boolean", "default": true}),
            "With via: filterState, whether headers wait here for the body. Write false where the \
             host cannot do that (without allow_on_headers_stop_iteration), and have \
             envoy.filters.http.buffer behind the picker.",
        ),
    }));
    destination["if"] =
        json!({"properties": {"via": {"const": "filterState"}}, "required": ["via"]});
    destination["then"] = json!({"properties": {"header": false}});
    destination["else"] = json!({"properties": {"holdHeaders": false}});
    told(destination, "How Envoy is told the pick.")
}

fn list(most: usize, items: Value, description: &str) -> Value {
    let schema = json!({"type": "array", "minItems": 1, "maxItems": most, "items": items});
    told(schema, description)
}

fn paths(most: usize) -> Value {
    json!({"type": "array", "maxItems": most, "items": path()})
}

fn path() -> Value {
    json!({"type": "string", "maxLength": TEXT_BYTES_MAX, "pattern": PATH})
}

pub(super) fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": TEXT_BYTES_MAX})
}

pub(super) fn told(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

/// A DNS label or several.
const POOL_NAME: &str = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$";

/// One host name without port; patterns are none.
const HOST: &str = "^[A-Za-z0-9._-]+$";

/// The path of a request, without query.
const PATH: &str = "^/[!-\"$->@-~]*$";

/// An IP address, roughly, and a port.
const ADDRESS: &str = "^([0-9.]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]+$";
