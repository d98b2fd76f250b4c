//! AES in counter mode, by aws-lc: the keystream that encrypts and decrypts.

use std::sync::Arc;

use aws_lc_rs::cipher::{AES_128, AES_256, Algorithm, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;

use super::crypto::IV_SIZE;

const BLOCK: usize = 16;

/// A key that makes keystreams. The library overwrites it when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Cipher(Arc<EncryptingKey>);

impl Cipher {
    pub(super) fn aes_256(secret: &[u8; 32]) -> Self {
        Self::new(&AES_256, secret)
    }

    pub(super) fn aes_128(secret: &[u8; 16]) -> Self {
        Self::new(&AES_128, secret)
    }

    /// The secret has the length of the algorithm's keys.
    fn new(algorithm: &'static Algorithm, secret: &[u8]) -> Self {
        let key = UnboundCipherKey::new(algorithm, secret).and_then(EncryptingKey::ctr);
        Self(Arc::new(key.expect("every key of this length is valid")))
    }

    /// The stream that starts with this counter.
    pub(super) fn keystream(&self, iv: &[u8; IV_SIZE]) -> Keystream<'_> {
        Keystream { cipher: self, counter: u128::from_be_bytes(*iv) }
    }

    /// Encrypts a single block: the first block of its keystream.
    pub(super) fn block(&self, block: &[u8; BLOCK]) -> [u8; BLOCK] {
        let mut encrypted = [0; BLOCK];
        self.keystream(block).apply(&mut encrypted);
        encrypted
    }
}

/// Where in a stream one is.
pub(super) struct Keystream<'c> {
    cipher: &'c Cipher,
    counter: u128,
}

impl Keystream<'_> {
    /// Encrypts or decrypts. All but the last part of a text must be whole blocks.
    pub(super) fn apply(&mut self, text: &mut [u8]) {
        let iv = EncryptionContext::Iv128(FixedLength::from(self.counter.to_be_bytes()));
        let encrypted = self.cipher.0.less_safe_encrypt(text, iv);
        encrypted.expect("counter mode takes a text of any length");
        self.counter = self.counter.wrapping_add(text.len().div_ceil(BLOCK) as u128);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::crypto::tests::{hex, unhex};

    #[test]
    fn the_example_of_the_standard_has_its_ciphertext() {
        // NIST SP 800-38A, F.5.5 CTR-AES256.Encrypt.
        let secret = unhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
        let plain = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                     30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
        let encrypted = "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5\
                         2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6";
        let cipher = Cipher::aes_256(&secret.try_into().expect("32 bytes"));
        let mut text = unhex(plain);
        let iv = std::array::from_fn(|place| 0xf0 + u8::try_from(place).expect("small"));
        cipher.keystream(&iv).apply(&mut text);
        assert_eq!(hex(&text), encrypted);
    }

    #[test]
    fn a_single_block_is_that_of_the_standard() {
        // FIPS 197, C.1.
        let secret = std::array::from_fn(|place| u8::try_from(place).expect("small"));
        let plain = std::array::from_fn(|place| 0x11 * u8::try_from(place).expect("small"));
        assert_eq!(hex(&Cipher::aes_128(&secret).block(&plain)), "69c4e0d86a7b0430d8cdb78070b4c55a");
    }

    #[test]
    fn parts_of_a_text_go_on_with_the_counter_which_carries_and_wraps() {
        let cipher = Cipher::aes_256(&[3; 32]);
        for iv in [7, u128::MAX, u128::MAX - 5, u128::from(u64::MAX), u128::from(u64::MAX) - 40] {
            let (mut whole, mut parts) = (vec![7; 1000], vec![7; 1000]);
            cipher.keystream(&iv.to_be_bytes()).apply(&mut whole);
            let mut keystream = cipher.keystream(&iv.to_be_bytes());
            let (first, second) = parts.split_at_mut(64);
            keystream.apply(first);
            keystream.apply(second);
            assert_eq!(whole, parts, "{iv:x}");
        }
    }
}
