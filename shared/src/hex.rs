//! Strict hexadecimal text: digits only. (`from_str_radix` also takes a sign.)

use std::fmt;

/// Exactly `N` bytes from exactly `2 N` hexadecimal digits.
pub fn parse<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut out = [0_u8; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = char::from(*digit).to_digit(16)?;
            *byte = (*byte << 4) | u8::try_from(value).ok()?;
        }
    }
    Some(out)
}

/// Shows bytes as lower-case digits.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
