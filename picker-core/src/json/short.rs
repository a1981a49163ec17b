//! Short texts that are kept without an allocation.

/// The beginning of a text, enough to tell the texts that matter: those of at most `N` bytes.
pub(crate) struct Short<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> Short<N> {
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, text: &[u8]) {
        let room = self.bytes.iter_mut().skip(self.filled);
        for (to, from) in room.zip(text) {
            *to = *from;
        }
        self.filled = self.filled.saturating_add(text.len());
    }

    /// The text; empty when it is longer than any that matters.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }
}

impl<const N: usize> Default for Short<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            filled: 0,
        }
    }
}
