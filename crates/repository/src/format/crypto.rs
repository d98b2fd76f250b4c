//! Encryption as in restic: AES-256 in counter mode, then a Poly1305-AES MAC over the ciphertext. Adds 32 bytes.

use std::fmt;

use zeroize::Zeroize;

use super::keystream::{Cipher, Keystream};
use super::poly1305::Poly1305;

/// Bytes before the ciphertext.
pub const IV_SIZE: usize = 16;
/// Bytes after the ciphertext.
pub const MAC_SIZE: usize = 16;
/// The bytes that encryption adds.
pub const OVERHEAD: usize = IV_SIZE + MAC_SIZE;

/// The size of a chunk for the processor's cache.
const CHUNK_SIZE: usize = 32 * 1024;

/// The three secrets of a key, which are overwritten when it is dropped.
#[derive(Clone)]
pub struct Key {
    encrypt: [u8; 32],
    mac_k: [u8; 16],
    mac_r: [u8; 16],
    cipher: Cipher,
    pads: Cipher,
    poly1305: Poly1305,
}

impl Drop for Key {
    fn drop(&mut self) {
        let Self { encrypt, mac_k, mac_r, .. } = self;
        encrypt.zeroize();
        mac_k.zeroize();
        mac_r.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key")
    }
}

/// Encrypted bytes: IV, ciphertext and MAC, stored in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncryptedBytes<'t> {
    /// The random initialization vector.
    pub iv: [u8; IV_SIZE],
    /// The ciphertext, as long as the plaintext.
    pub text: &'t [u8],
    /// The MAC.
    pub tag: [u8; MAC_SIZE],
}

impl<'t> EncryptedBytes<'t> {
    /// Splits stored bytes.
    pub fn split(stored: &'t [u8]) -> Result<Self, MacError> {
        let (iv, rest) = stored.split_first_chunk::<IV_SIZE>().ok_or(MacError)?;
        let (text, tag) = rest.split_last_chunk::<MAC_SIZE>().ok_or(MacError)?;
        Ok(Self { iv: *iv, text, tag: *tag })
    }

    /// The number of stored bytes.
    pub fn stored_length(&self) -> usize {
        self.text.len() + OVERHEAD
    }
}

/// The MAC does not match: another key, or damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MAC verification failed")]
pub struct MacError;

impl Key {
    /// Creates a key from its secrets; `None` if one is all zeros.
    pub fn new(encrypt: [u8; 32], mac_k: [u8; 16], mac_r: [u8; 16]) -> Option<Self> {
        if encrypt == [0; 32] || mac_k == [0; 16] || mac_r == [0; 16] {
            return None;
        }
        let (cipher, pads, poly1305) = (Cipher::aes_256(&encrypt), Cipher::aes_128(&mac_k), Poly1305::new(&mac_r));
        Some(Self { encrypt, mac_k, mac_r, cipher, pads, poly1305 })
    }

    /// A new random key.
    pub fn random() -> Self {
        loop {
            if let Some(key) = Self::new(rand::random(), rand::random(), rand::random()) {
                return key;
            }
        }
    }

    /// The secrets, for a key file.
    pub(crate) fn secrets(&self) -> (&[u8; 32], &[u8; 16], &[u8; 16]) {
        (&self.encrypt, &self.mac_k, &self.mac_r)
    }

    /// Appends the encrypted form of `plain`.
    pub fn encrypt(&self, plain: &[u8], out: &mut Vec<u8>) {
        self.encrypt_with_iv(random_iv(), plain, out);
    }

    fn encrypt_with_iv(&self, iv: [u8; IV_SIZE], plain: &[u8], out: &mut Vec<u8>) {
        out.reserve(plain.len() + OVERHEAD);
        out.extend_from_slice(&iv);
        let start = out.len();
        out.extend_from_slice(plain);
        let tag = self.encrypt_text(&iv, &mut out[start..]);
        out.extend_from_slice(&tag);
    }

