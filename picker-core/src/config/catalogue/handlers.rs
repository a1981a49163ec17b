//! Profile handlers, their deciders, and who is named in headers beside the destination.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::super::table::{Kind, Parameter, Unfit, Values};
use super::{
    Note, Noted, Part, PluginType, Reference, Referred, Roles, Stability, Stage, producer,
};
use crate::handler::{Decider, Handler, Stages};
use crate::kv_source::{ID_HEADER, KvSource};

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        make: |_| Ok(Roles::handler(Handler::Single)),
        ..PluginType::named("single-profile-handler")
    },
    PluginType {
        parameters: &[Parameter {
            key: "primaryPort",
            kind: Kind::Integer(1, PORT_MAX, Some(8000)),
        }],
        make: |values| {
            Ok(Roles::handler(Handler::DataParallel(
                port(values).unwrap_or(8000),
            )))
        },
        ..PluginType::named("data-parallel-profile-handler")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: &[
            text("headerName", "EPP-Profile"),
            text(DEFAULT_PROFILE, DECODE),
        ],
        make: |values| Ok(by_header(values)),
        ..PluginType::named("header-profile-handler")
    },
    PluginType {
        parameters: DISAGG,
        needs: STAGE_NEEDS,
        make: disagg,
        ..PluginType::named("disagg-profile-handler")
    },
    PluginType {
        stability: Stability::Deprecated("disagg-profile-handler"),
        parameters: &[
            text("decodeProfile", DECODE),
            text("prefillProfile", PREFILL),
            text("deciderPluginName", PREFIX_DECIDER),
            Parameter {
                key: "primaryPort",
                kind: Kind::Integer(0, PORT_MAX, Some(0)),
            },
            PREFIX_PRODUCER,
        ],
        needs: STAGE_NEEDS,
        make: |values| Ok(pd(values)),
        ..PluginType::named("pd-profile-handler")
    },
    PluginType {
        make: |_| Ok(decider(Decider::Always)),
        ..PluginType::named("always-disagg-pd-decider")
    },
    PluginType {
        make: |_| Ok(decider(Decider::Multimodal)),
        ..PluginType::named("always-disagg-multimodal-decider")
    },
    PluginType {
        parameters: &[
            tokens("nonCachedTokens"),
            tokens("promptTokens"),
            PREFIX_PRODUCER,
        ],
        make: |values| Ok(decider(uncached(values))),
        ..PluginType::named(PREFIX_DECIDER)
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: &[
            PREFIX_PRODUCER,
            Parameter {
                key: "minCachedTokenDelta",
                kind: Kind::Integer(1, TOKENS_MAX, Some(1)),
            },
            text("prefillProfileName", PREFILL),
        ],
        make: |values| Ok(kv_source(values)),
        ..PluginType::named("p2p-source-producer")
    },
    written_by_handler("disagg-headers-handler"),
    written_by_handler("prefill-header-handler"),
];

const WRITTEN_BY_HANDLER: &[Parameter] = &[unused("prefillProfile"), unused("encodeProfile")];

/// A type that wrote headers before the profile handler did so.
const fn written_by_handler(name: &'static str) -> PluginType {
    PluginType {
        stability: Stability::Deprecated("nothing; disagg-profile-handler sets the headers itself"),
        parameters: WRITTEN_BY_HANDLER,
        make: |_| Ok(Roles::part(Part::Hook)),
        ..PluginType::named(name)
    }
}

const fn text(key: &'static str, default: &'static str) -> Parameter {
    let kind = Kind::Text(Some(default));
    Parameter { key, kind }
}

const fn name(key: &'static str) -> Parameter {
    let kind = Kind::Text(None);
    Parameter { key, kind }
}

const fn unused(key: &'static str) -> Parameter {
    let kind = Kind::Unused;
    Parameter { key, kind }
}

