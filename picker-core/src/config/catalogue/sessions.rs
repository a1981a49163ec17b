//! Plugins that know requests which belong together.

use alloc::string::String;
use alloc::vec::Vec;

use super::super::table::{Kind, Parameter, Unfit, Values};
use super::{Part, PluginType, Roles, Said, Stability, header_name};
use crate::filter::Filter;
use crate::identity::Source;
use crate::score::ScorerKind;
use crate::session::{Affinity, AffinityBy, SessionIds};
use crate::time::Span;

pub(super) const TYPES: &[PluginType] = &[
    PluginType {
        stability: Stability::Alpha,
        parameters: AFFINITY,
        make: |values| returning(values, |it| Roles::filter(Filter::Session(it))),
        ..PluginType::named("session-affinity-filter")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: AFFINITY,
        make: |values| returning(values, |it| Roles::scorer(ScorerKind::Session(it))),
        ..PluginType::named("session-affinity-scorer")
    },
    PluginType {
        parameters: &[text("headerName"), text("cookieName")],
        make: session_id,
        ..PluginType::named("session-id-producer")
    },
    PluginType {
        stability: Stability::Alpha,
        parameters: &[Parameter {
            key: "additionalSessionHeaders",
            kind: Kind::Texts,
        }],
        make: agent,
        ..PluginType::named("agent-identity")
    },
];

/// What sends those who come back to their endpoint, in the role that it has.
fn returning(values: Values<'_>, role: fn(Affinity) -> Roles) -> Result<Roles, Unfit> {
    let affinity = affinity(values)?;
    Ok(Roles {
        headers: headers(&affinity),
        ..role(affinity)
    })
}

const AFFINITY: &[Parameter] = &[
    Parameter {
        key: "strategy",
        kind: Kind::Choice(&[TOKEN, ID], Some(TOKEN)),
    },
    Parameter {
        key: "encodedEndpointHeaderConfig",
        kind: Kind::Section(&[Parameter {
            key: "header",
            kind: Kind::Text(Some("x-session-token")),
        }]),
    },
    Parameter {
        key: "sessionIdConfig",
        kind: Kind::Section(&[
            Parameter {
                key: "sources",
                kind: Kind::Sections(&[text("header"), text("attribute"), text("producer")]),
            },
            seconds("evictionTtlSeconds", 300.0),
            seconds("evictionSweepSeconds", 10.0),
        ]),
    },
    Parameter {
        key: "profileName",
        kind: Kind::Text(Some("")),
    },
];

const fn text(key: &'static str) -> Parameter {
    let kind = Kind::Text(None);
    Parameter { key, kind }
}

const fn seconds(key: &'static str, default: f64) -> Parameter {
    let kind = Kind::Number(SECONDS_MIN, SECONDS_MAX, Some(default));
    Parameter { key, kind }
}

fn affinity(values: Values<'_>) -> Result<Affinity, Unfit> {
    let section = |key| values.section(key).unwrap_or(values);
    let by = if values.text("strategy") == ID {
        AffinityBy::Id(session_ids(section("sessionIdConfig"))?)
    } else {
        let header = section("encodedEndpointHeaderConfig").text("header");
        AffinityBy::Token(header_name("encodedEndpointHeaderConfig.header", header)?)
    };
    Ok(Affinity {
        by,
        of_prefill: values.text("profileName") == PREFILL,
    })
}

fn session_ids(values: Values<'_>) -> Result<SessionIds, Unfit> {
    let sources = values.sections("sources");
    let sources: Result<Vec<Source>, Unfit> = sources.into_iter().map(source).collect();
    let mut sources = sources?;
    if sources.is_empty() {
        sources.push(Source::Header("x-session-id".into()));
    }
    let span = |key| Span((values.number(key) * 1e6) as u64);
    Ok(SessionIds {
        sources,
        lifetime: span("evictionTtlSeconds"),
        sweep: span("evictionSweepSeconds"),
    })
}

fn source(values: Values<'_>) -> Result<Source, Unfit> {
    let given = |key| values.has(key).then(|| values.text(key));
    match (given("header"), given("attribute")) {
        (Some(header), None) if !values.has("producer") => {
            Ok(Source::Header(header_name(SOURCES, header)?))
        }
        (None, Some(attribute)) if !attribute.is_empty() => Ok(Source::Attribute {
            attribute: attribute.into(),
            producer: values.text("producer").into(),
        }),
        _ => Err(Unfit::because(
            SOURCES,
            "a source is either a header or an attribute",
            "give it a header, or an attribute and its producer",
        )),
    }
}

fn session_id(values: Values<'_>) -> Result<Roles, Unfit> {
    let given = |key| Some(values.text(key)).filter(|it| !it.is_empty());
    let source = match (given("headerName"), given("cookieName")) {
        (Some(header), None) => Source::Header(header_name("headerName", header)?),
        (None, Some(cookie)) => Source::Cookie(cookie.into()),
        _ => {
            return Err(Unfit::because(
                "",
                "exactly one of headerName and cookieName must be given",
                "name the header, or the cookie, that tells the session",
            ));
        }
    };
    Ok(says("SessionID", [source].into()))
}

fn agent(values: Values<'_>) -> Result<Roles, Unfit> {
    let key = "additionalSessionHeaders";
    let more = values.texts(key).into_iter();
    let more: Result<Vec<String>, Unfit> = more.map(|it| header_name(key, &it)).collect();
    let known = AGENT_HEADERS.map(String::from);
    let headers = more?.into_iter().chain(known);
    Ok(says(
        "agent-identity",
        headers.map(Source::Header).collect(),
    ))
}

fn says(attribute: &'static str, sources: Vec<Source>) -> Roles {
    Roles {
        headers: sources.iter().filter_map(source_header).collect(),
        says: Some(Said { attribute, sources }),
        ..Roles::part(Part::Producer)
    }
}

/// The headers that an affinity reads; those of attributes are read by the plugins that say them.
fn headers(affinity: &Affinity) -> Vec<String> {
    match &affinity.by {
        AffinityBy::Id(ids) => ids.sources.iter().filter_map(source_header).collect(),
        AffinityBy::Token(header) => [header.clone()].into(),
    }
}

fn source_header(source: &Source) -> Option<String> {
    source.header().map(String::from)
}

/// The strategies.
const TOKEN: &str = "encoded_endpoint_header";
const ID: &str = "session_id";

const SOURCES: &str = "sessionIdConfig.sources";

/// The profile that chooses where prompts are computed. Every other names the destination.
const PREFILL: &str = "prefill";

/// Headers in which agents name their session: Claude Code, `OpenCode`, and Codex now and before.
const AGENT_HEADERS: [&str; 4] = [
    "x-claude-code-session-id",
    "x-session-affinity",
    "session-id",
    "session_id",
];

/// Shorter than any pause of a client.
const SECONDS_MIN: f64 = 0.001;

/// A year.
const SECONDS_MAX: f64 = 31_536_000.0;

#[cfg(test)]
mod tests;
