//! Proving a new blob before its pack is closed: opened, unpacked and hashed as a reader would, without keeping it.

use sha2::{Digest, Sha256};
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use crate::format::crypto::{Key, Sealed};
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

    /// The error says what is wrong with the sealed blob.
    pub(super) fn verify(&mut self, key: &Key, sealed: Sealed<'_>, compressed: bool, id: &Id) -> Result<(), String> {
        let Self { opened, unpacked, zstd } = self;
        let mut hash = Sha256::new();
        let mut failure = None;
        if compressed {
            zstd.reinit().map_err(|error| error.to_string())?;
        }
        key.open_in_pieces(sealed, opened, |piece| {
            if !compressed {
                hash.update(piece);
            } else if failure.is_none() {
                failure = unpack(zstd, piece, unpacked, &mut hash).err();
            }
        })
        .map_err(|error| error.to_string())?;
        match failure {
            Some(error) => Err(error.to_string()),
            None if Id(hash.finalize().into()) == *id => Ok(()),
            None => Err("its content does not have the hash that is its name".into()),
        }
    }
}

fn unpack(zstd: &mut Decoder<'_>, piece: &[u8], out: &mut [u8], hash: &mut Sha256) -> std::io::Result<()> {
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
            let stored = if compressed { zstd::bulk::compress(&plain, 3).expect("compresses") } else { plain.clone() };
            let mut text = stored.clone();
            let sealed = key.seal_in_place(&mut text);
            assert_eq!(verifier.verify(&key, sealed, compressed, &id), Ok(()));
            assert!(verifier.verify(&key, sealed, compressed, &Id::of(b"other")).is_err());
            let mut damaged = sealed;
            damaged.tag[3] ^= 1;
            assert!(verifier.verify(&key, damaged, compressed, &id).is_err());
        }
        let mut cut = zstd::bulk::compress(&plain, 3).expect("compresses");
        cut.truncate(cut.len() / 2);
        assert!(verifier.verify(&key, key.seal_in_place(&mut cut), true, &id).is_err(), "half a frame");
    }
}
