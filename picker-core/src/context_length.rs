//! Endpoints that are meant for prompts of some lengths, by a label like `0-8192`.

use alloc::string::String;

use crate::candidate::{Candidate, Context};

/// Which label tells for how many prompt tokens an endpoint is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextLength {
    /// The label; its value is the least and the greatest number of tokens, both included, with a
    /// hyphen between.
    pub label: String,
}

impl ContextLength {
    /// Whether the prompt is of a length that the candidate is meant for.
    ///
    /// One without the label takes any; one whose label is no range takes none. A prompt that was
    /// not read may have any length.
    pub(crate) fn fits(&self, cx: &Context<'_>, candidate: &Candidate<'_>) -> bool {
        if cx.request.prompts.is_empty() {
            return true;
        }
        let label = candidate.label(&self.label);
        let holds = |(least, most): (u64, u64)| (least..=most).contains(&cx.prompt_tokens);
        label.is_none_or(|label| range(label).is_some_and(holds))
    }

    /// How well the prompt suits the candidate, `0.0..=1.0`.
    ///
    /// Narrow ranges and room above the prompt are better. Out of its range a candidate is always
    /// worse than in it, and worse the further.
    pub(crate) fn suits(&self, cx: &Context<'_>, candidate: &Candidate<'_>) -> f64 {
        let label = candidate.label(&self.label);
        let Some(label) = label.filter(|_| !cx.request.prompts.is_empty()) else {
            return UNKNOWN;
        };
        let Some((least, most)) = range(label) else {
            return 0.0;
        };
        let tokens = cx.prompt_tokens;
        if !(least..=most).contains(&tokens) {
            let distance = least
                .saturating_sub(tokens)
                .max(tokens.saturating_sub(most));
            return OUTSIDE_MOST / (1.0 + distance as f64 / 1000.0);
        }
        if least == most {
            return 1.0;
        }
        let width = (most - least) as f64;
        let narrow = 1.0 / (1.0 + width / 10_000.0);
        let room = (most - tokens) as f64 / width;
        OUTSIDE_MOST + (1.0 - OUTSIDE_MOST) * (0.7 * narrow + 0.3 * room)
    }
}

/// The bounds that a label tells.
fn range(label: &str) -> Option<(u64, u64)> {
    let (least, most) = label.split_once('-')?;
    let bound = |text: &str| text.trim().parse::<u64>().ok();
    let (least, most) = (bound(least)?, bound(most)?);
    (least <= most).then_some((least, most))
}

/// The score where nothing is known of the prompt or of the endpoint: between a narrow range that
/// fits and one that does not.
const UNKNOWN: f64 = 0.5;

/// What no score outside the range exceeds, and every one inside does.
const OUTSIDE_MOST: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::EndpointState;
    use crate::{EndpointId, Prompt, Request};
    use alloc::vec::Vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[track_caller]
    fn check(label: Option<&str>, tokens: u64, fits: bool, score: f64) {
        let endpoint = EndpointState::unknown(EndpointId(1), "1.1.1.1:1".parse().unwrap());
        let labels: Vec<(String, String)> = label
            .map(|it| ("range".into(), it.into()))
            .into_iter()
            .collect();
        let candidates = [Candidate {
            labels: &labels,
            ..Candidate::idle(&endpoint)
        }];
        let request = Request {
            prompts: [Prompt::default()].into(),
            ..Request::default()
        };
        let mut cx = Context::of(&candidates, &request);
        cx.prompt_tokens = tokens;
        let rule = ContextLength {
            label: "range".into(),
        };
        assert_eq!(rule.fits(&cx, &candidates[0]), fits, "{label:?} {tokens}");
        let scored = rule.suits(&cx, &candidates[0]);
        assert!(
            (scored - score).abs() < 1e-12,
            "{label:?} {tokens}: {scored}"
        );
        let unread = Request::default();
        cx.request = &unread;
        assert!(rule.fits(&cx, &candidates[0]));
        assert_eq!(rule.suits(&cx, &candidates[0]), UNKNOWN);
    }

    #[test]
    fn a_prompt_suits_a_narrow_range_with_room_above_it() {
        // 0.3 + 0.7 * (0.7 / (1 + 1) + 0.3 * 9000 / 10000)
        check(Some("0-10000"), 1000, true, 0.734);
        // 0.3 + 0.7 * (0.7 / (1 + 0.25) + 0.3 * 0)
        check(Some("500-3000"), 3000, true, 0.692);
        // 0.3 + 0.7 * (0.7 / (1 + 0.25) + 0.3)
        check(Some(" 500 - 3000 "), 500, true, 0.902);
        check(Some("7-7"), 7, true, 1.0);
    }

    #[test]
    fn out_of_its_range_an_endpoint_is_worse_the_further() {
        check(Some("0-1000"), 2000, false, 0.15);
        check(Some("4000-5000"), 1000, false, 0.075);
        check(Some("8-9"), 7, false, 0.3 / 1.001);
    }

    #[test]
    fn an_endpoint_without_a_range_takes_any_and_one_with_a_wrong_range_none() {
        check(None, 5000, true, 0.5);
        for wrong in ["", "100", "9-1", "a-b", "1-2-3", "-5-10", "1-"] {
            check(Some(wrong), 5, false, 0.0);
        }
    }
}
