//! Sealing: AES-256 in counter mode, then Poly1305 over the ciphertext. Adds 32 bytes to whatever is sealed.

use std::fmt;

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

use super::keystream::{Cipher, Keystream};
use super::poly1305::Poly1305;

/// Bytes before the ciphertext.
pub const IV_SIZE: usize = 16;
/// Bytes after the ciphertext.
pub const TAG_SIZE: usize = 16;
/// What sealing adds.
pub const OVERHEAD: usize = IV_SIZE + TAG_SIZE;

/// What is worked on at a time: small enough for the cache.
const PIECE: usize = 32 * 1024;

/// The three secrets that seal and open.
#[derive(Clone)]
pub struct Key {
    encrypt: [u8; 32],
    mac_k: [u8; 16],
    mac_r: [u8; 16],
    cipher: Cipher,
    pads: Aes128,
    poly1305: Poly1305,
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key")
    }
}

/// Sealed bytes in their parts; joined in this order they are what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed<'t> {
    /// A random start.
    pub iv: [u8; IV_SIZE],
    /// As long as the plain form.
    pub text: &'t [u8],
    /// Proves the other two.
    pub tag: [u8; TAG_SIZE],
}

impl<'t> Sealed<'t> {
    /// The parts of stored bytes.
    pub fn split(stored: &'t [u8]) -> Result<Self, BrokenSeal> {
        let (iv, rest) = stored.split_first_chunk::<IV_SIZE>().ok_or(BrokenSeal)?;
        let (text, tag) = rest.split_last_chunk::<TAG_SIZE>().ok_or(BrokenSeal)?;
        Ok(Self { iv: *iv, text, tag: *tag })
    }

    /// How many bytes are stored.
    pub fn stored_length(&self) -> usize {
        self.text.len() + OVERHEAD
    }
}

/// Sealed bytes that do not open: another key, or damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the seal is broken")]
pub struct BrokenSeal;

