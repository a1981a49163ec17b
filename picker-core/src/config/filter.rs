//! The configuration around the pools.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::error::{Cause, Wanted};
use super::node::{Node, Object};
use super::{
    ADMIN_PATHS_MAX, Config, DESTINATION_HEADER, Destination, ListModels, PATH_PREFIXES_MAX, Paths,
    Role, SESSION_KEY_BYTES_MIN, TEXT_BYTES_MAX, admin, is_header_name, is_path, names, pool,
    trust,
};
use crate::session::SessionKey;

/// What a filter says that picks, and pages must not.
pub(super) const KEYS: [&str; 9] = [
    "pools",
    "destination",
    "listModels",
    "modelHeaders",
    "paths",
    "sessionKey",
    "strict",
    "strictModels",
    "trust",
];

/// What this instance is for.
pub(super) fn role(root: &mut Object<'_>) -> Role {
    if let Some(serve) = root.key("serve") {
        serve.choice("role", &[("page", ())]);
        for key in KEYS {
            if let Some(other) = root.key(key) {
                other.fail(Cause::BesidePage);
            }
        }
        return Role::Page;
    }
    let model_headers = root.section_if_given("modelHeaders", names::base_models);
    Role::Filter(Box::new(Config {
        pools: pool::pools(root, model_headers.is_some()),
        destination: root.section("destination", destination),
        paths: root.section("paths", |paths| Paths {
            prefixes: paths.texts("prefixes", PATH_PREFIXES_MAX, Wanted::Path, is_path),
            admin: paths
                .texts_if_given("admin", ADMIN_PATHS_MAX, Wanted::Path, is_path)
                .unwrap_or_else(|| admin::PATHS.map(String::from).to_vec()),
        }),
        session_key: root.key("sessionKey").and_then(|it| session_key(&it)),
        strict: root
            .key("strict")
            .and_then(|it| it.boolean())
            .unwrap_or_default(),
        strict_models: root
            .key("strictModels")
            .and_then(|it| it.boolean())
            .unwrap_or_default(),
        list_models: root
            .key("listModels")
            .and_then(|it| it.choice("time to list models", &LIST_MODELS))
            .unwrap_or_default(),
        model_headers,
        trust: root.section("trust", trust::trust),
        warnings: Vec::new(),
    }))
}

/// The key that a text stands for.
fn session_key(node: &Node<'_>) -> Option<SessionKey> {
    let text = node.text()?;
    if !(SESSION_KEY_BYTES_MIN..=TEXT_BYTES_MAX).contains(&text.len()) {
        // A secret is not repeated.
        node.fail(Cause::told(
            "the key of session tokens is too short to be a secret, or too long".into(),
            alloc::format!("draw one of {SESSION_KEY_BYTES_MIN} to {TEXT_BYTES_MAX} bytes"),
        ));
        return None;
    }
    Some(SessionKey::new(text))
}

fn destination(section: &mut Object<'_>) -> Destination {
    let by_header = section.key("via").and_then(|via| {
        via.choice(
            "way to tell the destination",
            &[("header", true), ("filterState", false)],
        )
    });
    let header = section.key("header");
    let holds = section.key("holdHeaders");
    if by_header == Some(false) {
        if let Some(header) = header {
            header.fail(Cause::HeaderUnused);
        }
        let holds_headers = holds.and_then(|it| it.boolean()).unwrap_or(true);
        return Destination::FilterState { holds_headers };
    }
    if let Some(holds) = holds {
        holds.fail(Cause::told(
            "headers have to be held for a header to be set".into(),
            "remove it, or write via: filterState".into(),
        ));
    }
    let name = header.and_then(|it| it.text_that(Wanted::HeaderName, is_header_name));
    Destination::Header(name.unwrap_or(DESTINATION_HEADER).to_ascii_lowercase())
}

/// The names of [`ListModels`].
pub(super) const LIST_MODELS: [(&str, ListModels); 3] = [
    ("whenEmpty", ListModels::WhenEmpty),
    ("always", ListModels::Always),
    ("never", ListModels::Never),
];
