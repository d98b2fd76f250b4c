//! Encodings and checksums.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::super::eval_error::EvalError;
use super::super::functions::Function;
use super::super::scope::Scope;
use super::super::value::Value;
use super::bytes;

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "b64enc", takes: "s", run: |scope, values| scope.text(STANDARD.encode(bytes(&values[0]))) },
    Function { name: "b64dec", takes: "s", run: b64dec },
    Function { name: "b32enc", takes: "s", run: |scope, values| scope.text(base32(bytes(&values[0]))) },
    Function { name: "b32dec", takes: "s", run: b32dec },
    Function { name: "sha1sum", takes: "s", run: |scope, values| scope.text(hex(&Sha1::digest(bytes(&values[0])))) },
    Function {
        name: "sha256sum",
        takes: "s",
        run: |scope, values| scope.text(hex(&Sha256::digest(bytes(&values[0])))),
    },
    Function {
        name: "adler32sum",
        takes: "s",
        run: |scope, values| scope.text(adler32(bytes(&values[0])).to_string()),
    },
];

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The error message replaces the content, as in sprig; line breaks are allowed.
fn b64dec(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut places = Vec::new();
    let mut text = Vec::new();
    for (at, byte) in bytes(&values[0]).iter().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n')) {
        places.push(at);
        text.push(*byte);
    }
    if let Ok(decoded) = STANDARD.decode(&text) {
        return scope.text(decoded);
    }
    let at = places.get(illegal_base64(&text)).copied().unwrap_or(bytes(&values[0]).len());
    scope.text(format!("illegal base64 data at input byte {at}"))
}

/// The offset at which Go stops decoding.
fn illegal_base64(text: &[u8]) -> usize {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let end = text.iter().position(|byte| !good(*byte)).unwrap_or(text.len());
    let padding = text[end..].iter().take_while(|byte| **byte == b'=').count();
    match (end % 4, padding) {
        // Too short: the last quantum starts there.
        (_, 0) if end == text.len() => end - end % 4,
        (2, 1) if text.len() == end + 1 => text.len(),
        (2 | 3, _) if padding >= 4 - end % 4 => end + 4 - end % 4,
        (2, 1) => end + 1,
        _ => end,
    }
}

fn base32(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(5) {
        let mut block = [0; 5];
        block[..chunk.len()].copy_from_slice(chunk);
        let number = block.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let letters = (chunk.len() * 8).div_ceil(5);
        for at in 0..8 {
            let letter = ALPHABET[(number >> (35 - 5 * at) & 31) as usize];
            text.push(if at < letters { char::from(letter) } else { '=' });
        }
    }
    text
}

fn b32dec(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let text: Vec<u8> = bytes(&values[0]).iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    match from_base32(&text) {
        Ok(decoded) => scope.text(decoded),
        Err(at) => scope.text(format!("illegal base32 data at input byte {at}")),
    }
}

fn from_base32(text: &[u8]) -> Result<Vec<u8>, usize> {
    let end = text.iter().position(|byte| *byte == b'=').unwrap_or(text.len());
    let padded = text[end..].iter().all(|byte| *byte == b'=') && text.len().is_multiple_of(8);
    let mut bytes = Vec::new();
    for (block, chunk) in text[..end].chunks(8).enumerate() {
        let mut number = 0u64;
        for at in 0..8 {
            let digit = match chunk.get(at) {
                Some(byte) => ALPHABET.iter().position(|letter| letter == byte).ok_or(block * 8 + at)?,
                None => 0,
            };
            number = number << 5 | digit as u64;
        }
        let whole = chunk.len() * 5 / 8;
        bytes.extend_from_slice(&number.to_be_bytes()[3..3 + whole]);
    }
    if !padded || matches!(end % 8, 1 | 3 | 6) {
        return Err(end);
    }
    Ok(bytes)
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1u32, 0u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    high << 16 | low
}