const fn tokens(key: &'static str) -> Parameter {
    let kind = Kind::Integer(0, TOKENS_MAX, Some(0));
    Parameter { key, kind }
}

const DISAGG: &[Parameter] = &[
    Parameter {
        key: "stageOrder",
        kind: Kind::Choice(STAGE_ORDERS, Some(STAGE_ORDERS[0])),
    },
    Parameter {
        key: "profiles",
        kind: Kind::Section(&[name(DECODE), name(PREFILL), name(ENCODE)]),
    },
    Parameter {
        key: "deciders",
        kind: Kind::Section(&[name(PREFILL), name(ENCODE)]),
    },
    name("decodeProfile"),
    name("prefillProfile"),
    name("encodeProfile"),
    name("prefillDeciderPluginName"),
    name("encodeDeciderPluginName"),
    name("deciderPluginName"),
];

/// Parameters under the names that they had before.
const OLD_NAMES: [(&str, &str); 6] = [
    ("decodeProfile", "profiles.decode"),
    ("prefillProfile", "profiles.prefill"),
    ("encodeProfile", "profiles.encode"),
    ("prefillDeciderPluginName", "deciders.prefill"),
    ("encodeDeciderPluginName", "deciders.encode"),
    ("deciderPluginName", "deciders.prefill"),
];

