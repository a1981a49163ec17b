//! The situations that routers are compared in, by name.

use std::str::FromStr;
use std::time::Duration;

use super::dice::Dice;
use super::job::Planned;
use super::workload::{Chat, Closed, Habits, Prefixes, Workload, adapters, unshared};
use crate::profile::Profile;

/// Everything that a run needs but the router.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The pods at the beginning.
    pub pods: Vec<Profile>,
    /// The requests.
    pub workload: Workload,
    /// Time between two readings of a pod's page.
    pub scrape_interval: Duration,
    /// Routers that share nothing.
    pub envoys: usize,
    /// Pods that come and go.
    pub changes: Vec<(Duration, Change)>,
    /// Requests that the routers have seen and the pods' caches have not.
    pub poison: Vec<Planned>,
    /// The first so many requests are all sent to the first pod.
    pub herded: usize,
}

/// A change of the list of pods.
#[derive(Clone, Debug)]
pub enum Change {
    /// A pod gets no new requests; it finishes those it has.
    Remove(usize),
    /// A pod with an empty cache is there from now on.
    Add(Box<Profile>),
}

/// A situation by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// The published test: 128 prefixes, eight requests each, two pods that hold 64 of them.
    Headline,
    /// The same when routers know the prefixes from before both pods were started again.
    Poisoned,
    /// The same, and the first burst goes to one pod.
    Herded,
    /// The published test times four.
    EightPods,
    /// Six of ten requests have one prefix.
    HotPrefix,
    /// Prefixes of very unequal use, on eight pods.
    Zipf,
    /// Conversations.
    Chat,
    /// Conversations that together are larger than the caches.
    ChatOverCapacity,
    /// Prompts that share nothing.
    NoOverlap,
    /// The published test when the second pod takes twice as long.
    SlowPod,
    /// A pod goes after 25 seconds, and a fresh one comes after 55.
    Churn,
    /// Pages are read once a second.
    Stale,
    /// Twelve adapters on pods with room for four.
    Lora,
    /// Four routers that share nothing.
    Unshared,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Headline,
        Self::Poisoned,
        Self::Herded,
        Self::EightPods,
        Self::HotPrefix,
        Self::Zipf,
        Self::Chat,
        Self::ChatOverCapacity,
        Self::NoOverlap,
        Self::SlowPod,
        Self::Churn,
        Self::Stale,
        Self::Lora,
        Self::Unshared,
    ];

    /// The name it is selected by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Headline => "headline",
            Self::Poisoned => "poisoned",
            Self::Herded => "herded",
            Self::EightPods => "eight-pods",
            Self::HotPrefix => "hot-prefix",
            Self::Zipf => "zipf",
            Self::Chat => "chat",
            Self::ChatOverCapacity => "chat-over-capacity",
            Self::NoOverlap => "no-overlap",
            Self::SlowPod => "slow-pod",
            Self::Churn => "churn",
            Self::Stale => "stale",
            Self::Lora => "lora",
            Self::Unshared => "unshared",
        }
    }

    /// The pods and requests of one seed; `concurrency` instead of the usual number of clients.
    pub fn setup(self, seed: u64, concurrency: Option<usize>) -> Setup {
        let mut dice = Dice::new(seed, WORKLOAD_STREAM);
        let clients = |usual| concurrency.unwrap_or(usual);
        let closed = |requests, usual, pods| Setup::closed(requests, clients(usual), pods);
        let headline = Prefixes::even(1024, 128);
        let eight_times = |requests, prefixes| Prefixes::even(requests, prefixes);
        match self {
            Self::Headline => closed(headline.requests(&mut dice), 32, 2),
            Self::Poisoned | Self::Herded => {
                let setup = closed(headline.requests(&mut dice), 32, 2);
                let poison = headline.requests(&mut dice);
                let herded = if self == Self::Herded { 32 } else { 0 };
                Setup {
                    poison,
                    herded,
                    ..setup
                }
            }
            Self::EightPods => closed(eight_times(4096, 512).requests(&mut dice), 128, 8),
            Self::HotPrefix => {
                let prefixes = Prefixes {
                    hot: 0.6,
                    ..Prefixes::even(3072, 512)
                };
                closed(prefixes.requests(&mut dice), 128, 8)
            }
            Self::Zipf => {
                let prefixes = Prefixes {
                    zipf: Some(1.2),
                    ..Prefixes::even(4096, 512)
                };
                closed(prefixes.requests(&mut dice), 128, 8)
            }
            Self::Chat => Setup::chat(CHAT, clients(CHAT.users), dice),
            Self::ChatOverCapacity => Setup::chat(CHAT_LONG, clients(CHAT_LONG.users), dice),
            Self::NoOverlap => closed(unshared(&mut dice, 1500), 64, 4),
            Self::SlowPod => {
                let mut setup = closed(headline.requests(&mut dice), 32, 2);
                setup.pods[1].step_time = setup.pods[1].step_time.slowed(2.0);
                setup
            }
            Self::Churn => {
                let setup = closed(Prefixes::even(4096, 256).requests(&mut dice), 64, 4);
                let fresh = Box::new(Profile::l4());
                Setup {
                    changes: vec![
                        (Duration::from_secs(25), Change::Remove(3)),
                        (Duration::from_secs(55), Change::Add(fresh)),
                    ],
                    ..setup
                }
            }
            Self::Stale => Setup {
                scrape_interval: Duration::from_secs(1),
                ..closed(headline.requests(&mut dice), 32, 2)
            },
            Self::Lora => {
                let mut setup = closed(adapters(&mut dice, 1600, 12), 64, 4);
                for pod in &mut setup.pods {
                    pod.engine.max_adapters = 4;
                    pod.adapter_load = Duration::from_millis(80);
                }
                setup
            }
            Self::Unshared => Setup {
                envoys: 4,
                ..closed(headline.requests(&mut dice), 32, 2)
            },
        }
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|it| it.name() == text);
        named.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|it| it.name()).collect();
            format!("the scenarios are {}", names.join(", "))
        })
    }
}

impl Setup {
    /// A workload on equal pods behind one router that reads pages every 50 ms.
    pub fn new(workload: Workload, pods: Vec<Profile>) -> Self {
        Self {
            pods,
            workload,
            scrape_interval: SCRAPE_INTERVAL,
            envoys: 1,
            changes: Vec::new(),
            poison: Vec::new(),
            herded: 0,
        }
    }

    fn closed(requests: Vec<Planned>, concurrency: usize, pods: usize) -> Self {
        let workload = Workload::Closed(Closed::new(requests, concurrency));
        Self::new(workload, vec![Profile::l4(); pods])
    }

    fn chat(habits: Habits, users: usize, dice: Dice) -> Self {
        let habits = Habits { users, ..habits };
        Self::new(
            Workload::Chat(Chat::new(habits, dice)),
            vec![Profile::l4(); 4],
        )
    }
}

/// Conversations that four caches hold.
const CHAT: Habits = Habits {
    users: 160,
    requests: 2500,
    question: (40, 400),
    answer: (60, 300),
    think_ms: (1000.0, 6000.0),
};

/// Conversations that four caches do not hold.
const CHAT_LONG: Habits = Habits {
    users: 260,
    requests: 3500,
    question: (100, 900),
    answer: (80, 400),
    think_ms: (500.0, 4000.0),
};

/// The picker's usual time between two readings of a page.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(50);

/// Which random numbers of a seed are the workload's.
const WORKLOAD_STREAM: u64 = 0;
