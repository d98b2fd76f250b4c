//! The `config` file: version, name and chunker polynomial of a repository.

use serde::{Deserialize, Serialize};

use super::id::Id;
use super::polynomial::Polynomial;

/// The config of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// 1 or 2.
    pub version: u32,
    /// The random ID of the repository.
    pub id: Id,
    /// The polynomial of the chunker.
    pub polynomial: Polynomial,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    version: u32,
    id: Id,
    chunker_polynomial: String,
}

impl Config {
    /// Creates the config of a new repository of version 2.
    pub fn generate() -> Self {
        Self { version: 2, id: Id::random(), polynomial: Polynomial::random() }
    }

    /// A placeholder for an unreadable config. Stored data can be read without it; nothing can be added.
    pub fn unknown() -> Self {
        Self { version: 0, id: Id::default(), polynomial: Polynomial::random() }
    }

    /// Parses the decrypted file. The error is what is wrong with it.
    pub fn parse(plain: &[u8]) -> Result<Self, String> {
        let wire: Wire = serde_json::from_slice(plain).map_err(|error| error.to_string())?;
        if !(1..=2).contains(&wire.version) {
            return Err(format!("unknown repository version {}", wire.version));
        }
        let bits = u64::from_str_radix(&wire.chunker_polynomial, 16).map_err(|error| error.to_string())?;
        let polynomial = Polynomial::new(bits).ok_or("the chunker polynomial is not irreducible")?;
        Ok(Self { version: wire.version, id: wire.id, polynomial })
    }

    /// The plain bytes to encrypt.
    pub fn encode(&self) -> Vec<u8> {
        let polynomial = self.polynomial.bits();
        format!(r#"{{"version":{},"id":"{}","chunker_polynomial":"{polynomial:x}"}}"#, self.version, self.id).into()
    }
}
