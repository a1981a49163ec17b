//! Random numbers for ties, from one seed per virtual machine.

/// A stream of draws. Equal seeds give equal streams.
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The stream of `seed`, which the host takes from its entropy once.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (`SplitMix64`).
    pub fn next_draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero. The bias is below one in 2^32.
    pub fn below(&mut self, bound: u32) -> u32 {
        let high = self.next_draw() >> 32;
        ((high * u64::from(bound)) >> 32) as u32
    }

    /// A number from 0 up to 1, without 1, in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.next_draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
