//! The go-plugin handshake: one line with the address of the plugin.

use std::path::PathBuf;

use crate::sanitize::sanitize_to;
use crate::{Error, Result};

/// The magic cookie: a plugin started without it prints a message for the user and exits.
pub(crate) const MAGIC_COOKIE: (&str, &str) = ("VELERO_PLUGIN", "hello");
/// The protocol version of Velero's plugins.
pub(crate) const PROTOCOL_VERSION: &str = "2";
/// The core protocol version of go-plugin.
const CORE_PROTOCOL_VERSION: &str = "1";
/// Maximum length of a handshake.
pub(crate) const MAX_HANDSHAKE_LENGTH: usize = 4096;
/// Length of an invalid handshake in an error.
const MAX_SHOWN_LENGTH: usize = 120;

/// Parses `core|protocol|network|address|transport|certificate|…`; further fields are ignored.
pub(crate) fn parse(plugin: &str, line: &[u8]) -> Result<PathBuf> {
    let text = String::from_utf8_lossy(line);
    let fields: Vec<&str> = text.trim().split('|').collect();
    let [core, protocol, network, address, transport, rest @ ..] = fields.as_slice() else {
        return Err(Error::HandshakeInvalid { plugin: plugin.to_owned(), line: sanitize_to(&text, MAX_SHOWN_LENGTH) });
    };
    if core.parse::<u32>().is_err() || protocol.parse::<u32>().is_err() {
        return Err(Error::HandshakeInvalid { plugin: plugin.to_owned(), line: sanitize_to(&text, MAX_SHOWN_LENGTH) });
    }
    match incompatibility(core, protocol, network, transport, rest) {
        Some(what) => Err(Error::Incompatible { plugin: plugin.to_owned(), what }),
        None => Ok(PathBuf::from(address)),
    }
}

fn incompatibility(core: &str, protocol: &str, network: &str, transport: &str, rest: &[&str]) -> Option<String> {
    let shown = |text: &str| sanitize_to(text, MAX_SHOWN_LENGTH);
    if core != CORE_PROTOCOL_VERSION {
        return Some(format!("core protocol version {}, expected {CORE_PROTOCOL_VERSION}", shown(core)));
    }
    if protocol != PROTOCOL_VERSION {
        return Some(format!("plugin protocol version {}, expected {PROTOCOL_VERSION}", shown(protocol)));
    }
    if network != "unix" {
        return Some(format!("network {:?}, expected unix", shown(network)));
    }
    if transport != "grpc" {
        return Some(format!("transport {:?}, expected grpc", shown(transport)));
    }
    let certificate = rest.first().is_some_and(|field| !field.is_empty());
    certificate.then(|| "TLS is not supported".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(line: &str) -> String {
        parse("x", line.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_handshake_has_the_socket_and_unknown_fields_are_ignored() {
        for line in ["1|2|unix|/tmp/s|grpc|\n", "1|2|unix|/tmp/s|grpc", "1|2|unix|/tmp/s|grpc||true|more"] {
            assert_eq!(parse("x", line.as_bytes()).unwrap(), PathBuf::from("/tmp/s"));
        }
    }

    #[test]
    fn incompatible_handshakes_are_errors() {
        let cases = [
            ("2|2|unix|/s|grpc|", "incompatible plugin x: core protocol version 2, expected 1"),
            ("1|1|unix|/s|grpc|", "incompatible plugin x: plugin protocol version 1, expected 2"),
            ("1|2|tcp|1.2.3.4:5|grpc|", "incompatible plugin x: network \"tcp\", expected unix"),
            ("1|2|unix|/s|netrpc|", "incompatible plugin x: transport \"netrpc\", expected grpc"),
            ("1|2|unix|/s|grpc|MIIB", "incompatible plugin x: TLS is not supported"),
        ];
        for (line, expected) in cases {
            assert_eq!(parse_error(line), expected);
        }
    }

    #[test]
    fn other_output_is_an_error_and_shown_without_escapes() {
        let error = parse_error("Hello \u{1b}[31mworld");
        assert_eq!(
            error,
            "invalid handshake of plugin x: \"Hello  [31mworld\"; a plugin must not write anything else to standard output"
        );
        assert!(parse_error("a|b|unix|/s|grpc|").contains("invalid handshake"));
        assert!(parse_error(&"x".repeat(9999)).len() < 300);
    }
}
