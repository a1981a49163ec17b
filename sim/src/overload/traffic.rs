//! Requests of tenants and priorities, that come when they come.

use std::time::Duration;

use crate::routing::dice::{Dice, Weighted};
use crate::routing::job::{Planned, Segment};

/// Who asks for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// Three priorities, of which the two that are not sheddable are a little more than all.
    Bands,
    /// One priority, so that the tenants compete for everything.
    Tenants,
}

/// A request before it is sent.
#[derive(Clone, PartialEq, Debug)]
pub struct Asked {
    /// The prompt and the answer.
    pub planned: Planned,
    /// How much it matters.
    pub priority: i32,
    /// Who asks, from 0.
    pub tenant: usize,
}

impl Traffic {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Bands, Self::Tenants];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bands => "bands",
            Self::Tenants => "tenants",
        }
    }

    /// The priorities, the highest first, each with its share of the requests.
    pub fn bands(self) -> &'static [(i32, f64)] {
        match self {
            Self::Bands => &[(10, 0.2), (0, 0.5), (-10, 0.3)],
            Self::Tenants => &[(0, 1.0)],
        }
    }

    /// The requests of a seed without an end.
    pub fn requests(self, seed: u64) -> Requests {
        Requests {
            dice: Dice::new(seed, TRAFFIC_STREAM),
            bands: self.bands(),
            band: Weighted::of(self.bands().iter().map(|it| it.1)),
            tenant: Weighted::zipf(TENANTS, TENANTS_EXPONENT),
            number: 0,
        }
    }

    /// The requests that come at random times, `rate` a second on average, before `until`.
    pub fn poisson(self, seed: u64, rate: f64, until: Duration) -> Vec<(Duration, Asked)> {
        let mut dice = Dice::new(seed, TIMES_STREAM);
        let mut at = 0.0;
        let requests = self.requests(seed).map(|asked| {
            at += dice.exponential(rate);
            (Duration::from_secs_f64(at), asked)
        });
        requests.take_while(|(at, _)| *at < until).collect()
    }
}

/// Requests without an end.
pub struct Requests {
    dice: Dice,
    bands: &'static [(i32, f64)],
    band: Weighted,
    tenant: Weighted,
    number: u64,
}

impl Iterator for Requests {
    type Item = Asked;

    fn next(&mut self) -> Option<Asked> {
        let dice = &mut self.dice;
        let (priority, _) = *self.bands.get(self.band.choose(dice))?;
        let tenant = self.tenant.choose(dice);
        let mut length = |(median, deviation): (f64, f64), most: f64| {
            dice.log_normal(median.ln(), deviation).clamp(8.0, most) as usize
        };
        let question = length(QUESTION, QUESTION_TOKENS_MAX);
        let answer = length(ANSWER, ANSWER_TOKENS_MAX);
        self.number += 1;
        Some(Asked {
            planned: Planned {
                segments: vec![
                    Segment::new("tenant", tenant as u64, TENANT_TOKENS),
                    Segment::new("question", self.number, question),
                ],
                output: Segment::new("answer", self.number, answer),
                group: tenant as u64,
                ..Planned::default()
            },
            priority,
            tenant,
        })
    }
}

/// Tenants there are.
pub const TENANTS: usize = 10;

/// How unequal they are: with this the first asks as much as the last five together.
const TENANTS_EXPONENT: f64 = 0.8;

/// Tokens that all prompts of a tenant begin with: instructions of a page.
const TENANT_TOKENS: usize = 512;

/// The median of the tokens after those, and the deviation of their logarithm, as people ask.
const QUESTION: (f64, f64) = (200.0, 0.8);

/// The longest question, a document.
const QUESTION_TOKENS_MAX: f64 = 3000.0;

/// The median of the tokens of an answer, and the deviation of their logarithm.
const ANSWER: (f64, f64) = (120.0, 0.7);

/// The longest answer.
const ANSWER_TOKENS_MAX: f64 = 800.0;

/// Which random numbers of a seed say what is asked.
const TRAFFIC_STREAM: u64 = 3;

/// Which random numbers of a seed say when.
const TIMES_STREAM: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of the requests of a minute, 1,000 a second, that `is` holds of.
    fn share(of: Traffic, is: impl Fn(&Asked) -> bool) -> f64 {
        let all = of.poisson(1, 1000.0, Duration::from_secs(60));
        all.iter().filter(|(_, it)| is(it)).count() as f64 / 60_000.0
    }

    #[track_caller]
    fn check(share: f64, expected: f64) {
        assert!((share / expected - 1.0).abs() < 0.04, "{share}");
    }

    #[test]
    fn requests_come_as_often_as_they_should_and_in_their_shares() {
        check(share(Traffic::Bands, |_| true), 1.0);
        check(share(Traffic::Bands, |it| it.priority == 10), 0.2);
        check(share(Traffic::Bands, |it| it.priority == 0), 0.5);
        check(share(Traffic::Bands, |it| it.priority == -10), 0.3);
        check(share(Traffic::Tenants, |it| it.priority == 0), 1.0);
    }

    #[test]
    fn one_tenant_asks_as_much_as_the_five_smallest_together() {
        let first = share(Traffic::Bands, |it| it.tenant == 0);
        let last = share(Traffic::Bands, |it| it.tenant >= 5);
        assert!(first > 0.99 * last, "{first} and {last}");
        check(first, 0.281);
    }

    #[test]
    fn prompts_of_a_tenant_begin_alike_and_are_of_the_lengths_they_should_be() {
        let requests: Vec<Asked> = Traffic::Bands.requests(1).take(10_001).collect();
        let mut questions: Vec<usize> = Vec::new();
        for asked in &requests {
            let [tenant, question] = asked.planned.segments.as_slice() else {
                panic!("{asked:?}");
            };
            let number = asked.tenant as u64;
            assert_eq!(*tenant, Segment::new("tenant", number, TENANT_TOKENS));
            questions.push(question.tokens);
        }
        questions.sort_unstable();
        check(questions[5000] as f64, 200.0);
    }
}
