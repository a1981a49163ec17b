//! Which LoRA adapters are in the accelerator's memory.

use std::collections::VecDeque;

/// The adapters in memory, the one used longest ago first.
#[derive(Debug, Default)]
pub(super) struct Adapters {
    resident: VecDeque<u32>,
}

impl Adapters {
    /// Makes use of `adapter` where `max` have room; true when it had to be loaded.
    pub(super) fn load(&mut self, adapter: u32, max: usize) -> bool {
        let place = self.resident.iter().position(|&it| it == adapter);
        if let Some(place) = place {
            self.resident.remove(place);
        }
        self.resident.push_back(adapter);
        if self.resident.len() > max {
            self.resident.pop_front();
        }
        place.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_adapter_used_longest_ago_makes_room() {
        let mut adapters = Adapters::default();
        let loaded: Vec<bool> = [1, 2, 1, 3, 1, 2]
            .map(|adapter| adapters.load(adapter, 2))
            .to_vec();
        assert_eq!(loaded, [true, true, false, true, false, true]);
    }
}
