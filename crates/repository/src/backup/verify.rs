//! Verifies a new blob before its pack is closed: decrypts, decompresses and hashes it as a reader would, without keeping it.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use crate::format::crypto::{EncryptedBytes, Key};
use crate::format::hash::Hash;
use crate::format::id::Id;

/// Small enough for the processor's cache, large enough for a call.
const CHUNK_SIZE: usize = 64 * 1024;

/// A verifier with the buffers of one thread.
pub(super) struct Verifier {
    decrypted: Vec<u8>,
    decompressed: Vec<u8>,
    zstd: Decoder<'static>,
}

impl Verifier {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { decrypted: vec![0; CHUNK_SIZE], decompressed: vec![0; 2 * CHUNK_SIZE], zstd: Decoder::new()? })
    }

    /// Verifies a compressed blob. The error is what is wrong with it.
    pub(super) fn verify_compressed(
        &mut self,
        key: &Key,
        encrypted: EncryptedBytes<'_>,
        id: &Id,
    ) -> Result<(), String> {
        let Self { decrypted, decompressed, zstd } = self;
        let mut hash = Hash::default();
        let mut failure = None;
        zstd.reinit().map_err(|error| error.to_string())?;
        key.decrypt_in_chunks(encrypted, decrypted, |_, chunk| {
            if failure.is_none() {
                failure = decompress(zstd, chunk, decompressed, &mut hash).err();
            }
        })
        .map_err(|error| error.to_string())?;
        match failure {
            Some(error) => Err(error.to_string()),
            None => compare(hash, id),
        }
    }

    /// Verifies an uncompressed blob and updates the hash of the pack with its ciphertext: two hashes at a time cost little more than
    /// one.
    pub(super) fn verify_plain(
        &mut self,
        key: &Key,
        encrypted: EncryptedBytes<'_>,
        id: &Id,
        pack: &mut Hash,
    ) -> Result<(), String> {
        let mut hash = Hash::default();
        let update = |encrypted: &[u8], plain: &[u8]| pack.update_both(encrypted, &mut hash, plain);
        key.decrypt_in_chunks(encrypted, &mut self.decrypted, update).map_err(|error| error.to_string())?;
        compare(hash, id)
    }
}

fn compare(hash: Hash, id: &Id) -> Result<(), String> {
    if hash.finish() == *id { Ok(()) } else { Err("its hash does not match its ID".into()) }
}

fn decompress(zstd: &mut Decoder<'_>, chunk: &[u8], out: &mut [u8], hash: &mut Hash) -> std::io::Result<()> {
    let mut input = InBuffer::around(chunk);
    loop {
        let mut output = OutBuffer::around(out);
        let before = input.pos();
        zstd.run(&mut input, &mut output)?;
        let written = output.pos();
        hash.update(&output.as_slice()[..written]);
        let full = written == output.capacity();
        if (input.pos() == chunk.len() && !full) || (input.pos() == before && written == 0) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_blob_is_accepted_and_any_other_is_rejected() {
        let key = Key::random();
        let plain: Vec<u8> = (0..700_000_u32).flat_map(|word| (word / 7).to_le_bytes()).collect();
        let (mut verifier, id) = (Verifier::new().expect("created"), Id::of(&plain));
        for compressed in [false, true, true] {
            let mut verify = |encrypted: EncryptedBytes<'_>, id: &Id| {
                if compressed {
                    return verifier.verify_compressed(&key, encrypted, id);
                }
                verifier.verify_plain(&key, encrypted, id, &mut Hash::default())
            };
            let mut text =
                if compressed { zstd::bulk::compress(&plain, 3).expect("compresses") } else { plain.clone() };
            let encrypted = key.encrypt_in_place(&mut text);
            assert_eq!(verify(encrypted, &id), Ok(()));
            assert!(verify(encrypted, &Id::of(b"other")).is_err());
            let mut damaged = encrypted;
            damaged.tag[3] ^= 1;
            assert!(verify(damaged, &id).is_err());
        }
        let mut cut = zstd::bulk::compress(&plain, 3).expect("compresses");
        cut.truncate(cut.len() / 2);
        assert!(verifier.verify_compressed(&key, key.encrypt_in_place(&mut cut), &id).is_err(), "half a frame");
    }

    #[test]
    fn the_hash_of_the_pack_includes_the_ciphertext() {
        let (key, plain) = (Key::random(), vec![7; 3 * CHUNK_SIZE + 5]);
        let (mut text, mut pack) = (plain.clone(), Hash::default());
        let encrypted = key.encrypt_in_place(&mut text);
        pack.update(&encrypted.iv);
        let mut verifier = Verifier::new().expect("created");
        verifier.verify_plain(&key, encrypted, &Id::of(&plain), &mut pack).expect("good");
        assert_eq!(pack.finish(), Id::of(&[&encrypted.iv[..], encrypted.text].concat()));
    }
}
