//! What people have that is out of date, and what stands in its place now.
//!
//! A rule makes one change, and the text is read again after it; so a rule sees what those before
//! it have made, and none has to care for the edits of another.

mod document;
mod handler;
mod labels;
mod plugins;
mod prefix;

use super::sheet::{Edit, Sheet};

/// One change.
#[derive(Debug)]
pub(super) struct Step {
    /// What is changed, and why: a path and a sentence.
    pub(super) told: String,
    /// How.
    pub(super) edits: Vec<Edit>,
}

/// The next change of a document; `None` when there is nothing left to change.
pub(super) fn next_step(sheet: &Sheet<'_>) -> Option<Step> {
    RULES.iter().find_map(|rule| rule(sheet))
}

/// What only a person can change: paths with sentences.
pub(super) fn left(sheet: &Sheet<'_>) -> Vec<String> {
    REMARKS.iter().flat_map(|remark| remark(sheet)).collect()
}

impl Step {
    fn new(told: impl Into<String>, edits: Vec<Edit>) -> Self {
        let told = told.into();
        Self { told, edits }
    }
}

type Rule = fn(&Sheet<'_>) -> Option<Step>;

const RULES: [Rule; 13] = [
    document::the_version_has_a_new_name,
    document::gates_that_are_gone_are_left_out,
    document::the_parser_is_one_of_a_list,
    document::the_detector_belongs_to_flow_control,
    prefix::the_scorer_does_not_hash,
    labels::one_label_is_a_selector,
    handler::the_decider_is_named,
    handler::what_the_decider_knows_is_left_out,
    plugins::types_have_new_names,
    plugins::headers_are_set_by_the_handler,
    handler::profiles_and_deciders_are_objects,
    prefix::events_do_not_reach_a_proxy,
    prefix::blocks_are_measured_in_tokens,
];

type Remark = fn(&Sheet<'_>) -> Vec<String>;

const REMARKS: [Remark; 5] = [
    document::an_unknown_version,
    plugins::a_tokenizer_of_its_own,
    prefix::two_places_for_one_setting,
    labels::a_label_that_may_be_missing,
    handler::a_port_of_its_own,
];

/// Bytes of a token, as the reference picker estimates it.
const BYTES_PER_TOKEN: u64 = 4;