    /// Encrypts in place, without a copy.
    pub fn encrypt_in_place<'t>(&self, text: &'t mut [u8]) -> EncryptedBytes<'t> {
        let iv = random_iv();
        let tag = self.encrypt_text(&iv, text);
        EncryptedBytes { iv, text, tag }
    }

    fn encrypt_text(&self, iv: &[u8; IV_SIZE], text: &mut [u8]) -> [u8; MAC_SIZE] {
        self.keystream(iv).apply(text);
        self.mac(iv, text)
    }

    /// Decrypts into `out`, replacing its content, after the MAC was verified.
    pub fn decrypt(&self, encrypted: &[u8], out: &mut Vec<u8>) -> Result<(), MacError> {
        out.clear();
        let encrypted = self.verified(EncryptedBytes::split(encrypted)?)?;
        let mut keystream = self.keystream(&encrypted.iv);
        out.reserve(encrypted.text.len());
        for chunk in encrypted.text.chunks(CHUNK_SIZE) {
            let start = out.len();
            out.extend_from_slice(chunk);
            keystream.apply(&mut out[start..]);
        }
        Ok(())
    }

    /// Decrypts without keeping the plaintext: passes each chunk of ciphertext and plaintext to `on_chunk`. Chunks fit into `buffer`
    /// and the processor's cache.
    pub fn decrypt_in_chunks(
        &self,
        encrypted: EncryptedBytes<'_>,
        buffer: &mut [u8],
        mut on_chunk: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), MacError> {
        let encrypted = self.verified(encrypted)?;
        let mut keystream = self.keystream(&encrypted.iv);
        // The keystream continues after whole blocks only. A buffer smaller than a block is rejected below.
        let whole_blocks = buffer.len() - buffer.len() % IV_SIZE;
        for chunk in encrypted.text.chunks(whole_blocks.max(IV_SIZE)) {
            let plain = buffer.get_mut(..chunk.len()).ok_or(MacError)?;
            plain.copy_from_slice(chunk);
            keystream.apply(plain);
            on_chunk(chunk, plain);
        }
        Ok(())
    }

    fn verified<'s>(&self, encrypted: EncryptedBytes<'s>) -> Result<EncryptedBytes<'s>, MacError> {
        let is_valid =
            encrypted.iv != [0; IV_SIZE] && is_equal(&self.mac(&encrypted.iv, encrypted.text), &encrypted.tag);
        if is_valid { Ok(encrypted) } else { Err(MacError) }
    }

    fn keystream(&self, iv: &[u8; IV_SIZE]) -> Keystream<'_> {
        self.cipher.keystream(iv)
    }

    fn mac(&self, iv: &[u8; IV_SIZE], ciphertext: &[u8]) -> [u8; MAC_SIZE] {
        self.poly1305.tag(&self.pads.block(iv), ciphertext)
    }
}

fn random_iv() -> [u8; IV_SIZE] {
    loop {
        let iv: [u8; IV_SIZE] = rand::random();
        if iv != [0; IV_SIZE] {
            return iv;
        }
    }
}

/// Compares in constant time.
fn is_equal(one: &[u8; MAC_SIZE], other: &[u8; MAC_SIZE]) -> bool {
    one.iter().zip(other).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn bytes<const N: usize>(first: u8) -> [u8; N] {
        std::array::from_fn(|i| first + u8::try_from(i).expect("small"))
    }

    pub(crate) fn fixed_key() -> Key {
        Key::new(bytes(0), bytes(0x20), bytes(0x30)).expect("not zero")
    }

    pub(crate) fn hex(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        crate::format::id::push_hex(bytes, &mut out);
        String::from_utf8(out).expect("hex")
    }

    pub(crate) fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16).expect("a digit")).collect();
        digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("a byte")).collect()
    }

    #[test]
    fn encryption_gives_the_known_bytes() {
        let mut encrypted = Vec::new();
        fixed_key().encrypt_with_iv(bytes(0x40), b"Plimsoll restic vector\n", &mut encrypted);
        assert_eq!(
            hex(&encrypted),
            "404142434445464748494a4b4c4d4e4ff312b652e435d683b30907b4f932d277c6107de7c79c6e0b40e94f84e2e4c510a135ac1308fb1f"
        );
        encrypted.clear();
        fixed_key().encrypt_with_iv(bytes(0x40), b"", &mut encrypted);
        assert_eq!(hex(&encrypted), "404142434445464748494a4b4c4d4e4f859469c07743c7e45b318d151d3d87e9");
    }

    #[test]
    fn every_flipped_bit_fails_mac_verification() {
        let (mut encrypted, mut plain) = (Vec::new(), Vec::new());
        fixed_key().encrypt(b"some text", &mut encrypted);
        assert_eq!(fixed_key().decrypt(&encrypted, &mut plain), Ok(()));
        assert_eq!(plain, b"some text");
        for bit in 0..encrypted.len() * 8 {
            let mut damaged = encrypted.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(fixed_key().decrypt(&damaged, &mut plain), Err(MacError), "bit {bit}");
        }
        assert_eq!(fixed_key().decrypt(&encrypted[..31], &mut plain), Err(MacError));
    }

    #[test]
    fn chunks_join_to_the_plaintext() {
        let (mut encrypted, mut plain) = (Vec::new(), Vec::new());
        fixed_key().encrypt(&[7; 1000], &mut encrypted);
        for size in [16, 33, 1000, 4096] {
            plain.clear();
            let parts = EncryptedBytes::split(&encrypted).expect("long enough");
            let opened =
                fixed_key().decrypt_in_chunks(parts, &mut vec![0; size], |_, chunk| plain.extend_from_slice(chunk));
            assert_eq!((opened, plain.as_slice()), (Ok(()), &[7; 1000][..]), "chunks of {size}");
        }
        let mut text = [7; 1000];
        let parts = fixed_key().encrypt_in_place(&mut text);
        let joined = [&parts.iv[..], parts.text, &parts.tag[..]].concat();
        assert_eq!((fixed_key().decrypt(&joined, &mut plain), plain.as_slice()), (Ok(()), &[7; 1000][..]));
        encrypted[20] ^= 1;
        let parts = EncryptedBytes::split(&encrypted).expect("long enough");
        assert_eq!(fixed_key().decrypt_in_chunks(parts, &mut [0; 16], |_, _| ()), Err(MacError));
        encrypted[20] ^= 1;
        let parts = EncryptedBytes::split(&encrypted).expect("long enough");
        assert_eq!(fixed_key().decrypt_in_chunks(parts, &mut [0; 15], |_, _| ()), Err(MacError), "no room for a block");
    }
}
