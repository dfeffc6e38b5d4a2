//! Damage, drawn from a seed, to what tests read.

pub(super) struct Damage(pub(super) u64);

impl Damage {
    /// A number (SplitMix64).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(super) fn of_byte(&mut self, byte: u8) -> u8 {
        match self.next() % 4 {
            0 => self.next() as u8,
            1 => byte ^ 1 << (self.next() % 8),
            2 => [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
            _ => byte.wrapping_add(1),
        }
    }

    pub(super) fn of_word(&mut self, word: u64) -> u64 {
        let mut bytes = word.to_ne_bytes();
        match self.next() % 3 {
            0 => {
                return [0, u64::MAX, u64::MAX / 2, u64::from(u32::MAX), word << 16][self.below(5)];
            }
            1 => bytes[4..].fill(self.next() as u8),
            _ => {
                let at = self.below(8);
                bytes[at] = self.of_byte(bytes[at]);
            }
        }
        u64::from_ne_bytes(bytes)
    }
}

/// How often something is damaged: `usual` times, or as often as the environment asks for.
pub(super) fn damage_times(usual: usize) -> usize {
    let asked = carefree_settings::text("CAREFREE_DAMAGE_TIMES");
    asked.and_then(|text| text.parse().ok()).unwrap_or(usual)
}
