//! How well the picker's predictor would have foretold the latencies of a run.
//!
//! Every request is predicted when it is sent, from what had ended by then, and counts in the second
//! half of the run.

use picker_core::{EndpointId, Features, Predictor};

use super::summary::{Record, percentile};

/// The relative errors of one latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Requests of which the predictor said something.
    pub requests: usize,
    /// The median of the latency itself, in milliseconds.
    pub median_ms: f64,
    /// The median of the predictor's errors, and what nine of ten stay below, in percent.
    pub predictor: (f64, f64),
    /// The same of one that always says the mean of late.
    pub mean: (f64, f64),
}

/// Predicts all of `records` in the order in which they were sent, and gives the errors of the time
/// to the first token and of the time between later ones.
///
/// Every worker learns from its own share of the answers and hears of the others' once a second.
pub fn forecast(records: &[Record], workers: usize) -> [Errors; 2] {
    let mut moments: Vec<(u128, Moment<'_>)> = Vec::new();
    for record in records {
        moments.extend([
            (record.arrival.as_nanos(), Moment::Sent(record)),
            (record.first_token.as_nanos(), Moment::Begun(record)),
            (record.done.as_nanos(), Moment::Done(record)),
        ]);
    }
    moments.sort_by_key(|moment| (moment.0, matches!(moment.1, Moment::Sent(_))));
    let mut fleet = Fleet {
        workers: vec![Predictor::default(); workers.max(1)],
        ..Fleet::default()
    };
    for (at, moment) in moments {
        fleet.follow(at, moment);
    }
    [Tried::errors(fleet.ttft), Tried::errors(fleet.tpot)]
}

/// What happens to a request.
enum Moment<'a> {
    Sent(&'a Record),
    Begun(&'a Record),
    Done(&'a Record),
}

/// The workers of an Envoy.
#[derive(Default)]
struct Fleet {
    workers: Vec<Predictor>,
    heard_at: u128,
    turn: usize,
    /// The means of late.
    means: [f64; 2],
    ttft: Vec<Tried>,
    tpot: Vec<Tried>,
}

/// One prediction: the time it was made for, what the predictor said and what the mean was.
struct Tried {
    ms: f64,
    predictor: Option<f64>,
    mean: f64,
}

impl Fleet {
    fn follow(&mut self, at: u128, moment: Moment<'_>) {
        if at >= self.heard_at + HEARD_EVERY_NANOS {
            self.heard_at = at;
            self.hear();
        }
        self.turn = (self.turn + 1) % self.workers.len();
        let Some(worker) = self.workers.get_mut(self.turn) else {
            return;
        };
        let [ttft_mean, tpot_mean] = &mut self.means;
        match moment {
            Moment::Sent(record) => {
                let (pod, known) = features(record);
                self.ttft.push(Tried {
                    ms: ttft_ms(record),
                    predictor: worker.ttft(pod, known),
                    mean: *ttft_mean,
                });
                self.tpot.extend(tpot_ms(record).map(|ms| Tried {
                    ms,
                    predictor: worker.tpot(pod, known),
                    mean: *tpot_mean,
                }));
            }
            Moment::Begun(record) => {
                let (pod, known) = features(record);
                worker.learn_ttft(pod, known, ttft_ms(record));
                *ttft_mean = later_mean(*ttft_mean, ttft_ms(record));
            }
            Moment::Done(record) => {
                let (pod, known) = features(record);
                if let Some(ms) = tpot_ms(record) {
                    worker.learn_tpot(pod, known, ms);
                    *tpot_mean = later_mean(*tpot_mean, ms);
                }
            }
        }
    }

    /// Every worker hears of all others.
    fn hear(&mut self) {
        let told = self.workers.iter().map(|worker| {
            let mut bytes = Vec::new();
            worker.encode(&mut bytes);
            bytes
        });
        let told: Vec<Vec<u8>> = told.collect();
        for (place, worker) in self.workers.iter_mut().enumerate() {
            let others = told.iter().enumerate().filter(|other| other.0 != place);
            worker.hear(others.map(|other| other.1.as_slice()));
        }
    }
}

impl Tried {
    /// The errors of the second half.
    fn errors(mut tried: Vec<Self>) -> Errors {
        tried.drain(..tried.len() / 2);
        tried.retain(|it| it.predictor.is_some());
        let mut times: Vec<f64> = tried.iter().map(|it| it.ms).collect();
        times.sort_unstable_by(f64::total_cmp);
        let errors = |said: fn(&Self) -> f64| {
            let errors = tried
                .iter()
                .map(|it| 100.0 * (said(it) - it.ms).abs() / it.ms);
            spread(errors.collect())
        };
        Errors {
            requests: tried.len(),
            median_ms: percentile(&times, 50.0),
            predictor: errors(|it| it.predictor.unwrap_or_default()),
            mean: errors(|it| it.mean),
        }
    }
}

fn spread(mut errors: Vec<f64>) -> (f64, f64) {
    errors.sort_unstable_by(f64::total_cmp);
    (percentile(&errors, 50.0), percentile(&errors, 90.0))
}

fn features(record: &Record) -> (EndpointId, &Features) {
    (EndpointId(record.pod as u32), &record.known)
}

fn ttft_ms(record: &Record) -> f64 {
    (record.first_token - record.arrival).as_secs_f64() * 1e3
}

/// `None` for an answer of one token.
fn tpot_ms(record: &Record) -> Option<f64> {
    let later = record.output_tokens.checked_sub(1).filter(|it| *it > 0)?;
    let took = record.done - record.first_token;
    Some(took.as_secs_f64() * 1e3 / later as f64)
}

/// The mean after another time; the first one is the mean itself.
fn later_mean(mean: f64, ms: f64) -> f64 {
    if mean == 0.0 {
        ms
    } else {
        mean + MEAN_GAIN * (ms - mean)
    }
}

/// Workers hear of one another so often.
const HEARD_EVERY_NANOS: u128 = 1_000_000_000;

/// The mean remembers as many answers as the predictor.
const MEAN_GAIN: f64 = 0.003;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Requests one after the other, each of which takes 20 ms and 0.05 more for each of its tokens.
    fn records(requests: u64) -> Vec<Record> {
        let record = |number: u64| {
            let tokens = 100 + number * 37 % 1000;
            let arrival = Duration::from_secs(number);
            let first_token = arrival + Duration::from_micros(20_000 + 50 * tokens);
            Record {
                arrival,
                first_token,
                done: first_token + Duration::from_millis(100),
                prompt_tokens: tokens as usize,
                output_tokens: 11,
                cached_tokens: 0,
                pod: 0,
                known: Features {
                    input_tokens: tokens as f64,
                    ..Features::default()
                },
            }
        };
        (0..requests).map(record).collect()
    }

    #[test]
    fn what_can_be_learnt_is_foretold_by_every_worker() {
        for workers in [1, 3] {
            let [ttft, tpot] = forecast(&records(400), workers);
            assert_eq!((ttft.requests, tpot.requests), (200, 200));
            assert!(ttft.predictor.1 < 1.0, "{workers}: {ttft:?}");
            assert!(ttft.mean.0 > 10.0, "{workers}: {ttft:?}");
            assert_eq!(tpot.median_ms, 10.0);
            assert!(tpot.predictor.1 < 0.5 && tpot.mean.1 < 0.1, "{tpot:?}");
        }
    }

    #[test]
    fn workers_learn_from_one_another() {
        // None of three has seen enough by itself, and all together have after half.
        let [ttft, _] = forecast(&records(80), 3);
        assert!(ttft.requests > 30, "{ttft:?}");
    }

    #[test]
    fn nothing_is_learnt_before_it_is_known() {
        // All are sent before the first answer begins.
        let mut records = records(100);
        for record in &mut records {
            record.arrival = Duration::ZERO;
        }
        assert_eq!(forecast(&records, 1)[0], Errors::default());
    }
}
