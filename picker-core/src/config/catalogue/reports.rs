//! Plugins that report what answers used.

use alloc::format;

use super::super::table::{Kind, Parameter, Unfit, Values};
use super::{Note, Noted, Part, PluginType, Roles};
use crate::cel::{Expression, ExpressionError, UsageReport};
use crate::plan::Report;

pub(super) const TYPES: &[PluginType] = &[PluginType {
    parameters: REPORTER,
    make: reporter,
    ..PluginType::named("request-attribute-reporter")
}];

const REPORTER: &[Parameter] = &[Parameter::of(
    ATTRIBUTES,
    Kind::Sections(&[
        Parameter::of(
            "key",
            Kind::Section(&[
                Parameter::of("namespace", Kind::Text(Some("envoy.lb"))),
                Parameter::of("name", Kind::NeededText),
            ]),
        ),
        Parameter::of("expression", Kind::NeededText),
        Parameter::of("condition", Kind::Text(None)),
    ]),
)];

fn reporter(values: Values<'_>) -> Result<Roles, Unfit> {
    let attributes = values.sections(ATTRIBUTES);
    let [attribute] = attributes[..] else {
        return Err(Unfit::because(
            ATTRIBUTES,
            "a reporter has exactly one attribute",
            "write one, and declare a reporter for each other one",
        ));
    };
    let key = attribute.section("key");
    let name = key.map_or("", |it| it.text("name"));
    if name == SCORES {
        return Err(Unfit::because(
            "attributes[0].key.name",
            "wasm.picker.scores is where emitScores writes",
            "write another name",
        ));
    }
    let condition = Some(attribute.text("condition")).filter(|it| !it.is_empty());
    let condition = condition.map(|text| {
        let read = Expression::condition(text);
        read.map_err(|error| unfit("condition", text, error))
    });
    let text = attribute.text("expression");
    let number = Expression::number(text).map_err(|error| unfit("expression", text, error))?;
    Ok(Roles {
        report: Some(Report {
            property: format!("picker.{name}"),
            number: UsageReport::new(number, condition.transpose()?),
        }),
        notes: [Note {
            key: "attributes[0].key.namespace",
            what: Noted::NoEffect(FILTER_STATE),
        }]
        .into(),
        ..Roles::part(Part::Hook)
    })
}

fn unfit(key: &str, text: &str, error: ExpressionError) -> Unfit {
    Unfit::because(
        &format!("attributes[0].{key}"),
        &format!("{text:?} cannot be read: {error}"),
        "write an expression over usage, like usage.prompt_tokens + 2 * usage.completion_tokens",
    )
}

const FILTER_STATE: &str = "the value goes to filter state wasm.picker.<name>, which access logs show, and not to dynamic \
     metadata";

const ATTRIBUTES: &str = "attributes";

/// The end of the name of the filter state that shows scores.
const SCORES: &str = "scores";

#[cfg(test)]
mod tests;
