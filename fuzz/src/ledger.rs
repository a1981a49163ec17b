//! Ledgers: what is decoded encodes to what decodes the same, both ways to write a row give the
//! same, and no load is left out of a sum.

use std::collections::BTreeMap;
use std::io;

use picker_core::{EndpointId, Ledger, Load, LocalData, Row, SharedData, ledger_key};

use crate::workers::{NOW, POOL, stored, work, worked};

/// The bytes of a ledger.
pub fn check(input: &[u8]) {
    let ledger = Ledger::decode(input);
    let mut bytes = Vec::new();
    ledger.encode(&mut bytes);
    assert_eq!(Ledger::decode(&bytes), ledger);
    let live = ledger.rows.iter().filter(|row| row.is_live(NOW));
    let mut sums: BTreeMap<EndpointId, Load> = BTreeMap::new();
    for (endpoint, load) in live.flat_map(|row| &row.loads) {
        sums.entry(*endpoint).or_default().add(*load);
    }
    for (endpoint, sum) in sums {
        assert_eq!(ledger.total(endpoint, NOW), sum, "{endpoint:?}");
    }
    for owner in ledger.rows.iter().map(|row| row.owner).chain([7]).take(3) {
        written_both_ways(&ledger, &bytes, owner);
    }
    let shared = LocalData::default();
    shared.set(&ledger_key(POOL), input);
    work(&shared);
}

/// Ledgers as workers leave them.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let key = ledger_key(POOL);
    let empty = LocalData::default();
    let mut bytes = Vec::new();
    Ledger::default().encode(&mut bytes);
    work(&empty);
    Ok(vec![bytes, stored(&empty, &key), stored(&worked(), &key)])
}

fn written_both_ways(ledger: &Ledger, bytes: &[u8], owner: u64) {
    let of_owner = |ledger: &Ledger| ledger.rows.iter().filter(|row| row.owner == owner).count();
    // Nobody writes two; both stay until one is void.
    if of_owner(ledger) > 1 {
        return;
    }
    let known = ledger.rows.iter().find(|row| row.owner == owner);
    let mut row = Row {
        owner,
        ..Row::default()
    };
    row.loads = known.map_or_else(Vec::new, |known| known.loads.clone());
    for (_, load) in &mut row.loads {
        load.add(Load {
            requests: 1,
            ..Load::default()
        });
    }
    let (mut overwritten, mut again) = (bytes.to_vec(), row.clone());
    let mut put = ledger.clone();
    put.put(&mut row, NOW);
    if Ledger::overwrite(&mut overwritten, &mut again, NOW) {
        // The order of rows that share a slot has no meaning.
        let in_order = |mut ledger: Ledger| {
            ledger.rows.sort_by_key(|row| (row.slot, row.owner));
            ledger
        };
        assert_eq!(
            in_order(Ledger::decode(&overwritten)),
            in_order(put.clone())
        );
        assert_eq!(again, row);
    } else {
        assert_eq!(overwritten, bytes, "nothing is changed");
    }
    assert_eq!(of_owner(&put), 1);
    assert!(put.rows.iter().all(|row| row.is_live(NOW)));
    assert!(put.total(EndpointId(0), NOW).requests >= row.load_mut(EndpointId(0)).requests);
}
