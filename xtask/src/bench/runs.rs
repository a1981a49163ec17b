//! Many simulations on as many threads as the machine has.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// Makes all runs; what they give is in the order of the cases.
pub(super) fn run_all<T: Sync, R: Send>(cases: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let begun = Instant::now();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads.min(cases.len()) {
            scope.spawn(|| {
                while let Some((number, case)) = take(&next, cases) {
                    let row = run(case);
                    let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
                    rows.push((number, row));
                    show_progress(rows.len(), cases.len(), begun);
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|row| row.0);
    rows.into_iter().map(|row| row.1).collect()
}

fn take<'a, T>(next: &AtomicUsize, cases: &'a [T]) -> Option<(usize, &'a T)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    Some((number, cases.get(number)?))
}

fn show_progress(done: usize, all: usize, begun: Instant) {
    let seconds = begun.elapsed().as_secs_f64();
    let ends = done == all;
    if stderr().is_terminal() {
        eprint!(
            "\r{done} of {all} runs, {seconds:.0} s{}",
            if ends { "\n" } else { "" }
        );
    } else if ends || done.is_multiple_of(PROGRESS_RUNS) {
        eprintln!("{done} of {all} runs, {seconds:.0} s");
    }
}

/// A line of progress after so many runs, where standard error is no terminal.
const PROGRESS_RUNS: usize = 50;
