//! URL functions: parse and join.

use super::super::eval_error::EvalError;
use super::super::functions::Function;
use super::super::scope::Scope;
use super::super::value::{Map, Type, Value};
use super::text;

pub(super) const FUNCTIONS: &[Function] =
    &[Function { name: "urlParse", takes: "s", run: parse }, Function { name: "urlJoin", takes: "m", run: join }];

fn parse(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let whole = text(&values[0]);
    if whole.contains(|character: char| character.is_ascii_control()) {
        return Err(EvalError::new("unable to parse url: invalid control character in URL"));
    }
    let (rest, fragment) = whole.split_once('#').unwrap_or((&whole, ""));
    let (scheme, rest) = scheme(rest)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let opaque = if !scheme.is_empty() && !rest.starts_with('/') { path } else { "" };
    let path = if opaque.is_empty() { path } else { "" };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let map = scope.map(Type::Any);
    let parts = [
        ("scheme", scheme.to_ascii_lowercase()),
        ("host", unescaped(host)?),
        ("hostname", hostname(host).to_owned()),
        ("path", unescaped(path)?),
        ("query", query.to_owned()),
        ("opaque", opaque.to_owned()),
        ("fragment", unescaped(fragment)?),
        ("userinfo", user.to_owned()),
    ];
    for (key, part) in parts {
        let part = scope.text(part)?;
        map.insert(key, part);
    }
    Ok(Value::Map(map))
}

fn scheme(url: &str) -> Result<(&str, &str), EvalError> {
    let end = url.find(|next: char| !(next.is_ascii_alphanumeric() || "+-.".contains(next)));
    match end {
        Some(end) if url[end..].starts_with(':') => {
            if end == 0 {
                return Err(EvalError::new("unable to parse url: missing protocol scheme"));
            }
            let begins = url.starts_with(|first: char| first.is_ascii_alphabetic());
            if begins {
                Ok((&url[..end], &url[end + 1..]))
            } else {
                Err(EvalError::new("unable to parse url: first path segment in URL cannot contain colon"))
            }
        }
        _ => Ok(("", url)),
    }
}

fn hostname(host: &str) -> &str {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

fn unescaped(text: &str) -> Result<String, EvalError> {
    let wrong = || EvalError::new("unable to parse url: invalid URL escape");
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'%' {
            let digits = text.get(at + 1..at + 3).ok_or_else(wrong)?;
            out.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
            at += 3;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn join(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let Value::Map(parts) = &values[0] else { return Err(EvalError::new("a URL is joined from a map")) };
    let [scheme, host, path] = [part(parts, "scheme")?, part(parts, "host")?, part(parts, "path")?];
    let [query, opaque, fragment] = [part(parts, "query")?, part(parts, "opaque")?, part(parts, "fragment")?];
    let user = part(parts, "userinfo")?;
    let mut url = String::new();
    if !scheme.is_empty() {
        url.push_str(&format!("{scheme}:"));
    }
    if opaque.is_empty() {
        if !scheme.is_empty() || !host.is_empty() || !user.is_empty() {
            let at = if user.is_empty() { "" } else { "@" };
            if !host.is_empty() || !path.is_empty() || !user.is_empty() {
                url.push_str(&format!("//{user}{at}{host}"));
            }
        }
        if !path.is_empty() && !path.starts_with('/') && !host.is_empty() {
            url.push('/');
        }
        url.push_str(&escaped(&path));
    } else {
        url.push_str(&opaque);
    }
    if !query.is_empty() {
        url.push_str(&format!("?{query}"));
    }
    if !fragment.is_empty() {
        url.push_str(&format!("#{}", escaped(&fragment)));
    }
    scope.text(url)
}

fn part(parts: &Map, key: &str) -> Result<String, EvalError> {
    match parts.get(key) {
        None => Ok(String::new()),
        Some(Value::Text(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Some(other) => Err(EvalError::new(format!(
            "unable to parse {key} key, must be of type string, but {} found",
            other.type_name()
        ))),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
