//! How an input says what to do besides being read, and how bodies are cut.

/// An input whose first bytes choose among variants; the rest is for the parser.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// The next choice; 0 when the input is used up.
    pub(crate) fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *byte
    }

    /// The next choice of many.
    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// One of `variants`.
    pub(crate) fn of<T: Copy>(&mut self, variants: &[T]) -> T {
        variants[usize::from(self.byte()) % variants.len()]
    }

    /// The next byte string, which stands behind its length; shorter when the input ends.
    pub(crate) fn record(&mut self) -> &'a [u8] {
        let length = usize::from(self.u16()).min(self.0.len());
        let (record, rest) = self.0.split_at(length);
        self.0 = rest;
        record
    }
}

/// The input that [`Input::record`] takes apart.
pub(crate) fn records<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut input = Vec::new();
    for record in records {
        let length = u16::try_from(record.len()).unwrap_or(u16::MAX);
        input.extend(length.to_le_bytes());
        input.extend(&record[..usize::from(length)]);
    }
    input
}

/// `bytes` cut as `seed` says: into single bytes for 0, else into pieces of random length, empty
/// ones among them.
pub(crate) fn chunks(bytes: &[u8], seed: u16) -> Vec<&[u8]> {
    if seed == 0 {
        return bytes.chunks(1).collect();
    }
    let mut state = u64::from(seed);
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % end) as usize
    };
    let (mut rest, mut chunks) = (bytes, Vec::new());
    while !rest.is_empty() {
        let longest = if below(2) == 0 { 9 } else { 700 };
        let (chunk, later) = rest.split_at(below(longest).min(rest.len()));
        chunks.push(chunk);
        rest = later;
    }
    chunks
}
