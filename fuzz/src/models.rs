//! Lists of models: what is read stands in the list, each name once and in order, nothing that is
//! good is left out, and it crosses a snapshot whole.

use std::collections::BTreeSet;
use std::io;

use picker_core::{ServedModel, Snapshot, read_models};
use serde_json::{Value, json};

use crate::fixtures::fixture;

/// The body of an answer to `GET /v1/models`.
pub fn check(input: &[u8]) {
    let document: Option<Value> = serde_json::from_slice(input).ok();
    let list = document.as_ref().and_then(|it| it["data"].as_array());
    let read = read_models(input);
    assert_eq!(read.is_some(), list.is_some());
    let Some((read, list)) = read.zip(list) else {
        return;
    };
    assert!(read.is_sorted_by(|one, next| one.id < next.id), "{read:?}");
    let listed = list.iter().filter_map(|entry| {
        let id = name(&entry["id"])?;
        Some((id, name(&entry["parent"])))
    });
    let listed: Vec<(&str, Option<&str>)> = listed.take(MODELS_MAX).collect();
    for model in &read {
        let pair = (model.id.as_str(), model.parent.as_deref());
        assert!(listed.contains(&pair), "{model:?}");
    }
    let names: BTreeSet<&str> = listed.iter().map(|(id, _)| *id).collect();
    assert!(read.iter().map(|it| it.id.as_str()).eq(names));
    crosses_a_snapshot(read);
}

/// The list of each server, and lists with names that are odd, there twice, or too many.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let many: Vec<Value> = (0..300).map(|it| json!({"id": format!("m{it}")})).collect();
    let long = "m".repeat(NAME_BYTES_MAX);
    let odd = json!({"data": [
        {"id": "b", "parent": "a"}, {"id": "a", "parent": null}, {"id": "b", "parent": 3}, {"id": ""},
        {"id": 1}, {}, null, {"id": long, "parent": format!("{long}m")}, {"id": format!("{long}m")},
    ]});
    Ok(vec![
        fixture("responses/models.json")?,
        fixture("responses/models-sglang.json")?,
        odd.to_string().into_bytes(),
        json!({"data": many}).to_string().into_bytes(),
        b"{\"data\":{}}".to_vec(),
    ])
}

/// A name that is kept.
fn name(value: &Value) -> Option<&str> {
    let name = value.as_str()?;
    (1..=NAME_BYTES_MAX).contains(&name.len()).then_some(name)
}

fn crosses_a_snapshot(models: Vec<ServedModel>) {
    let mut snapshot = Snapshot::unknown("10.0.0.1:8000".parse());
    for endpoint in &mut snapshot.endpoints {
        endpoint.models = Some(models.clone());
    }
    let mut bytes = Vec::new();
    snapshot.encode(&mut bytes);
    assert_eq!(Snapshot::decode(&bytes), Some(snapshot));
}

const MODELS_MAX: usize = 256;

const NAME_BYTES_MAX: usize = 256;
