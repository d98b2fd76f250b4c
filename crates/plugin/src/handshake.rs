//! The one line with which a plugin says where it listens.

use std::path::PathBuf;

use crate::text::bounded;
use crate::{Error, Result};

/// A plugin that is started without this in its environment says so to its user and ends.
pub(crate) const COOKIE: (&str, &str) = ("VELERO_PLUGIN", "hello");
/// The version of the protocol between the two programs, as Velero counts.
pub(crate) const PROTOCOL: &str = "2";
/// The version of the handshake itself.
const CORE: &str = "1";
/// No handshake is longer.
pub(crate) const LONGEST_LINE: usize = 4096;
/// How much of a wrong one is shown.
const SHOWN: usize = 120;

/// Reads `core|protocol|network|address|transport|certificate|…`; further fields are for later versions.
pub(crate) fn parse(plugin: &str, line: &[u8]) -> Result<PathBuf> {
    let text = String::from_utf8_lossy(line);
    let fields: Vec<&str> = text.trim().split('|').collect();
    let [core, protocol, network, address, transport, rest @ ..] = fields.as_slice() else {
        return Err(Error::HandshakeInvalid { plugin: plugin.to_owned(), line: bounded(&text, SHOWN) });
    };
    if core.parse::<u32>().is_err() || protocol.parse::<u32>().is_err() {
        return Err(Error::HandshakeInvalid { plugin: plugin.to_owned(), line: bounded(&text, SHOWN) });
    }
    let misfit = misfit(core, protocol, network, transport, rest);
    match misfit {
        Some(what) => Err(Error::Incompatible { plugin: plugin.to_owned(), what }),
        None => Ok(PathBuf::from(address)),
    }
}

fn misfit(core: &str, protocol: &str, network: &str, transport: &str, rest: &[&str]) -> Option<String> {
    let shown = |text: &str| bounded(text, SHOWN);
    if core != CORE {
        return Some(format!("its handshake has version {}, this server knows {CORE}", shown(core)));
    }
    if protocol != PROTOCOL {
        return Some(format!("it speaks plugin protocol {}, this server {PROTOCOL}", shown(protocol)));
    }
    if network != "unix" {
        return Some(format!("it listens on a {:?} socket, only unix sockets are used", shown(network)));
    }
    if transport != "grpc" {
        return Some(format!("it speaks {:?}, not grpc", shown(transport)));
    }
    let certificate = rest.first().is_some_and(|field| !field.is_empty());
    certificate.then(|| "it insists on TLS, which was not offered".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        parse("x", line.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_handshake_names_the_socket_with_fields_of_later_versions_ignored() {
        for line in ["1|2|unix|/tmp/s|grpc|\n", "1|2|unix|/tmp/s|grpc", "1|2|unix|/tmp/s|grpc||true|more"] {
            assert_eq!(parse("x", line.as_bytes()).unwrap(), PathBuf::from("/tmp/s"));
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let cases = [
            ("2|2|unix|/s|grpc|", "plugin x is not compatible: its handshake has version 2, this server knows 1"),
            ("1|1|unix|/s|grpc|", "plugin x is not compatible: it speaks plugin protocol 1, this server 2"),
            (
                "1|2|tcp|1.2.3.4:5|grpc|",
                "plugin x is not compatible: it listens on a \"tcp\" socket, only unix sockets are used",
            ),
            ("1|2|unix|/s|netrpc|", "plugin x is not compatible: it speaks \"netrpc\", not grpc"),
            ("1|2|unix|/s|grpc|MIIB", "plugin x is not compatible: it insists on TLS, which was not offered"),
        ];
        for (line, expected) in cases {
            assert_eq!(refused(line), expected);
        }
    }

    #[test]
    fn anything_else_is_no_handshake_and_shown_without_its_escapes() {
        let said = refused("Hello \u{1b}[31mworld");
        assert_eq!(
            said,
            "plugin x wrote \"Hello  [31mworld\" where its handshake belongs: nothing else may go to standard output"
        );
        assert!(refused("a|b|unix|/s|grpc|").contains("where its handshake belongs"));
        assert!(refused(&"x".repeat(9999)).len() < 300);
    }
}
