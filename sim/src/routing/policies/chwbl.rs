//! Consistent hashing with bounded loads: the first pod on the ring that is not too far above the
//! mean.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Fleet, Job, Policy};

/// The ring is made anew for each list of pods.
#[derive(Default)]
pub(super) struct Chwbl {
    listed: Vec<usize>,
    /// Points on the ring and whose they are.
    ring: Vec<(u64, usize)>,
}

impl Policy for Chwbl {
    fn choose(&mut self, job: &Job, fleet: &Fleet<'_>) -> usize {
        if self.listed != fleet.candidates {
            self.listed = fleet.candidates.to_vec();
            self.ring = ring(fleet.candidates);
        }
        let load = |pod: usize| fleet.pods[pod].in_flight as f64;
        let total: f64 = fleet.candidates.iter().map(|&pod| load(pod)).sum();
        let bound = LOAD_FACTOR * (total + 1.0) / fleet.candidates.len() as f64;
        let key = xxh3_64_with_seed(b"group", job.planned.group);
        let start = self.ring.partition_point(|point| point.0 < key);
        let onwards = self.ring.iter().cycle().skip(start).take(self.ring.len());
        let mut pods = onwards.map(|point| point.1);
        let first = pods.clone().next().unwrap_or_default();
        pods.find(|&pod| load(pod) <= bound).unwrap_or(first)
    }
}

fn ring(pods: &[usize]) -> Vec<(u64, usize)> {
    let points = pods.iter().flat_map(|&pod| {
        (0..POINTS).map(move |point| (xxh3_64_with_seed(&point.to_le_bytes(), pod as u64), pod))
    });
    let mut ring: Vec<(u64, usize)> = points.collect();
    ring.sort_unstable();
    ring
}

/// How far above the mean a pod may be.
const LOAD_FACTOR: f64 = 1.25;

/// Points on the ring for each pod.
const POINTS: u64 = 256;
