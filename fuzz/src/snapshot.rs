//! Snapshots: what is decoded encodes to what decodes the same, is in order, and can be worked
//! with.

use std::io;

use picker_core::{LocalData, SharedData, Snapshot, View, page, stored};
use serde_json::Value;

use crate::workers::{self, NOW, POOL, snapshot, work};

/// The bytes of a snapshot.
pub fn check(input: &[u8]) {
    let shared = LocalData::default();
    shared.set(SNAPSHOT_KEY, input);
    shared.set(GENERATION_KEY, &[1]);
    let decoded = Snapshot::decode(input);
    assert_eq!(stored(&shared, POOL), decoded);
    let mut view = View::new(POOL, snapshot());
    assert_eq!(view.refresh(&shared), decoded.is_some());
    assert_eq!(view.unreadable, u64::from(decoded.is_none()));
    let Some(decoded) = decoded else {
        return assert_eq!(view.snapshot(), &snapshot());
    };
    assert_eq!(view.snapshot(), &decoded);
    let mut bytes = Vec::new();
    decoded.encode(&mut bytes);
    assert_eq!(Snapshot::decode(&bytes).as_ref(), Some(&decoded));
    for endpoint in &decoded.endpoints {
        assert_eq!(decoded.endpoint(endpoint.id), Some(endpoint));
        assert!(endpoint.id.0 < decoded.next_id, "{:?}", endpoint.id);
    }
    work(&shared);
    let state = page::state(&shared, NOW);
    assert!(serde_json::from_str::<Value>(&state).is_ok(), "{state}");
}

/// Snapshots as a collector writes them: of no endpoint, of unknown ones, of known ones.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let known = workers::snapshot();
    let addresses = known.endpoints.iter().map(|endpoint| endpoint.address);
    let snapshots = [
        Snapshot::default(),
        Snapshot::unknown(addresses),
        known.clone(),
    ];
    let encode = |snapshot: &Snapshot| {
        let mut bytes = Vec::new();
        snapshot.encode(&mut bytes);
        bytes
    };
    Ok(snapshots.iter().map(encode).collect())
}

const SNAPSHOT_KEY: &str = "picker/llm/snapshot";

const GENERATION_KEY: &str = "picker/llm/generation";
