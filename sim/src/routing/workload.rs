//! When which requests are sent.

use std::collections::HashMap;
use std::time::Duration;

use super::dice::{Dice, Weighted};
use super::job::{Planned, Segment};

/// Requests to come.
#[derive(Clone, Debug)]
pub enum Workload {
    /// A fixed number of clients, each with one request at a time.
    Closed(Closed),
    /// Users who talk: they read, think and ask again.
    Chat(Chat),
    /// Requests that come when they come.
    Open(Vec<(Duration, Planned)>),
}

impl Workload {
    /// What is sent without waiting for anything.
    pub fn initial(&mut self) -> Vec<(Duration, Planned)> {
        match self {
            Self::Closed(closed) => closed.initial(),
            Self::Chat(chat) => chat.initial(),
            Self::Open(requests) => std::mem::take(requests),
        }
    }

    /// What a connection sends after its last request is finished, and how long after.
    pub fn next(&mut self, connection: usize) -> Option<(Duration, Planned)> {
        match self {
            Self::Closed(closed) => closed.next(connection),
            Self::Chat(chat) => chat.next(connection),
            Self::Open(_) => None,
        }
    }
}

/// A fixed number of clients that share one list of requests.
#[derive(Clone, Debug)]
pub struct Closed {
    /// In the order of sending, the next one last.
    left: Vec<Planned>,
    concurrency: usize,
}

impl Closed {
    /// `requests` in order, never more than `concurrency` at once.
    pub fn new(mut requests: Vec<Planned>, concurrency: usize) -> Self {
        requests.reverse();
        Self {
            left: requests,
            concurrency,
        }
    }

    fn initial(&mut self) -> Vec<(Duration, Planned)> {
        let first = (0..self.concurrency).filter_map(|connection| {
            let (_, planned) = self.next(connection)?;
            Some((FIRST_SENDS_APART * connection as u32, planned))
        });
        first.collect()
    }

    fn next(&mut self, connection: usize) -> Option<(Duration, Planned)> {
        let planned = self.left.pop()?;
        let planned = Planned {
            connection,
            ..planned
        };
        Some((Duration::ZERO, planned))
    }
}

/// The same prefixes again and again, each time with another suffix.
#[derive(Clone, Copy, Debug)]
pub struct Prefixes {
    /// Requests.
    pub requests: usize,
    /// Prefixes they have among them.
    pub prefixes: usize,
    /// How unequal the prefixes are; `None` when all come equally often.
    pub zipf: Option<f64>,
    /// The share of requests that have the first prefix instead of their own.
    pub hot: f64,
}

impl Prefixes {
    /// Every prefix equally often.
    pub fn even(requests: usize, prefixes: usize) -> Self {
        Self {
            requests,
            prefixes,
            zipf: None,
            hot: 0.0,
        }
    }

    /// The requests in a random order.
    pub fn requests(self, dice: &mut Dice) -> Vec<Planned> {
        let mut prefixes: Vec<usize> = match self.zipf {
            None => (0..self.requests).map(|it| it % self.prefixes).collect(),
            Some(exponent) => {
                let weighted = Weighted::zipf(self.prefixes, exponent);
                (0..self.requests).map(|_| weighted.choose(dice)).collect()
            }
        };
        dice.shuffle(&mut prefixes);
        // Suffixes of one list are unlike those of any other.
        let list = dice.number();
        let request = |(number, prefix): (usize, usize)| {
            let prefix = if self.hot > 0.0 && dice.unit() < self.hot {
                0
            } else {
                prefix
            };
            let number = list.wrapping_add(number as u64);
            Planned {
                segments: vec![
                    Segment::new("prefix", prefix as u64, PREFIX_TOKENS),
                    Segment::new("suffix", number, SUFFIX_TOKENS),
                ],
                output: Segment::new("output", number, OUTPUT_TOKENS),
                group: prefix as u64,
                ..Planned::default()
            }
        };
        prefixes.into_iter().enumerate().map(request).collect()
    }
}

/// Prompts that share nothing, of the lengths that people write.
pub fn unshared(dice: &mut Dice, requests: usize) -> Vec<Planned> {
    let mut length = |mean, deviation, least: f64, most: f64| {
        dice.log_normal(mean, deviation).clamp(least, most) as usize
    };
    let request = |number| {
        let prompt = length(4.9, 1.1, 8.0, 4000.0);
        let output = length(5.0, 0.8, 4.0, 1000.0);
        Planned {
            segments: vec![Segment::new("prompt", number, prompt)],
            output: Segment::new("output", number, output),
            group: number,
            ..Planned::default()
        }
    };
    (0..requests as u64).map(request).collect()
}

/// Prompts that share nothing, for adapters of which the k-th is asked for a k-th as often.
pub fn adapters(dice: &mut Dice, requests: usize, adapters: usize) -> Vec<Planned> {
    let popularity = Weighted::zipf(adapters, 1.0);
    let request = |number| {
        let adapter = popularity.choose(dice) as u32;
        Planned {
            segments: vec![Segment::new("prompt", number, ADAPTER_PROMPT_TOKENS)],
            output: Segment::new("output", number, OUTPUT_TOKENS),
            group: u64::from(adapter),
            adapter: Some(adapter),
            ..Planned::default()
        }
    };
    (0..requests as u64).map(request).collect()
}

/// How users talk.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Users at the same time.
    pub users: usize,
    /// Requests before nobody begins another.
    pub requests: usize,
    /// Tokens a user writes, at least and at most.
    pub question: (usize, usize),
    /// Tokens of an answer, at least and at most.
    pub answer: (usize, usize),
    /// Milliseconds between an answer and the next question, at least and at most.
    pub think_ms: (f64, f64),
}

