//! Prefix caches: who hashes prompts, by which blocks, and who hears of what engines hold.

use super::plugins::rename;
use super::{BYTES_PER_TOKEN, Step};
use crate::config::migrate::layout::{Field, Form, Laid};
use crate::config::migrate::sheet::{Body, Edit, Sheet, kind_of, quoted};

/// How prompts are hashed is set where it is done, in a producer of its own.
pub(super) fn the_scorer_does_not_hash(sheet: &Sheet<'_>) -> Option<Step> {
    if sheet.plugin(PRODUCER).is_some() {
        return None;
    }
    let list = sheet.root.get("plugins")?;
    let (index, scorer, parameters) = hashing_scorer(sheet)?;
    let value = &parameters.value;
    let moved: Vec<&Field> = value.fields().iter().filter(|it| is_hashing(it)).collect();
    let names: Vec<&str> = moved.iter().map(|it| it.name.as_str()).collect();
    let told = format!(
        "plugins[{index}].parameters: {} belong to {PRODUCER}, which hashes prompts now",
        names.join(", ")
    );
    let mut edits = take_out(sheet, scorer, parameters, &moved);
    let block = parameters_of(sheet, scorer, parameters, &moved);
    let producer = Body {
        block: format!("type: {PRODUCER}\n{block}"),
        flow: format!(
            "\"type\": \"{PRODUCER}\", \"parameters\": {}",
            flow_of(sheet, &moved)
        ),
    };
    edits.push(sheet.insert_item(list, scorer, &producer));
    Some(Step::new(told, edits))
}

/// Some of a plugin's parameters as lines, with the comments in them.
fn parameters_of(sheet: &Sheet<'_>, plugin: &Laid, all: &Field, some: &[&Field]) -> String {
    if some.len() == all.value.fields().len() {
        return sheet.renamed(plugin, all, &all.name).block;
    }
    if all.value.form() == Form::Flow {
        return format!("{}: {}", all.name, flow_of(sheet, some));
    }
    let lines = some
        .iter()
        .map(|it| sheet.renamed(&all.value, it, &it.name));
    let lines: Vec<String> = lines.map(|it| it.block.replace('\n', "\n  ")).collect();
    format!("{}:\n  {}", all.name, lines.join("\n  "))
}

fn take_out(sheet: &Sheet<'_>, plugin: &Laid, all: &Field, some: &[&Field]) -> Vec<Edit> {
    let kept = all.value.fields().iter().filter(|it| !is_hashing(it));
    let kept: Vec<&Field> = kept.collect();
    if kept.is_empty() {
        return vec![sheet.remove(plugin, all)];
    }
    if all.value.form() == Form::Flow {
        let text = flow_of(sheet, &kept);
        let range = all.value.span.clone();
        return vec![Edit { range, text }];
    }
    some.iter().map(|it| sheet.remove(&all.value, it)).collect()
}

/// Only the engines know what they hold, and their events do not reach a proxy.
pub(super) fn events_do_not_reach_a_proxy(sheet: &Sheet<'_>) -> Option<Step> {
    sheet.plugins().find_map(|(index, plugin)| {
        let new = match kind_of(plugin) {
            "precise-prefix-cache-scorer" => SCORER,
            "precise-prefix-cache-producer" if sheet.plugin(PRODUCER).is_none() => PRODUCER,
            _ => return None,
        };
        let mut edits = rename(sheet, plugin, new)?;
        let parameters = plugin.field("parameters");
        edits.extend(parameters.map(|it| sheet.remove(plugin, it)));
        let told = format!(
            "plugins[{index}]: {} needs events that do not reach a proxy; {new} goes by what was \
             sent where and by the engines' answers",
            kind_of(plugin)
        );
        Some(Step::new(told, edits))
    })
}

/// Blocks are as long as the engines' and counted in tokens.
pub(super) fn blocks_are_measured_in_tokens(sheet: &Sheet<'_>) -> Option<Step> {
    let mut producers = sheet.plugins().filter(|(_, it)| kind_of(it) == PRODUCER);
    producers.find_map(|(index, plugin)| {
        let parameters = plugin.get("parameters")?;
        let step = size_of_block(sheet, parameters).or_else(|| limit(sheet, plugin, parameters));
        let (key, told, edits) = step?;
        let told = format!("plugins[{index}].parameters.{key}: {told}");
        Some(Step::new(told, edits))
    })
}

