//! Sessions in shared data: whatever is there, a session goes to an endpoint of the pool and stays
//! there on all workers, and a token leads back.

use std::io;

use picker_core::{
    Affinity, AffinityBy, Draws, EndpointId, Filter, LocalData, Plan, Pool, PoolOptions, Profile,
    Request, SessionIds, SessionKey, SharedData, Source, Span, Version,
};

use crate::input::{Input, records};
use crate::workers::{NOW, POOL, snapshot, stored};

/// A key, then the bucket of all sessions.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let shared = Buckets::default();
    shared.set(KEY_KEY, input.record());
    shared.set(BUCKET_KEY, input.record());
    for key in [None, Some(SessionKey::new("a key of all Envoys"))] {
        let (mut one, mut other) = (worker(key, 1), worker(key, 2));
        for name in ["a", "b", "a session with a longer name"] {
            let header = (SESSION, name);
            let (home, _) = ask(&mut one, &shared, header);
            assert_eq!(ask(&mut other, &shared, header).0, home, "{name}");
            assert_eq!(ask(&mut one, &shared, header).0, home, "{name}");
        }
        let (home, token) = ask(&mut one, &shared, (TOKEN, "0123456789abcdef"));
        assert_eq!(ask(&mut other, &shared, (TOKEN, &token)).0, home);
    }
}

/// What workers leave.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let empty = records([[].as_slice()]);
    let shared = Buckets::default();
    let mut worker = worker(None, 1);
    for name in ["a", "b"] {
        ask(&mut worker, &shared, (SESSION, name));
    }
    let key = stored(&shared.0, KEY_KEY);
    let bucket = stored(&shared.0, BUCKET_KEY);
    let mut twice = bucket.clone();
    twice.extend_from_slice(bucket.get(1..).unwrap_or_default());
    Ok(vec![
        empty,
        records([key.as_slice(), &bucket]),
        records([key.as_slice(), &twice]),
        records([[].as_slice(), &bucket]),
    ])
}

/// The endpoint of a request, and the token that comes with its answer.
fn ask(worker: &mut Pool, shared: &Buckets, (name, value): (&str, &str)) -> (EndpointId, String) {
    let request = Request {
        headers: vec![(name.into(), value.into())],
        ..Request::bodiless()
    };
    let pick = worker.pick(shared, &request, &mut Draws::new(7), NOW);
    assert!(pick.is_ok(), "there are endpoints");
    let Ok(mut pick) = pick else {
        return (EndpointId(0), String::new());
    };
    assert!(worker.snapshot().endpoint(pick.endpoint).is_some());
    let mut headers = worker.answer_headers(&pick.ticket);
    assert_eq!(headers.len(), 1, "one plugin makes tokens");
    let (header, token) = headers.pop().unwrap_or_default();
    assert_eq!(header, TOKEN);
    worker.on_done(
        shared,
        &mut pick.ticket,
        picker_core::Answered::default(),
        NOW,
    );
    (pick.endpoint, token)
}

fn worker(session_key: Option<SessionKey>, owner: u64) -> Pool {
    let filter = |by| {
        Filter::Session(Affinity {
            by,
            of_prefill: false,
        })
    };
    let ids = SessionIds {
        sources: vec![Source::Header(SESSION.into())],
        lifetime: Span::from_millis(300_000),
        sweep: Span::from_millis(10_000),
    };
    let filters = vec![
        filter(AffinityBy::Id(ids)),
        filter(AffinityBy::Token(TOKEN.into())),
    ];
    let options = PoolOptions {
        name: POOL.into(),
        plan: Plan::of(Profile {
            filters,
            ..Profile::default()
        }),
        staleness_threshold: Span::from_millis(2000),
        session_key,
        ..PoolOptions::default()
    };
    Pool::new(options, snapshot(), owner)
}

/// Shared data in which all sessions share one bucket.
#[derive(Default)]
struct Buckets(LocalData);

impl SharedData for Buckets {
    fn get(&self, key: &str, value: &mut Vec<u8>) -> Version {
        self.0.get(one_bucket(key), value)
    }

    fn set_if(&self, key: &str, value: &[u8], version: Version) -> bool {
        self.0.set_if(one_bucket(key), value, version)
    }

    fn set(&self, key: &str, value: &[u8]) {
        self.0.set(one_bucket(key), value);
    }
}

fn one_bucket(key: &str) -> &str {
    if key.starts_with(BUCKET_KEY) {
        BUCKET_KEY
    } else {
        key
    }
}

const KEY_KEY: &str = "picker/llm/session-key";

const BUCKET_KEY: &str = "picker/llm/session/";

const SESSION: &str = "x-session-id";

const TOKEN: &str = "x-session-token";
