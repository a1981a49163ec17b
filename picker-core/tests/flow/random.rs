//! Whatever happens, and in whatever order.

use crate::house::House;

#[test]
fn all_workers_together_do_as_one_list_would() {
    let mut ends = [0; 8];
    for seed in 0..SEEDS {
        let workers = [1, 2, 4][seed as usize % 3];
        println!("seed {seed}, {workers} workers");
        let mut house = House::new(workers, seed);
        (0..STEPS).for_each(|_| house.step());
        let of = &house.ends;
        let found = [
            of.came, of.sent, of.started, of.refused, of.expired, of.closed, of.left, of.lost,
        ];
        for (sum, found) in ends.iter_mut().zip(found) {
            *sum += found;
        }
    }
    println!("{ends:?}");
    assert!(ends.iter().all(|it| *it > 20), "all ends are met: {ends:?}");
}

const SEEDS: u64 = 60;

const STEPS: usize = 400;