/// A change of a parameter: which, what, and how.
type Change = (&'static str, String, Vec<Edit>);

fn size_of_block(sheet: &Sheet<'_>, parameters: &Laid) -> Option<Change> {
    let old = ["hashBlockSize", "blockSize"].into_iter();
    let mut fields = old.filter_map(|key| Some((key, parameters.field(key)?)));
    let (key, field) = fields.next()?;
    if parameters.get(TOKENS).is_some() {
        let told = format!("has no effect beside {TOKENS}");
        return Some((key, told, vec![sheet.remove(parameters, field)]));
    }
    let mut edits = vec![sheet.rename(field, TOKENS)];
    let mut told = format!("is called {TOKENS} now");
    if key == "hashBlockSize" {
        let bytes = number(field)?;
        let tokens = bytes.div_ceil(BYTES_PER_TOKEN).max(1).to_string();
        edits.push(sheet.set(&field.value, &tokens));
        told = format!("{told}; {bytes} bytes are some {tokens} tokens");
    }
    Some((key, told, edits))
}

/// The limit of what is compared, which was in blocks.
fn limit(sheet: &Sheet<'_>, plugin: &Laid, parameters: &Laid) -> Option<Change> {
    let key = "maxPrefixBlocksToMatch";
    let field = parameters.field(key)?;
    let mut edits = vec![remove_parameter(sheet, plugin, field)?];
    let most = parameters.field("maxPrefixTokensToMatch");
    // Only where there is no limit in tokens did that in blocks still count.
    let Some(most) = most.filter(|it| number(it) == Some(0)) else {
        let told = "has no effect since maxPrefixTokensToMatch came, which is 131072 by default";
        return Some((key, told.to_owned(), edits));
    };
    let block = parameters
        .field(TOKENS)
        .and_then(number)
        .unwrap_or_default();
    let block = block.max(BLOCK_TOKENS_MIN);
    let tokens = number(field)?.saturating_mul(block).to_string();
    edits.push(sheet.set(&most.value, &tokens));
    let told = format!("is maxPrefixTokensToMatch now, in blocks of {block} tokens");
    Some((key, told, edits))
}

fn number(field: &Field) -> Option<u64> {
    field.value.text()?.parse().ok()
}

pub(super) fn two_places_for_one_setting(sheet: &Sheet<'_>) -> Vec<String> {
    let mut left = Vec::new();
    if let (Some((index, ..)), Some(_)) = (hashing_scorer(sheet), sheet.plugin(PRODUCER)) {
        left.push(format!(
            "plugins[{index}].parameters: how prompts are hashed is set in {PRODUCER}, which is \
             declared too; leave one of the two settings there"
        ));
    }
    let precise = sheet.plugin("precise-prefix-cache-producer");
    left.extend(precise.map(|(index, _)| {
        format!(
            "plugins[{index}]: needs events that do not reach a proxy; remove it and use \
                 {PRODUCER}, which is declared too"
        )
    }));
    left
}

/// A scorer with parameters of what is a producer now.
fn hashing_scorer<'a>(sheet: &Sheet<'a>) -> Option<(usize, &'a Laid, &'a Field)> {
    sheet.plugins().find_map(|(index, plugin)| {
        let parameters = plugin.field("parameters")?;
        let is_scorer = [SCORER, "prefix-cache-plugin"].contains(&kind_of(plugin));
        let hashes = parameters.value.fields().iter().any(is_hashing);
        (is_scorer && hashes).then_some((index, plugin, parameters))
    })
}

fn is_hashing(field: &Field) -> bool {
    HASHING.contains(&field.name.as_str())
}

fn flow_of(sheet: &Sheet<'_>, fields: &[&Field]) -> String {
    let field = |it: &&Field| format!("{}: {}", quoted(&it.name), sheet.flow(&it.value));
    let fields: Vec<String> = fields.iter().map(field).collect();
    format!("{{{}}}", fields.join(", "))
}

/// Takes a parameter out, and `parameters` with the last one.
fn remove_parameter(sheet: &Sheet<'_>, plugin: &Laid, field: &Field) -> Option<Edit> {
    let parameters = plugin.field("parameters")?;
    Some(if parameters.value.fields().len() == 1 {
        sheet.remove(plugin, parameters)
    } else {
        sheet.remove(&parameters.value, field)
    })
}

const SCORER: &str = "prefix-cache-scorer";
const PRODUCER: &str = "approx-prefix-cache-producer";
const TOKENS: &str = "blockSizeTokens";

/// Parameters that the scorer had before there was a producer.
const HASHING: [&str; 7] = [
    "autoTune",
    "blockSize",
    TOKENS,
    "hashBlockSize",
    "lruCapacityPerServer",
    "maxPrefixBlocksToMatch",
    "maxPrefixTokensToMatch",
];

/// Tokens of the smallest block that the reference picker hashes, whatever is set.
const BLOCK_TOKENS_MIN: u64 = 64;
