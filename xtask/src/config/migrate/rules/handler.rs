//! Profile handlers of disaggregated serving.

use super::{BYTES_PER_TOKEN, Step};
use crate::config::migrate::layout::{Field, Laid};
use crate::config::migrate::sheet::{Body, Edit, Sheet, kind_of, quoted};

/// The old handler had a decider by default, and before that a threshold; the new one runs no
/// prefill without a decider.
pub(super) fn the_decider_is_named(sheet: &Sheet<'_>) -> Option<Step> {
    let (index, handler) = sheet.plugin(OLD)?;
    let parameters = handler.get("parameters");
    let has = |key: &str| parameters.is_some_and(|it| it.get(key).is_some());
    if PREFILL_DECIDERS.iter().any(|key| has(key)) || has("deciders") {
        return None;
    }
    let threshold = parameters
        .and_then(|it| it.get("threshold"))
        .and_then(Laid::text);
    let threshold: u64 = threshold.and_then(|it| it.parse().ok()).unwrap_or_default();
    let mut edits = Vec::new();
    let (decider, why) = if sheet.has_name(BY_PREFIX) {
        (BY_PREFIX, "was the default".to_owned())
    } else if threshold == 0 {
        (ALWAYS, "is what a threshold of 0 was".to_owned())
    } else {
        let tokens = threshold.div_ceil(BYTES_PER_TOKEN);
        (
            BY_PREFIX,
            format!("does what the threshold did; {threshold} bytes are some {tokens} tokens"),
        )
    };
    edits.extend(name_decider(sheet, handler, decider));
    if !sheet.has_name(decider) {
        let list = sheet.root.get("plugins")?;
        let tokens = threshold.div_ceil(BYTES_PER_TOKEN);
        edits.push(sheet.insert_item(list, handler, &plugin(decider, tokens)));
    }
    let told = format!("plugins[{index}].parameters.deciders.prefill: {decider} {why}");
    Some(Step::new(told, edits))
}

fn name_decider(sheet: &Sheet<'_>, handler: &Laid, decider: &str) -> Option<Edit> {
    let named = Body {
        block: format!("deciders:\n  prefill: {decider}"),
        flow: format!("\"deciders\": {{\"prefill\": {}}}", quoted(decider)),
    };
    let whole = Body {
        block: format!("parameters:\n  {}", named.block.replace('\n', "\n  ")),
        flow: format!("\"parameters\": {{{}}}", named.flow),
    };
    Some(match handler.field("parameters") {
        None => sheet.add(handler, &whole),
        Some(field) if field.value.fields().is_empty() => sheet.replace(handler, field, &whole),
        Some(field) => sheet.add(&field.value, &named),
    })
}

fn plugin(kind: &str, tokens: u64) -> Body {
    let mut body = Body {
        block: format!("type: {kind}"),
        flow: format!("\"type\": {}", quoted(kind)),
    };
    if tokens > 0 {
        body.block += &format!("\nparameters:\n  nonCachedTokens: {tokens}");
        body.flow += &format!(", \"parameters\": {{\"nonCachedTokens\": {tokens}}}");
    }
    body
}

/// What the handler knew of prompts is the decider's now.
pub(super) fn what_the_decider_knows_is_left_out(sheet: &Sheet<'_>) -> Option<Step> {
    let (index, handler) = sheet.plugin(OLD)?;
    let parameters = handler.get("parameters")?;
    let field = parameters
        .fields()
        .iter()
        .find(|it| DECIDERS_OWN.contains(&it.name.as_str()))?;
    let told = format!(
        "plugins[{index}].parameters.{}: is up to the decider now",
        field.name
    );
    Some(Step::new(told, vec![sheet.remove(parameters, field)]))
}

/// Names of profiles and deciders became objects with an entry for each stage.
pub(super) fn profiles_and_deciders_are_objects(sheet: &Sheet<'_>) -> Option<Step> {
    let (index, handler) = sheet.plugin(NEW)?;
    let parameters = handler.get("parameters")?;
    let flat = |it: &Field| FLAT.iter().find(|(old, ..)| *old == it.name);
    let mut fields = parameters.fields().iter();
    let (field, (old, parent, stage)) = fields.find_map(|it| Some((it, flat(it)?)))?;
    let there = parameters.get(parent).and_then(|it| it.get(stage));
    let at = format!("plugins[{index}].parameters.{old}");
    if there.is_some() {
        let told = format!("{at}: has no effect beside {parent}.{stage}");
        return Some(Step::new(told, vec![sheet.remove(parameters, field)]));
    }
    let body = sheet.renamed(parameters, field, stage);
    let edits = sheet.nest(parameters, field, parent, &body);
    Some(Step::new(format!("{at}: is {parent}.{stage} now"), edits))
}

pub(super) fn a_port_of_its_own(sheet: &Sheet<'_>) -> Vec<String> {
    let handlers = sheet.plugins().filter(|(_, it)| kind_of(it) == NEW);
    let ports = handlers.filter(|(_, it)| {
        let parameters = it.get("parameters");
        parameters.is_some_and(|it| it.get("primaryPort").is_some())
    });
    ports
        .map(|(index, _)| {
            format!(
                "plugins[{index}].parameters.primaryPort: this handler sends to the port of the \
                 endpoint; remove it, and give each rank an endpoint of its own"
            )
        })
        .collect()
}

const OLD: &str = "pd-profile-handler";
const NEW: &str = "disagg-profile-handler";
const BY_PREFIX: &str = "prefix-based-pd-decider";
const ALWAYS: &str = "always-disagg-pd-decider";

/// Names that the decider of the prefill stage was given under.
const PREFILL_DECIDERS: [&str; 3] = [
    "deciderPluginName",
    "pdDeciderPluginName",
    "prefillDeciderPluginName",
];

/// Flat parameters, and the object and the stage that they are now.
const FLAT: [(&str, &str, &str); 7] = [
    ("decodeProfile", "profiles", "decode"),
    ("prefillProfile", "profiles", "prefill"),
    ("encodeProfile", "profiles", "encode"),
    ("deciderPluginName", "deciders", "prefill"),
    ("pdDeciderPluginName", "deciders", "prefill"),
    ("prefillDeciderPluginName", "deciders", "prefill"),
    ("encodeDeciderPluginName", "deciders", "encode"),
];

/// Parameters by which the handler itself decided.
const DECIDERS_OWN: [&str; 5] = [
    "threshold",
    "hashBlockSize",
    "prefixPluginType",
    "prefixPluginName",
    "prefixMatchInfoProducerName",
];
