//! The profile handler with what it refers to.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::catalogue::{Reference, Referred, Stage};
use super::super::error::Cause;
use super::super::node::Object;
use super::plugins::{Plugin, Plugins, undefined};
use crate::handler::{Decider, Handler, Stages};
use crate::profile::Profile;

/// The profile handler, with the profiles and deciders that it names.
pub(super) fn handler(document: &Object<'_>, plugins: &Plugins, profiles: &[Profile]) -> Handler {
    let named = plugins.list.iter().find(|it| it.roles.handler.is_some());
    let mut handler = plugins.handler();
    for reference in named.into_iter().flat_map(|it| &it.roles.references) {
        let settled = match reference.to {
            Referred::Profile(stage, may_miss) => {
                settle_profile(&mut handler, (stage, may_miss), reference, profiles)
            }
            Referred::Decider(stage) => {
                decider(plugins, reference).map(|it| set_decider(&mut handler, stage, it))
            }
        };
        if let (Err(cause), Some(plugin)) = (settled, named) {
            document.fail_in(&path(plugin, reference), cause);
        }
    }
    handler
}

fn path(plugin: &Plugin, reference: &Reference) -> String {
    format!("{}.parameters.{}", plugin.path, reference.key)
}

fn settle_profile(
    handler: &mut Handler,
    (stage, may_miss): (Stage, bool),
    reference: &Reference,
    profiles: &[Profile],
) -> Result<(), Cause> {
    let found = profiles.iter().position(|it| it.name == reference.name);
    // A single profile is run whatever a header says.
    let is_free = may_miss || matches!((&*handler, profiles), (Handler::ByHeader { .. }, [_]));
    if found.is_none() && !is_free {
        let names: Vec<&str> = profiles.iter().map(|it| it.name.as_str()).collect();
        return Err(Cause::told(
            format!("there is no scheduling profile '{}'", reference.name),
            format!("add one of this name, or use one of {}", names.join(", ")),
        ));
    }
    if let Handler::Stages(stages) = handler {
        match stage {
            Stage::Decode => stages.decode = found.unwrap_or_default(),
            Stage::Encode => stages.encode = found,
            Stage::Prefill => stages.prefill = found,
        }
    }
    Ok(())
}

/// The decider of this name; `None` for one whose type means nothing here, which is a mistake of
/// its own.
fn decider(plugins: &Plugins, reference: &Reference) -> Result<Option<Decider>, Cause> {
    let Reference { key, name, .. } = reference;
    if plugins.is_unusable(name) {
        return Ok(None);
    }
    let Some(plugin) = plugins.find(name) else {
        let deciders = plugins.list.iter().filter(|it| it.roles.decider.is_some());
        return Err(undefined(key, name, deciders.map(|it| it.name.as_str())));
    };
    let decider = plugin.roles.decider;
    decider.map(Some).ok_or_else(|| {
        Cause::told(
            format!("the plugin {name:?} is not a decider"),
            "refer to a decider, like prefix-based-pd-decider".into(),
        )
    })
}

fn set_decider(handler: &mut Handler, stage: Stage, decider: Option<Decider>) {
    if let Handler::Stages(stages) = handler {
        let Stages {
            prefill_decider,
            encode_decider,
            ..
        } = &mut **stages;
        match stage {
            Stage::Encode => *encode_decider = decider,
            Stage::Decode | Stage::Prefill => *prefill_decider = decider,
        }
    }
}