/// Users who talk, each in one conversation at a time.
#[derive(Clone, Debug)]
pub struct Chat {
    habits: Habits,
    dice: Dice,
    asked: usize,
    begun: u64,
    talks: HashMap<usize, Talk>,
}

/// One conversation.
#[derive(Clone, Debug)]
struct Talk {
    number: u64,
    turns_left: usize,
    segments: Vec<Segment>,
}

impl Chat {
    /// Users of these habits.
    pub fn new(habits: Habits, dice: Dice) -> Self {
        Self {
            habits,
            dice,
            asked: 0,
            begun: 0,
            talks: HashMap::new(),
        }
    }

    fn initial(&mut self) -> Vec<(Duration, Planned)> {
        let first = (0..self.habits.users).map(|user| {
            let after = self.dice.uniform(0.0, FIRST_QUESTIONS_WITHIN_MS);
            (millis(after), self.ask(user))
        });
        first.collect()
    }

    fn next(&mut self, user: usize) -> Option<(Duration, Planned)> {
        if self.asked >= self.habits.requests {
            self.talks.remove(&user);
            return None;
        }
        let (least, most) = self.habits.think_ms;
        let after = self.dice.uniform(least, most);
        Some((millis(after), self.ask(user)))
    }

    fn ask(&mut self, user: usize) -> Planned {
        let ended = |talk: &Talk| talk.turns_left == 0;
        if self.talks.get(&user).is_none_or(ended) {
            let talk = self.begin();
            self.talks.insert(user, talk);
        }
        self.asked += 1;
        let number = self.asked as u64;
        let ((least, most), (shortest, longest)) = (self.habits.question, self.habits.answer);
        let question = self.dice.whole(least, most);
        let question = Segment::new("question", number, question);
        let answer = self.dice.whole(shortest, longest);
        let output = Segment::new("answer", number, answer);
        let Some(talk) = self.talks.get_mut(&user) else {
            return Planned::default();
        };
        talk.turns_left -= 1;
        talk.segments.push(question);
        let planned = Planned {
            segments: talk.segments.clone(),
            output,
            group: talk.number,
            conversation: Some(talk.number),
            connection: user,
            ..Planned::default()
        };
        talk.segments.push(output);
        planned
    }

    fn begin(&mut self) -> Talk {
        self.begun += 1;
        let app = self.dice.below(APPS) as u64;
        Talk {
            number: self.begun,
            turns_left: self.dice.whole(TURNS.0, TURNS.1),
            segments: vec![Segment::new("system", app, SYSTEM_TOKENS)],
        }
    }
}

fn millis(millis: f64) -> Duration {
    Duration::from_nanos((millis * 1e6) as u64)
}

/// Between the first requests of the clients of a closed loop, as the published test sent them.
const FIRST_SENDS_APART: Duration = Duration::from_millis(3);

/// Tokens of a prefix in the published test.
const PREFIX_TOKENS: usize = 2048;

/// Tokens behind the prefix in the published test.
const SUFFIX_TOKENS: usize = 128;

/// Tokens of an answer in the published test.
const OUTPUT_TOKENS: usize = 128;

/// Tokens of a prompt for an adapter.
const ADAPTER_PROMPT_TOKENS: usize = 512;

/// All users have asked their first question after this long.
const FIRST_QUESTIONS_WITHIN_MS: f64 = 3000.0;

/// System prompts that conversations begin with.
const APPS: usize = 4;

/// Tokens of a system prompt.
const SYSTEM_TOKENS: usize = 1024;

/// Questions in a conversation, at least and at most.
const TURNS: (usize, usize) = (3, 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_comes_equally_often_and_in_another_order_for_each_seed() {
        let prefixes = |seed| {
            let requests = Prefixes::even(24, 3).requests(&mut Dice::new(seed, 0));
            let groups: Vec<u64> = requests.iter().map(|it| it.group).collect();
            groups
        };
        let mut sorted = prefixes(1);
        assert_eq!(prefixes(1), sorted);
        assert_ne!(prefixes(2), sorted);
        sorted.sort_unstable();
        assert_eq!(sorted, [[0; 8], [1; 8], [2; 8]].concat());
    }

    #[test]
    fn a_closed_loop_sends_everything_once_and_one_after_the_other() {
        let requests = Prefixes::even(5, 5).requests(&mut Dice::new(1, 0));
        let mut closed = Closed::new(requests.clone(), 2);
        let mut sent: Vec<Planned> = closed.initial().into_iter().map(|it| it.1).collect();
        while let Some((_, planned)) = closed.next(1) {
            sent.push(planned);
        }
        let groups = |requests: &[Planned]| -> Vec<u64> {
            requests.iter().map(|planned| planned.group).collect()
        };
        assert_eq!(groups(&sent), groups(&requests));
        assert_eq!((sent[0].connection, sent[1].connection), (0, 1));
    }

    #[test]
    fn a_question_repeats_all_that_was_said_before() {
        let habits = Habits {
            users: 1,
            requests: 100,
            question: (40, 400),
            answer: (60, 300),
            think_ms: (1000.0, 6000.0),
        };
        let mut chat = Chat::new(habits, Dice::new(1, 0));
        let mut last = chat.initial().remove(0).1;
        let (mut followed, mut begun) = (0, 0);
        while let Some((_, planned)) = chat.next(0) {
            if planned.group == last.group {
                let said = [last.segments.clone(), vec![last.output]].concat();
                assert_eq!(planned.segments[..said.len()], said);
                followed += 1;
            } else {
                assert_eq!(planned.segments.len(), 2);
                begun += 1;
            }
            last = planned;
        }
        assert_eq!(followed + begun, 99);
        assert!((10..30).contains(&begun), "{begun}");
    }
}
