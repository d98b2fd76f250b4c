//! Polynomials over GF(2) as bit strings: bit i is the coefficient of x^i.

/// The degree of every polynomial we make, and the max_size we accept.
pub const DEGREE: u32 = 53;

/// An irreducible polynomial: what a repository's chunker hashes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polynomial(u64);

impl Polynomial {
    /// Accepts only what a chunker can use: irreducible, and of a degree the tables can hold.
    pub fn new(bits: u64) -> Option<Self> {
        let usable = (9..=DEGREE).contains(&degree(bits)) && irreducible(bits);
        usable.then_some(Self(bits))
    }

    /// A new random one.
    pub fn random() -> Self {
        loop {
            let bits = (rand::random::<u64>() & ((1 << 54) - 1)) | (1 << 53) | 1;
            if irreducible(bits) {
                return Self(bits);
            }
        }
    }

    /// Its coefficients.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Its degree.
    pub fn degree(self) -> u32 {
        degree(self.0)
    }

    /// The rest after division by it.
    pub fn reduce(self, value: u128) -> u64 {
        reduce(value, self.0)
    }
}

/// Zero has no degree; answering 0 is good enough here.
fn degree(bits: u64) -> u32 {
    (bits | 1).ilog2()
}

#[expect(clippy::cast_possible_truncation, reason = "after the loop the value is smaller than the divisor")]
fn reduce(mut value: u128, divisor: u64) -> u64 {
    let top = degree(divisor);
    while value >> top != 0 {
        let shift = value.ilog2() - top;
        value ^= u128::from(divisor) << shift;
    }
    value as u64
}

fn square(value: u64) -> u128 {
    (0..64).filter(|bit| value >> bit & 1 == 1).fold(0, |sum, bit| sum | 1 << (2 * bit))
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, reduce(u128::from(a), b));
    }
    a
}

/// Ben-Or's test.
fn irreducible(bits: u64) -> bool {
    let mut power = 2;
    (1..=degree(bits) / 2).all(|_| {
        power = reduce(square(power), bits);
        greatest_common_divisor(bits, power ^ 2) == 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_irreducible_polynomials_of_a_usable_degree_are_taken() {
        for good in [0x3d_a335_8b4d_c173, 0x25_b468_838d_cb75] {
            assert!(Polynomial::new(good).is_some(), "{good:x}");
        }
        for bad in [0x3d_a335_8b4d_c171, 0x20_0000_0000_0001, 0, 1, 2, 3, 7, u64::MAX] {
            assert!(Polynomial::new(bad).is_none(), "{bad:x}");
        }
        let made = Polynomial::random();
        assert_eq!((made.degree(), Polynomial::new(made.bits())), (DEGREE, Some(made)));
    }
}
