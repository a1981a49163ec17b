//! The last requests a server has seen, for tests that ask what arrived.

use std::collections::VecDeque;

use serde_json::{Value, json};

/// The last requests, oldest first.
pub(super) struct Log {
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    len_max: usize,
}

/// One request as it arrived, and what became of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body_bytes: usize,
    pub(super) body_hash: u64,
    /// `None` until it was read, and where the body names none.
    pub(super) model: Option<String>,
    /// `None` while no answer has begun.
    pub(super) status: Option<u16>,
    pub(super) prompt_tokens: usize,
    pub(super) cached_tokens: usize,
}

impl Log {
    pub(super) fn new(len_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            first: 0,
            len_max,
        }
    }

    /// Adds a request and returns its number, by which it can be changed.
    pub(super) fn push(&mut self, entry: Entry) -> u64 {
        self.entries.push_back(entry);
        if self.entries.len() > self.len_max {
            self.entries.pop_front();
            self.first += 1;
        }
        self.first + self.entries.len() as u64 - 1
    }

    /// Changes the request `number`, unless it has been pushed out.
    pub(super) fn update(&mut self, number: u64, change: impl FnOnce(&mut Entry)) {
        let index = number.checked_sub(self.first).map(|index| index as usize);
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            change(entry);
        }
    }

    /// Forgets all requests; their numbers are not used again.
    pub(super) fn clear(&mut self) {
        self.first += self.entries.len() as u64;
        self.entries.clear();
    }

    pub(super) fn to_json(&self) -> Value {
        self.entries.iter().map(Entry::to_json).collect()
    }
}

impl Entry {
    fn to_json(&self) -> Value {
        json!({
            "method": self.method,
            "path": self.path,
            "headers": self.headers.iter().map(|it| json!([it.0, it.1])).collect::<Value>(),
            "body_bytes": self.body_bytes,
            "body_xxh3": format!("{:016x}", self.body_hash),
            "model": self.model,
            "status": self.status,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(log: &Log) -> Vec<String> {
        log.entries.iter().map(|it| it.path.clone()).collect()
    }

    #[test]
    fn the_oldest_request_is_pushed_out_and_cannot_be_changed_any_more() {
        let mut log = Log::new(2);
        let entry = |path: &str| Entry {
            path: path.to_owned(),
            ..Entry::default()
        };
        let numbers: Vec<_> = ["a", "b", "c"].map(|path| log.push(entry(path))).to_vec();
        assert_eq!(numbers, [0, 1, 2]);
        log.update(0, |it| it.path = "x".to_owned());
        log.update(1, |it| it.path = "y".to_owned());
        log.update(3, |it| it.path = "z".to_owned());
        assert_eq!(paths(&log), ["y", "c"]);
        log.clear();
        assert_eq!(log.push(entry("d")), 3);
        log.update(2, |it| it.path = "x".to_owned());
        assert_eq!(paths(&log), ["d"]);
    }
}
