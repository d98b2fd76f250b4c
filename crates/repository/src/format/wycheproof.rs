//! Our own vector code against the vectors of Wycheproof, which look for the mistakes of implementations.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use wycheproof::{TestResult, aead, mac};

use super::hash::Hash;
use super::poly1305::Poly1305;

/// The key of Poly1305 in ChaCha20-Poly1305: the beginning of the first block (RFC 8439, 2.6).
fn one_time_key(key: &[u8; 32], nonce: &[u8; 12]) -> ([u8; 16], [u8; 16]) {
    let (counter, stream) = nonce.split_first_chunk::<4>().expect("four bytes");
    let mut block = ChaCha20Rng::from_seed(*key);
    block.set_stream(u64::from_le_bytes(stream.try_into().expect("eight bytes")));
    // The generator counts with 64 bits, of which the upper half is the beginning of the nonce. A block is 16 words.
    block.set_word_pos(u128::from(u32::from_le_bytes(*counter)) << 36);
    let (mut secret, mut pad) = ([0; 16], [0; 16]);
    block.fill_bytes(&mut secret);
    block.fill_bytes(&mut pad);
    (secret, pad)
}

/// What is authenticated (RFC 8439, 2.8).
fn authenticated(additional: &[u8], ciphertext: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for part in [additional, ciphertext] {
        text.extend_from_slice(part);
        text.resize(text.len().next_multiple_of(16), 0);
    }
    for part in [additional, ciphertext] {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
    }
    text
}

#[test]
fn poly1305_has_the_tags_of_wycheproof() {
    let set = aead::TestSet::load(aead::TestName::ChaCha20Poly1305).expect("loads");
    let mut seen = 0;
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let Ok(nonce) = <[u8; 12]>::try_from(&test.nonce[..]) else { continue };
        let (secret, pad) = one_time_key(test.key[..].try_into().expect("32 bytes"), &nonce);
        let tag = Poly1305::new(&secret).tag(&pad, &authenticated(&test.aad, &test.ct));
        assert_eq!(tag[..] == test.tag[..], test.result != TestResult::Invalid, "test {}", test.tc_id);
        seen += 1;
    }
    assert!(seen > 250, "{seen} vectors");
}

/// The state of HMAC after its first block, for the inner or the outer hash.
fn keyed(key: &[u8], filler: u8) -> Hash {
    let mut block = [0; 64];
    if key.len() > block.len() {
        let mut hash = Hash::default();
        hash.update(key);
        block[..32].copy_from_slice(&hash.finish().0);
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut hash = Hash::default();
    hash.update(&block.map(|byte| byte ^ filler));
    hash
}

#[test]
fn two_streams_of_sha_256_have_the_codes_of_wycheproof() {
    let set = mac::TestSet::load(mac::TestName::HmacSha256).expect("loads");
    let tests: Vec<_> = set.test_groups.iter().flat_map(|group| &group.tests).collect();
    assert!(tests.len() > 150, "{} vectors", tests.len());
    for pair in tests.windows(2) {
        let inner = |test: &mac::Test| keyed(&test.key, 0x36);
        let (mut one, mut other) = (inner(pair[0]), inner(pair[1]));
        one.update_both(&pair[0].msg, &mut other, &pair[1].msg);
        for (test, inner) in pair.iter().zip([one, other]) {
            let mut outer = keyed(&test.key, 0x5c);
            outer.update(&inner.finish().0);
            let code = outer.finish().0;
            let is_same = code[..test.tag.len()] == test.tag[..];
            assert_eq!(is_same, test.result != TestResult::Invalid, "test {}", test.tc_id);
        }
    }
}
