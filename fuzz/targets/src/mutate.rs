//! Mutates inputs slightly, for the smoke test, which has no coverage feedback.

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn next_below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Boundary values of numbers.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff_ffff, 1 << 60, 1 << 63, u64::MAX];

/// Returns `input` with a few changes, which depend only on `seed`: changed bytes, boundary values,
/// digits, pieces repeated, moved or removed, or a truncation.
pub fn mutate_input(input: &[u8], seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes = input.to_vec();
    for _ in 0..1 + random.next_below(4) {
        let at = random.next_below(bytes.len());
        match random.next_below(8) {
            0 => flip_bit(&mut bytes, at, &mut random),
            1 => set_bytes(&mut bytes, at, &[random.next() as u8]),
            2 => {
                let edge = EDGES[random.next_below(EDGES.len())].to_le_bytes();
                set_bytes(&mut bytes, at, &edge[..1 << random.next_below(4)]);
            }
            3 => set_number(&mut bytes, at, &mut random),
            4 => bytes.truncate(at),
            5 => {
                let end = bytes.len().min(at + 1 + random.next_below(16));
                bytes.drain(at.min(end)..end);
            }
            6 => {
                let end = bytes.len().min(at + 1 + random.next_below(64));
                let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                let to = random.next_below(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                let from = random.next_below(bytes.len());
                let end = bytes.len().min(from + 1 + random.next_below(32));
                let piece = bytes.get(from..end).unwrap_or_default().to_vec();
                set_bytes(&mut bytes, at, &piece);
            }
        }
    }
    bytes
}

fn flip_bit(bytes: &mut [u8], at: usize, random: &mut Random) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << random.next_below(8);
    }
}

fn set_bytes(bytes: &mut [u8], at: usize, piece: &[u8]) {
    for (byte, &new) in bytes.iter_mut().skip(at).zip(piece) {
        *byte = new;
    }
}

/// Replaces the next decimal number by another one.
fn set_number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(digit) = bytes.iter().skip(at).position(u8::is_ascii_digit) else { return };
    let from = at + digit;
    let digits = bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let number = EDGES[random.next_below(EDGES.len())].to_string();
    bytes.splice(from..from + digits, number.into_bytes());
}

#[cfg(test)]
mod tests {
    use super::mutate_input;

    #[test]
    fn the_same_seed_makes_the_same_change() {
        let input = b"size = 12; align = 8".repeat(4);
        let all: Vec<_> = (0..200).map(|seed| mutate_input(&input, seed)).collect();
        assert_eq!(all[7], mutate_input(&input, 7));
        assert!(all.iter().filter(|changed| **changed != input).count() > 150);
        assert_eq!(mutate_input(b"", 3).len(), 0);
    }
}
