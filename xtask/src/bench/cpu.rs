//! The CPU time and the memory of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time that the threads of a process have used, user and system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct CpuTime {
    /// All threads.
    pub(super) total: Duration,
    /// The main thread, on which Envoy's bootstrap extensions live.
    pub(super) main: Duration,
}

impl CpuTime {
    /// What process `pid` has used so far. Threads that have ended are not in it.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .with_context(|| format!("no process {pid}"))?;
        let mut time = Self::default();
        for thread in threads {
            let thread = thread?;
            // Nanoseconds on the CPU; `stat` beside it counts in hundredths of a second.
            let text = fs::read_to_string(thread.path().join("schedstat"))
                .context("the kernel keeps no schedstat")?;
            let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
            let used = Duration::from_nanos(nanoseconds.context("odd schedstat")?);
            time.total += used;
            if thread.file_name().to_str() == Some(&pid.to_string()) {
                time.main = used;
            }
        }
        Ok(time)
    }

    /// What was used since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            main: self.main.saturating_sub(earlier.main),
        }
    }
}

/// Resident memory of process `pid`.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("no process {pid}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.context("no VmRSS")? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_is_more_than_nothing() {
        assert!(resident_bytes(std::process::id()).unwrap() > 1_000_000);
    }

    #[test]
    fn work_shows_as_cpu_time_of_this_process() {
        let pid = std::process::id();
        let before = CpuTime::of(pid).unwrap();
        let mut sum = 0_u64;
        while CpuTime::of(pid).unwrap().since(before).total < Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
