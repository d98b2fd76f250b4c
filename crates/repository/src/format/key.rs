//! Key files: a password decrypts the master key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::crypto::Key;

/// A file in `keys/`: JSON with the encrypted master key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyFile {
    created: String,
    username: String,
    hostname: String,
    kdf: String,
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
    salt: String,
    data: String,
}

#[derive(Serialize, Deserialize)]
struct MasterKey {
    mac: MacKey,
    encrypt: String,
}

#[derive(Serialize, Deserialize)]
struct MacKey {
    k: String,
    r: String,
}

impl Drop for MasterKey {
    fn drop(&mut self) {
        let Self { mac: MacKey { k, r }, encrypt } = self;
        [k, r, encrypt].into_iter().for_each(Zeroize::zeroize);
    }
}

/// An error of a key file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The password does not match.
    #[error("wrong password for this key")]
    WrongPassword,
    /// The key file is invalid.
    #[error("invalid key file: {0}")]
    Malformed(String),
}

/// The maximum memory of a key derivation: key files are not trusted. restic stays below 64 MiB.
const MAX_MEMORY: u64 = 128 * 1024 * 1024;
/// The additional memory of scrypt for its parallelism; restic uses 5 or 6 KiB.
const MAX_PARALLEL_MEMORY: u64 = 1024 * 1024;
/// The maximum of all memory accesses, which determine the time. restic aims at half a second, which is 160 to 192 MiB.
const MAX_COST: u64 = 1024 * 1024 * 1024;
const SALT_SIZE: usize = 64;

/// The cost of a new key: about a tenth of a second and 32 MiB.
const LOG_N: u8 = 15;

impl KeyFile {
    /// Encrypts a master key with a password.
    pub fn create(master: &Key, password: &[u8], created: String, hostname: String) -> Result<Self, KeyError> {
        Self::create_with_cost(master, password, created, hostname, LOG_N)
    }

    fn create_with_cost(
        master: &Key,
        password: &[u8],
        created: String,
        hostname: String,
        log_n: u8,
    ) -> Result<Self, KeyError> {
        let salt: [u8; SALT_SIZE] = rand::random();
        let mut file = Self {
            created,
            username: "plimsoll".into(),
            hostname,
            kdf: "scrypt".into(),
            n: 1 << log_n,
            r: 8,
            p: 1,
            salt: STANDARD.encode(salt),
            data: String::new(),
        };
        let mut encrypted = Vec::new();
        file.user_key(password)?.encrypt(&master_json(master)?, &mut encrypted);
        file.data = STANDARD.encode(encrypted);
        Ok(file)
    }

    /// Parses a key file.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyError> {
        serde_json::from_slice(bytes).map_err(|error| KeyError::Malformed(error.to_string()))
    }

    /// The bytes to store.
    pub fn encode(&self) -> Result<Vec<u8>, KeyError> {
        serde_json::to_vec(self).map_err(|error| KeyError::Malformed(error.to_string()))
    }

    /// When, by whom and where it was created.
    pub(crate) fn description(&self) -> (String, String, String) {
        (self.created.clone(), self.username.clone(), self.hostname.clone())
    }

    /// The master key, if the password is right.
    pub fn unlock(&self, password: &[u8]) -> Result<Key, KeyError> {
        let user = self.user_key(password)?;
        let encrypted = decode(&self.data)?;
        let mut plain = Zeroizing::new(Vec::new());
        user.decrypt(&encrypted, &mut plain).map_err(|_| KeyError::WrongPassword)?;
        parse_master(&plain)
    }

    /// The memory of the key derivation times its passes; `None` if it exceeds the limits.
    pub fn cost_in_bytes(&self) -> Option<u64> {
        let (block, passes) = (128 * u64::from(self.r), u64::from(self.p));
        let memory = self.n.checked_mul(block).filter(|size| *size <= MAX_MEMORY)?;
        block.checked_mul(passes).filter(|size| *size <= MAX_PARALLEL_MEMORY)?;
        memory.checked_mul(passes).filter(|cost| *cost <= MAX_COST)
    }

    fn user_key(&self, password: &[u8]) -> Result<Key, KeyError> {
        let salt = decode(&self.salt)?;
        if self.kdf != "scrypt" || salt.len() != SALT_SIZE {
            return Err(KeyError::Malformed("not scrypt with a salt of 64 bytes".into()));
        }
        let mut derived = Zeroizing::new([0; 64]);
        let params = self.cost()?;
        scrypt::scrypt(password, &salt, &params, &mut *derived)
            .map_err(|error| KeyError::Malformed(error.to_string()))?;
        split_key(&derived)
    }

    /// The cost in the key file. Rejected before any allocation if it exceeds the limits.
    fn cost(&self) -> Result<scrypt::Params, KeyError> {
        let out_of_bounds = || KeyError::Malformed(format!("scrypt cost {}/{}/{}", self.n, self.r, self.p));
        let bounded = self.cost_in_bytes().is_some_and(|cost| cost > 0);
        if !bounded || self.n < 2 || !self.n.is_power_of_two() {
            return Err(out_of_bounds());
        }
        let log_n = u8::try_from(self.n.trailing_zeros()).map_err(|_| out_of_bounds())?;
        scrypt::Params::new(log_n, self.r, self.p).map_err(|_| out_of_bounds())
    }
}