impl Key {
    /// From the three secrets; all-zero ones are no key.
    pub fn new(encrypt: [u8; 32], mac_k: [u8; 16], mac_r: [u8; 16]) -> Option<Self> {
        if encrypt == [0; 32] || mac_k == [0; 16] || mac_r == [0; 16] {
            return None;
        }
        let (cipher, pads, poly1305) = (Cipher::new(&encrypt), Aes128::new(&mac_k.into()), Poly1305::new(&mac_r));
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

    /// The secrets again, for a key file.
    pub(crate) fn secrets(&self) -> (&[u8; 32], &[u8; 16], &[u8; 16]) {
        (&self.encrypt, &self.mac_k, &self.mac_r)
    }

    /// Appends the sealed form of `plain`.
    pub fn seal(&self, plain: &[u8], out: &mut Vec<u8>) {
        self.seal_with(random_iv(), plain, out);
    }

    fn seal_with(&self, iv: [u8; IV_SIZE], plain: &[u8], out: &mut Vec<u8>) {
        out.reserve(plain.len() + OVERHEAD);
        out.extend_from_slice(&iv);
        let start = out.len();
        out.extend_from_slice(plain);
        let tag = self.seal_text(&iv, &mut out[start..]);
        out.extend_from_slice(&tag);
    }

    /// Seals where the plain form lies, without a copy.
    pub fn seal_in_place<'t>(&self, text: &'t mut [u8]) -> Sealed<'t> {
        let iv = random_iv();
        let tag = self.seal_text(&iv, text);
        Sealed { iv, text, tag }
    }

    fn seal_text(&self, iv: &[u8; IV_SIZE], text: &mut [u8]) -> [u8; TAG_SIZE] {
        self.keystream(iv).apply(text);
        self.tag(iv, text)
    }

    /// Puts the plain form of `sealed` into `out`, replacing what is there. Nothing is decrypted unless the tag is right.
    pub fn open(&self, sealed: &[u8], out: &mut Vec<u8>) -> Result<(), BrokenSeal> {
        out.clear();
        let sealed = self.proved(Sealed::split(sealed)?)?;
        let mut keystream = self.keystream(&sealed.iv);
        out.reserve(sealed.text.len());
        for piece in sealed.text.chunks(PIECE) {
            let start = out.len();
            out.extend_from_slice(piece);
            keystream.apply(&mut out[start..]);
        }
        Ok(())
    }

    /// The same for those who do not keep the plain form: hands it to `take` in pieces that fit into `buffer` and stay in
    /// the processor's cache, each after its sealed form.
    pub fn open_in_pieces(
        &self,
        sealed: Sealed<'_>,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), BrokenSeal> {
        let sealed = self.proved(sealed)?;
        let mut keystream = self.keystream(&sealed.iv);
        // The keystream goes on after whole blocks only. A buffer that is smaller than one is refused below.
        let whole_blocks = buffer.len() - buffer.len() % IV_SIZE;
        for piece in sealed.text.chunks(whole_blocks.max(IV_SIZE)) {
            let plain = buffer.get_mut(..piece.len()).ok_or(BrokenSeal)?;
            plain.copy_from_slice(piece);
            keystream.apply(plain);
            take(piece, plain);
        }
        Ok(())
    }

    fn proved<'s>(&self, sealed: Sealed<'s>) -> Result<Sealed<'s>, BrokenSeal> {
        let good = sealed.iv != [0; IV_SIZE] && same(&self.tag(&sealed.iv, sealed.text), &sealed.tag);
        if good { Ok(sealed) } else { Err(BrokenSeal) }
    }

    fn keystream(&self, iv: &[u8; IV_SIZE]) -> Keystream<'_> {
        self.cipher.keystream(iv)
    }

    fn tag(&self, iv: &[u8; IV_SIZE], ciphertext: &[u8]) -> [u8; TAG_SIZE] {
        let mut pad = (*iv).into();
        self.pads.encrypt_block(&mut pad);
        self.poly1305.tag(&pad.into(), ciphertext)
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

/// Compares without telling by its duration where the difference is.
fn same(one: &[u8; TAG_SIZE], other: &[u8; TAG_SIZE]) -> bool {
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

    #[test]
    fn sealing_gives_the_known_bytes() {
        let mut sealed = Vec::new();
        fixed_key().seal_with(bytes(0x40), b"Plimsoll restic vector\n", &mut sealed);
        assert_eq!(
            hex(&sealed),
            "404142434445464748494a4b4c4d4e4ff312b652e435d683b30907b4f932d277c6107de7c79c6e0b40e94f84e2e4c510a135ac1308fb1f"
        );
        sealed.clear();
        fixed_key().seal_with(bytes(0x40), b"", &mut sealed);
        assert_eq!(hex(&sealed), "404142434445464748494a4b4c4d4e4f859469c07743c7e45b318d151d3d87e9");
    }

    #[test]
    fn every_flipped_bit_breaks_the_seal() {
        let (mut sealed, mut plain) = (Vec::new(), Vec::new());
        fixed_key().seal(b"some text", &mut sealed);
        assert_eq!(fixed_key().open(&sealed, &mut plain), Ok(()));
        assert_eq!(plain, b"some text");
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(fixed_key().open(&damaged, &mut plain), Err(BrokenSeal), "bit {bit}");
        }
        assert_eq!(fixed_key().open(&sealed[..31], &mut plain), Err(BrokenSeal));
    }

    #[test]
    fn pieces_join_to_the_whole() {
        let (mut sealed, mut plain) = (Vec::new(), Vec::new());
        fixed_key().seal(&[7; 1000], &mut sealed);
        for size in [16, 33, 1000, 4096] {
            plain.clear();
            let parts = Sealed::split(&sealed).expect("long enough");
            let opened =
                fixed_key().open_in_pieces(parts, &mut vec![0; size], |_, piece| plain.extend_from_slice(piece));
            assert_eq!((opened, plain.as_slice()), (Ok(()), &[7; 1000][..]), "pieces of {size}");
        }
        let mut text = [7; 1000];
        let parts = fixed_key().seal_in_place(&mut text);
        let joined = [&parts.iv[..], parts.text, &parts.tag[..]].concat();
        assert_eq!((fixed_key().open(&joined, &mut plain), plain.as_slice()), (Ok(()), &[7; 1000][..]));
        sealed[20] ^= 1;
        let parts = Sealed::split(&sealed).expect("long enough");
        assert_eq!(fixed_key().open_in_pieces(parts, &mut [0; 16], |_, _| ()), Err(BrokenSeal));
        sealed[20] ^= 1;
        let parts = Sealed::split(&sealed).expect("long enough");
        assert_eq!(fixed_key().open_in_pieces(parts, &mut [0; 15], |_, _| ()), Err(BrokenSeal), "no room for a block");
    }
}
