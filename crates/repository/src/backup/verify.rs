//! Proving a new blob before its pack is closed: opened, unpacked and hashed as a reader would, without keeping it.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use crate::format::crypto::{Key, Sealed};
use crate::format::hash::Hash;
use crate::format::id::Id;

/// Small enough for the processor's cache, large enough to be worth a call.
const PIECE: usize = 64 * 1024;

/// The scratch memory of one thread.
pub(super) struct Verifier {
    opened: Vec<u8>,
    unpacked: Vec<u8>,
    zstd: Decoder<'static>,
}

impl Verifier {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { opened: vec![0; PIECE], unpacked: vec![0; 2 * PIECE], zstd: Decoder::new()? })
    }

    /// Proves a compressed blob. The error says what is wrong with it.
    pub(super) fn verify_compressed(&mut self, key: &Key, sealed: Sealed<'_>, id: &Id) -> Result<(), String> {
        let Self { opened, unpacked, zstd } = self;
        let mut hash = Hash::default();
        let mut failure = None;
        zstd.reinit().map_err(|error| error.to_string())?;
        key.open_in_pieces(sealed, opened, |_, piece| {
            if failure.is_none() {
                failure = unpack(zstd, piece, unpacked, &mut hash).err();
            }
        })
        .map_err(|error| error.to_string())?;
        match failure {
            Some(error) => Err(error.to_string()),
            None => compare(hash, id),
        }
    }

    /// Proves a blob that is not compressed. Its sealed text goes through the hash of the pack meanwhile: two hashes at a
    /// time cost little more than one.
    pub(super) fn verify_plain(
        &mut self,
        key: &Key,
        sealed: Sealed<'_>,
        id: &Id,
        pack: &mut Hash,
    ) -> Result<(), String> {
        let mut hash = Hash::default();
        let take = |sealed: &[u8], plain: &[u8]| pack.update_both(sealed, &mut hash, plain);
        key.open_in_pieces(sealed, &mut self.opened, take).map_err(|error| error.to_string())?;
        compare(hash, id)
    }
}

fn compare(hash: Hash, id: &Id) -> Result<(), String> {
    if hash.finish() == *id { Ok(()) } else { Err("its content does not have the hash that is its name".into()) }
}

fn unpack(zstd: &mut Decoder<'_>, piece: &[u8], out: &mut [u8], hash: &mut Hash) -> std::io::Result<()> {
    let mut input = InBuffer::around(piece);
    loop {
        let mut output = OutBuffer::around(out);
        let before = input.pos();
        zstd.run(&mut input, &mut output)?;
        let written = output.pos();
        hash.update(&output.as_slice()[..written]);
        let full = written == output.capacity();
        if (input.pos() == piece.len() && !full) || (input.pos() == before && written == 0) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_would_get_is_proved_and_anything_else_refused() {
        let key = Key::random();
        let plain: Vec<u8> = (0..700_000_u32).flat_map(|word| (word / 7).to_le_bytes()).collect();
        let (mut verifier, id) = (Verifier::new().expect("made"), Id::of(&plain));
        for compressed in [false, true, true] {
            let mut verify = |sealed: Sealed<'_>, id: &Id| {
                if compressed {
                    return verifier.verify_compressed(&key, sealed, id);
                }
                verifier.verify_plain(&key, sealed, id, &mut Hash::default())
            };
            let mut text =
                if compressed { zstd::bulk::compress(&plain, 3).expect("compresses") } else { plain.clone() };
            let sealed = key.seal_in_place(&mut text);
            assert_eq!(verify(sealed, &id), Ok(()));
            assert!(verify(sealed, &Id::of(b"other")).is_err());
            let mut damaged = sealed;
            damaged.tag[3] ^= 1;
            assert!(verify(damaged, &id).is_err());
        }
        let mut cut = zstd::bulk::compress(&plain, 3).expect("compresses");
        cut.truncate(cut.len() / 2);
        assert!(verifier.verify_compressed(&key, key.seal_in_place(&mut cut), &id).is_err(), "half a frame");
    }

    #[test]
    fn the_hash_of_the_pack_goes_on_over_the_sealed_text() {
        let (key, plain) = (Key::random(), vec![7; 3 * PIECE + 5]);
        let (mut text, mut pack) = (plain.clone(), Hash::default());
        let sealed = key.seal_in_place(&mut text);
        pack.update(&sealed.iv);
        let mut verifier = Verifier::new().expect("made");
        verifier.verify_plain(&key, sealed, &Id::of(&plain), &mut pack).expect("good");
        assert_eq!(pack.finish(), Id::of(&[&sealed.iv[..], sealed.text].concat()));
    }
}
