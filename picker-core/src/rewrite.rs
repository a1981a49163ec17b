//! Which name a model has at the servers of a pool, where it is not the one that clients use.

use alloc::string::String;
use alloc::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

use crate::draw::Draws;

/// A rule by which models get other names, as an `InferenceModelRewrite` has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RewriteRule {
    /// The names that it is for; none: every name, and requests that name no model.
    pub models: Vec<String>,
    /// What these become: at least one, and not all with weight 0.
    pub targets: Vec<RewriteTarget>,
    /// The request header, in lower case, whose value decides between the targets, so that equal
    /// values get equal targets; chance where it is `None` or the request lacks it.
    pub sticky_header: Option<String>,
}

/// One of the names that a model may get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RewriteTarget {
    /// The name at the servers.
    pub model: String,
    /// Its share of the requests, relative to the others'; 0 is none.
    pub weight: u32,
}

/// The rule for a request that names `model`: the first that has this name, else the first for
/// every name.
pub(crate) fn rule_for<'r>(
    rules: &'r [RewriteRule],
    model: Option<&str>,
) -> Option<&'r RewriteRule> {
    let named = |rule: &&RewriteRule| rule.models.iter().any(|it| Some(it.as_str()) == model);
    let every = |rule: &&RewriteRule| rule.models.is_empty();
    let mut all = rules.iter();
    all.clone().find(named).or_else(|| all.find(every))
}

impl RewriteRule {
    /// The name that a request gets, with these headers.
    pub(crate) fn target(&self, headers: &[(String, String)], draws: &mut Draws) -> Option<&str> {
        if let [only] = self.targets.as_slice() {
            return Some(&only.model);
        }
        let sticky = self.sticky_header.as_ref();
        let value = sticky.and_then(|name| headers.iter().find(|(it, _)| it == name));
        let draw = match value {
            Some((_, value)) => xxh3_64(value.as_bytes()),
            None => draws.next_draw(),
        };
        self.at(draw)
    }

    /// The target at this place of all draws. The first ones keep theirs when their weights grow,
    /// so that a canary which stands first only gains.
    fn at(&self, draw: u64) -> Option<&str> {
        let weights = self.targets.iter().map(|it| u64::from(it.weight));
        let all: u64 = weights.sum();
        let mut left = ((u128::from(draw) * u128::from(all)) >> 64) as u64;
        for target in &self.targets {
            let weight = u64::from(target.weight);
            if left < weight {
                return Some(&target.model);
            }
            left -= weight;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn rule(models: &[&str], targets: &[(&str, u32)], sticky: Option<&str>) -> RewriteRule {
        let target = |(model, weight): &(&str, u32)| RewriteTarget {
            model: model.to_string(),
            weight: *weight,
        };
        RewriteRule {
            models: models.iter().map(ToString::to_string).collect(),
            targets: targets.iter().map(target).collect(),
            sticky_header: sticky.map(Into::into),
        }
    }

    #[test]
    fn a_rule_with_the_name_goes_before_rules_for_every_name_and_those_in_their_order() {
        let rules = [
            rule(&[], &[("any", 1)], None),
            rule(&["a", "b"], &[("first", 1)], None),
            rule(&["b"], &[("second", 1)], None),
            rule(&[], &[("other", 1)], None),
        ];
        for (model, rules, expected) in [
            (Some("b"), &rules[..], Some("first")),
            (Some("a"), &rules[..], Some("first")),
            (Some("c"), &rules[..], Some("any")),
            (None, &rules[..], Some("any")),
            (Some("b"), &rules[2..3], Some("second")),
            (Some("c"), &rules[2..3], None),
            (None, &rules[2..3], None),
        ] {
            let found = rule_for(rules, model).and_then(|it| it.target(&[], &mut Draws::new(1)));
            assert_eq!(found, expected, "{model:?}");
        }
    }

    /// Within two percent of the requests each, over ten thousand.
    #[test]
    fn targets_get_their_share_of_the_requests() {
        let draw = |targets: &[(&str, u32)]| {
            let rule = rule(&[], targets, None);
            let mut draws = Draws::new(7);
            let mut counts = vec![0_u32; targets.len()];
            for _ in 0..10_000 {
                let found = rule.target(&[], &mut draws).unwrap();
                counts[targets.iter().position(|it| it.0 == found).unwrap()] += 1;
            }
            counts
        };
        for (targets, shares) in [
            (&[("a", 1), ("b", 1)][..], &[5_000, 5_000][..]),
            (&[("a", 90), ("b", 10)], &[9_000, 1_000]),
            (&[("a", 0), ("b", 1), ("c", 0)], &[0, 10_000, 0]),
            (&[("a", 1), ("b", 2), ("c", 7)], &[1_000, 2_000, 7_000]),
            (&[("a", u32::MAX), ("b", u32::MAX)], &[5_000, 5_000]),
            (&[("a", 3)], &[10_000]),
        ] {
            let counts = draw(targets);
            for (count, share) in counts.iter().zip(shares) {
                assert!(count.abs_diff(*share) <= 200, "{targets:?}: {counts:?}");
                assert!(*share > 0 || *count == 0, "{targets:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn who_is_sticky_stays_with_a_target_and_all_of_them_get_their_share() {
        let rule = |canary| {
            rule(
                &[],
                &[("canary", canary), ("main", 100 - canary)],
                Some("x-id"),
            )
        };
        let (tenth, half) = (rule(10), rule(50));
        let mut draws = Draws::new(3);
        let mut count = 0;
        for id in 0..10_000 {
            let headers = [("x-id".to_string(), format!("session-{id}"))];
            let target = tenth.target(&headers, &mut draws).unwrap();
            for _ in 0..3 {
                assert_eq!(tenth.target(&headers, &mut draws), Some(target), "{id}");
            }
            if target == "canary" {
                count += 1;
                assert_eq!(half.target(&headers, &mut draws), Some("canary"), "{id}");
            }
        }
        assert!((800..=1_200).contains(&count), "{count}");
        let other = [("x-other".to_string(), "1".to_string())];
        let by_chance = (0..100).filter(|_| half.target(&other, &mut draws) == Some("main"));
        assert!((20..80).contains(&by_chance.count()));
    }
}