fn disagg(values: Values<'_>) -> Result<Roles, Unfit> {
    // The name of the stage is that of its profile, unless another is given, and the new key counts
    // before the old ones.
    let given = |section: &str, stage: &str, keys: &[&'static str]| {
        let new = values.section(section).map_or("", |it| it.text(stage));
        let mut all = keys.iter().enumerate().map(|(place, key)| {
            let name = if place == 0 { new } else { values.text(key) };
            (*key, name.to_string())
        });
        all.find(|(_, name)| !name.is_empty())
    };
    let mut references = Vec::new();
    for (stage, name, keys) in [
        (Stage::Decode, DECODE, &["profiles.decode", "decodeProfile"]),
        (
            Stage::Prefill,
            PREFILL,
            &["profiles.prefill", "prefillProfile"],
        ),
        (Stage::Encode, ENCODE, &["profiles.encode", "encodeProfile"]),
    ] {
        let given = given("profiles", name, keys);
        references.push(profile(
            stage,
            name,
            given.unwrap_or_else(|| (keys[0], name.into())),
        ));
    }
    let [prefill_keys, encode_keys]: [&[&'static str]; 2] = [
        &[
            "deciders.prefill",
            "prefillDeciderPluginName",
            "deciderPluginName",
        ],
        &["deciders.encode", "encodeDeciderPluginName"],
    ];
    let prefill_decider = given("deciders", PREFILL, prefill_keys);
    let prefill_first = values.text("stageOrder").starts_with(PREFILL);
    if let Some((key, _)) = prefill_decider.as_ref().filter(|_| prefill_first) {
        return Err(Unfit::because(
            key,
            "prefill decider is not supported in prefill-first stage order",
            "remove it, for the prompt is always computed apart then; or write decode-first",
        ));
    }
    for (stage, given) in [
        (Stage::Prefill, prefill_decider),
        (Stage::Encode, given("deciders", ENCODE, encode_keys)),
    ] {
        references.extend(given.map(|(key, name)| Reference {
            key,
            name,
            to: Referred::Decider(stage),
        }));
    }
    let stages = Stages {
        prefill_first,
        ..Stages::default()
    };
    let old_names = OLD_NAMES.iter().filter(|(key, _)| values.has(key));
    Ok(Roles {
        handler: Some(Handler::Stages(Box::new(stages))),
        references,
        notes: old_names
            .map(|(key, instead)| Note {
                key,
                what: Noted::Deprecated(instead),
            })
            .collect(),
        ..Roles::default()
    })
}

fn pd(values: Values<'_>) -> Roles {
    let given = |key: &'static str, default: &str| (key, filled(values, key, default));
    let (key, name) = given("deciderPluginName", PREFIX_DECIDER);
    let decider = Reference {
        key,
        name,
        to: Referred::Decider(Stage::Prefill),
    };
    let profiles = [
        profile(Stage::Decode, DECODE, given("decodeProfile", DECODE)),
        profile(Stage::Prefill, PREFILL, given("prefillProfile", PREFILL)),
    ];
    let stages = Stages {
        primary_port: port(values),
        ..Stages::default()
    };
    Roles {
        handler: Some(Handler::Stages(Box::new(stages))),
        references: profiles.into_iter().chain([decider]).collect(),
        ..Roles::default()
    }
}

/// The profile of a stage. Under its usual name it may be missing: then there is no such stage. Only
/// decoding cannot.
fn profile(stage: Stage, usual: &str, (key, name): (&'static str, String)) -> Reference {
    let may_miss = stage != Stage::Decode && name == usual;
    let to = Referred::Profile(stage, may_miss);
    Reference { key, name, to }
}

fn by_header(values: Values<'_>) -> Roles {
    let header = filled(values, "headerName", "EPP-Profile").to_ascii_lowercase();
    let default = filled(values, DEFAULT_PROFILE, DECODE);
    let may_miss = default == DECODE;
    Roles {
        headers: [header.clone()].into(),
        references: [Reference {
            key: DEFAULT_PROFILE,
            name: default.clone(),
            to: Referred::Profile(Stage::Decode, may_miss),
        }]
        .into(),
        handler: Some(Handler::ByHeader { header, default }),
        ..Roles::default()
    }
}

fn decider(decider: Decider) -> Roles {
    Roles {
        decider: Some(decider),
        ..Roles::default()
    }
}

fn uncached(values: Values<'_>) -> Decider {
    let tokens = |key| u64::try_from(values.integer(key)).unwrap_or_default();
    Decider::Uncached {
        uncached_tokens: tokens("nonCachedTokens"),
        prompt_tokens: tokens("promptTokens"),
    }
}

fn kv_source(values: Values<'_>) -> Roles {
    Roles {
        part: Some(Part::Producer),
        headers: [ID_HEADER.to_string()].into(),
        kv_source: Some(KvSource {
            gain_tokens: u64::try_from(values.integer("minCachedTokenDelta")).unwrap_or(1),
            prefill_profile: filled(values, "prefillProfileName", PREFILL),
        }),
        ..Roles::default()
    }
}

/// A text, or the default when it is empty: what the reference picker makes of it.
fn filled(values: Values<'_>, key: &str, default: &str) -> String {
    match values.text(key) {
        "" => default.into(),
        text => text.into(),
    }
}

/// The port that is set; 0 is none.
fn port(values: Values<'_>) -> Option<u16> {
    let port = u16::try_from(values.integer("primaryPort")).ok();
    port.filter(|it| *it > 0)
}

/// Stages, and their profiles unless others are named.
const DECODE: &str = "decode";
const ENCODE: &str = "encode";
const PREFILL: &str = "prefill";

const DEFAULT_PROFILE: &str = "defaultProfile";
const PREFIX_DECIDER: &str = "prefix-based-pd-decider";

/// There is one index of prefixes here, whichever producer is named.
const PREFIX_PRODUCER: Parameter = producer(
    "prefixMatchInfoProducerName",
    "approx-prefix-cache-producer",
);

/// What handlers of stages need to know of requests in the reference picker.
const STAGE_NEEDS: &[&str] = &["approx-prefix-cache-producer", "token-producer"];

/// Orders of stages, and short forms that the reference picker takes too.
const STAGE_ORDERS: &[&str] = &["decode-first", "prefill-first", "decode", "prefill"];

const PORT_MAX: i64 = 65_535;

/// The largest count of tokens that can be asked for: more than any context.
const TOKENS_MAX: i64 = 1 << 32;

#[cfg(test)]
mod tests;