fn split_key(derived: &[u8; 64]) -> Result<Key, KeyError> {
    let (mut encrypt, mut mac_k, mut mac_r) = ([0; 32], [0; 16], [0; 16]);
    encrypt.copy_from_slice(&derived[..32]);
    mac_k.copy_from_slice(&derived[32..48]);
    mac_r.copy_from_slice(&derived[48..]);
    Key::new(encrypt, mac_k, mac_r).ok_or_else(|| KeyError::Malformed("an all-zero key".into()))
}

fn master_json(master: &Key) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let (encrypt, k, r) = master.secrets();
    let mac = MacKey { k: STANDARD.encode(k), r: STANDARD.encode(r) };
    let master = MasterKey { mac, encrypt: STANDARD.encode(encrypt) };
    serde_json::to_vec(&master).map(Zeroizing::new).map_err(|error| KeyError::Malformed(error.to_string()))
}

fn parse_master(plain: &[u8]) -> Result<Key, KeyError> {
    let master: MasterKey =
        serde_json::from_slice(plain).map_err(|_| KeyError::Malformed("the master key is not JSON".into()))?;
    let key = Key::new(fixed(&master.encrypt)?, fixed(&master.mac.k)?, fixed(&master.mac.r)?);
    key.ok_or_else(|| KeyError::Malformed("an all-zero key".into()))
}

fn fixed<const N: usize>(text: &str) -> Result<[u8; N], KeyError> {
    let secret = Zeroizing::new(decode(text)?);
    secret[..].try_into().map_err(|_| KeyError::Malformed("a key of the wrong length".into()))
}

fn decode(text: &str) -> Result<Vec<u8>, KeyError> {
    STANDARD.decode(text).map_err(|_| KeyError::Malformed("not base64".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::crypto::tests::{fixed_key, hex};

    fn file(n: u64, r: u32, p: u32) -> KeyFile {
        let salt: Vec<u8> = (0..64).collect();
        KeyFile {
            created: String::new(),
            username: String::new(),
            hostname: String::new(),
            kdf: "scrypt".into(),
            n,
            r,
            p,
            salt: STANDARD.encode(salt),
            data: String::new(),
        }
    }

    #[test]
    fn a_password_gives_the_known_user_key() {
        let key = file(1024, 8, 1).user_key(b"geheim").expect("good cost");
        let (encrypt, k, r) = key.secrets();
        assert_eq!(hex(encrypt), "afd9918d07af99c41fe53ea3e2602702a2cc0f1d68f2c224f4f4bdff8a4bea38");
        assert_eq!(hex(k), "e522565c84ab5b1070e2da80cfd4ef48");
        assert_eq!(hex(r), "e369ce349fb98016146594b711346c99");
    }

    #[test]
    fn the_master_key_is_written_as_the_known_json() {
        let json = String::from_utf8(master_json(&fixed_key()).expect("encodes").to_vec()).expect("text");
        assert_eq!(
            json,
            r#"{"mac":{"k":"ICEiIyQlJicoKSorLC0uLw==","r":"MDEyMzQ1Njc4OTo7PD0+Pw=="},"encrypt":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}"#
        );
    }

    #[test]
    fn an_excessive_cost_is_rejected_before_any_allocation() {
        let too_much_memory = [(1 << 40, 8, 1), (1 << 20, 1 << 20, 1), (2, 1 << 19, 128), (2, 1 << 13, 2)];
        let too_much_time = [(1024, 8, 1 << 30), (1 << 17, 8, 9), (u64::MAX, u32::MAX, u32::MAX)];
        let nonsense = [(1000, 8, 1), (0, 8, 1), (1, 8, 1), (1024, 0, 1), (1024, 8, 0)];
        for (n, r, p) in too_much_memory.into_iter().chain(too_much_time).chain(nonsense) {
            assert!(matches!(file(n, r, p).user_key(b"x"), Err(KeyError::Malformed(_))), "{n}/{r}/{p}");
        }
    }

    #[test]
    fn the_cost_of_restic_and_some_multiples_are_allowed() {
        for (n, r, p) in [(1 << 14, 8, 1), (1 << 15, 8, 6), (1 << 15, 8, 32), (1 << 17, 8, 8), (1 << 16, 16, 8)] {
            assert!(file(n, r, p).cost().is_ok(), "{n}/{r}/{p}");
        }
    }

    #[test]
    fn only_the_right_password_opens() {
        let created =
            KeyFile::create_with_cost(&fixed_key(), b"right", String::new(), String::new(), 4).expect("created");
        let parsed = KeyFile::parse(&created.encode().expect("encodes")).expect("parses");
        assert_eq!(parsed.unlock(b"right").expect("opens").secrets(), fixed_key().secrets());
        assert_eq!(parsed.unlock(b"wrong").expect_err("stays closed"), KeyError::WrongPassword);
    }
}
