//! Volumes that are files written by the node: configMap, secret, downwardAPI and projected.
//!
//! ```text
//!  <volume>/..2024_05_01_10_00_00.000000001/deep/colour     what is there
//!  <volume>/..data -> ..2024_05_01_10_00_00.000000001       replaced by a rename, so that all files change at once
//!  <volume>/deep -> ..data/deep                             what the container names
//! ```

use super::{
    downward_api,
    pod::items,
    reference::{Contents, Referent},
    unavailable::Unavailable,
};
use crate::{
    Core,
    object::text,
    token::{AUDIENCE, TokenRequest},
};
use jiff::Timestamp;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, Permissions},
    io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

const DEFAULT_MODE: u32 = 0o644;
const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
/// What Kubernetes gives a token without `expirationSeconds`, and the least that may be asked for.
const DEFAULT_EXPIRATION: i64 = 3600;
const MIN_EXPIRATION: i64 = 600;

/// The files of a volume, by their path in it.
pub(super) type Payload = BTreeMap<String, File>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    content: Vec<u8>,
    mode: u32,
}

/// The kubelet's name for the plugin of such a volume; none for other volumes.
pub(super) fn plugin(kind: &str) -> Option<&'static str> {
    match kind {
        "configMap" => Some("configmap"),
        "secret" => Some("secret"),
        "downwardAPI" => Some("downward-api"),
        "projected" => Some("projected"),
        _ => None,
    }
}

/// What a volume is made from.
pub(super) struct Sources<'a> {
    pub core: &'a Core,
    pub pod: &'a Value,
    /// Where the volume lies. A token there is kept until it has to be replaced.
    pub directory: &'a Path,
}

impl Sources<'_> {
    /// The files of a volume of one of the kinds that have a [`plugin`].
    pub fn collect(&self, kind: &str, volume: &Value) -> Result<Payload, Unavailable> {
        let mode = mode(&volume["defaultMode"], DEFAULT_MODE)?;
        let payload =
            if kind == "projected" { self.projected(volume, mode)? } else { self.source(kind, volume, mode)? };
        match payload.keys().find(|path| !leads_inside(path)) {
            Some(path) => Err(Unavailable::Unsupported(format!("path \"{path}\" must lead into the volume"))),
            None => Ok(payload),
        }
    }

    /// All sources together. Everything that is missing is named.
    fn projected(&self, volume: &Value, mode: u32) -> Result<Payload, Unavailable> {
        let (mut payload, mut missing) = (Payload::new(), Vec::new());
        for source in items(volume, "/sources") {
            let kind = source.as_object().into_iter().flatten().find(|(_, value)| !value.is_null());
            let Some((kind, of)) = kind else { continue };
            let collected = match kind.as_str() {
                "serviceAccountToken" => self.token(of, mode),
                "configMap" | "secret" | "downwardAPI" => self.source(kind, of, mode),
                other => Err(Unavailable::Unsupported(format!("the local node has no {other} source"))),
            };
            match collected {
                Ok(files) => payload.extend(files),
                Err(Unavailable::Missing(message)) => missing.push(message),
                Err(unsupported) => return Err(unsupported),
            }
        }
        match missing.as_slice() {
            [] => Ok(payload),
            [one] => Err(Unavailable::Missing(one.clone())),
            many => Err(Unavailable::Missing(format!("[{}]", many.join(", ")))),
        }
    }

    fn source(&self, kind: &str, of: &Value, mode: u32) -> Result<Payload, Unavailable> {
        let referent = match kind {
            "configMap" => Referent::ConfigMap,
            "secret" => Referent::Secret,
            _ => return self.downward(of, mode),
        };
        // Secrets are named differently in a volume and in a source of a projected one.
        let name = ["/secretName", "/name"].into_iter().map(|field| text(of, field)).find(|name| !name.is_empty());
        let contents = referent.read(self.core, self.pod, name.unwrap_or_default(), of["optional"] == true)?;
        contents.map_or_else(|| Ok(Payload::new()), |contents| chosen_keys(contents, referent, of, mode))
    }

    fn downward(&self, of: &Value, mode: u32) -> Result<Payload, Unavailable> {
        let file = |item: &Value| -> Result<(String, File), Unavailable> {
            let content = match (item.get("fieldRef"), item.get("resourceFieldRef")) {
                (Some(field), _) if !field.is_null() => {
                    downward_api::field_for_file(self.pod, text(field, "/fieldPath"))?
                }
                (_, Some(resource)) => downward_api::resource(self.pod, None, resource)?,
                _ => return Err(Unavailable::Unsupported(format!("downwardAPI item {item} refers to nothing"))),
            };
            let mode = self::mode(&item["mode"], mode)?;
            Ok((text(item, "/path").to_owned(), File { content: content.into_bytes(), mode }))
        };
        items(of, "/items").map(file).collect()
    }

    /// A token of the pod's service account: the one that is there, or a new one when it is time for that.
    fn token(&self, of: &Value, mode: u32) -> Result<Payload, Unavailable> {
        let seconds = of["expirationSeconds"].as_i64().unwrap_or(DEFAULT_EXPIRATION);
        if seconds < MIN_EXPIRATION {
            let message = format!("expirationSeconds {seconds} is less than 10 minutes");
            return Err(Unavailable::Unsupported(message));
        }
        let (path, name) = (text(of, "/path"), downward_api::service_account(self.pod));
        let account = self.core.read("serviceaccounts", text(self.pod, "/metadata/namespace"), name)?;
        let account = account.ok_or_else(|| {
            Unavailable::Missing(format!("failed to fetch token: serviceaccounts \"{name}\" not found"))
        })?;
        let audience = Some(text(of, "/audience")).filter(|given| !given.is_empty()).unwrap_or(AUDIENCE);
        let request = TokenRequest { pod: self.pod, account: &account, audience, seconds };
        let (tokens, now) = (&self.core.tokens, Timestamp::now());
        let there = if leads_inside(path) { fs::read_to_string(self.directory.join(path)).ok() } else { None };
        let token = there.filter(|token| tokens.is_fresh(token, &request, now));
        let token = token.unwrap_or_else(|| tokens.issue(&request, now));
        Ok(Payload::from([(path.to_owned(), File { content: token.into_bytes(), mode })]))
    }
}

/// The keys that are listed, at the paths that are listed; without a list all of them.
fn chosen_keys(contents: Contents, referent: Referent, of: &Value, mode: u32) -> Result<Payload, Unavailable> {
    let mut listed = items(of, "/items").peekable();
    if listed.peek().is_none() {
        return Ok(contents.into_iter().map(|(key, content)| (key, File { content, mode })).collect());
    }
    let mut payload = Payload::new();
    for item in listed {
        let key = text(item, "/key");
        match contents.get(key) {
            Some(content) => {
                let file = File { content: content.clone(), mode: self::mode(&item["mode"], mode)? };
                payload.insert(text(item, "/path").to_owned(), file);
            }
            None if of["optional"] == true => {}
            None if referent == Referent::ConfigMap => {
                return Err(Unavailable::Missing(format!("configmap references non-existent config key: {key}")));
            }
            None => return Err(Unavailable::Missing(format!("references non-existent secret key: {key}"))),
        }
    }
    Ok(payload)
}

/// The mode of a file, if it is one.
fn mode(given: &Value, default: u32) -> Result<u32, Unavailable> {
    if given.is_null() {
        return Ok(default);
    }
    let mode = given.as_u64().and_then(|mode| u32::try_from(mode).ok()).filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| Unavailable::Unsupported(format!("mode {given} is not between 0 and 0777")))
}

/// Whether a path stays in its volume, and out of the way of the names that the node needs there.
fn leads_inside(path: &str) -> bool {
    let is_named = |part: Component<'_>| matches!(part, Component::Normal(_));
    !path.is_empty() && !path.starts_with("..") && Path::new(path).components().all(is_named)
}

/// Brings the files of a volume up to date, all of them at once; does nothing if they are.
pub(super) fn write(directory: &Path, payload: &Payload) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let there = read(&directory.join(DATA), "").ok();
    if there.as_ref() != Some(payload) {
        let new = format!("..{}", Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S.%9f"));
        write_files(&directory.join(&new), payload)?;
        let link = directory.join(NEW_DATA);
        remove(&link)?;
        symlink(new, &link)?;
        fs::rename(link, directory.join(DATA))?;
    }
    link_names(directory, payload)
}

/// The files below a directory.
fn read(directory: &Path, prefix: &str) -> io::Result<Payload> {
    let mut payload = Payload::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (metadata, name) = (entry.metadata()?, format!("{prefix}{}", entry.file_name().to_string_lossy()));
        if metadata.is_dir() {
            payload.extend(read(&entry.path(), &format!("{name}/"))?);
        } else {
            let mode = metadata.permissions().mode() & 0o7777;
            payload.insert(name, File { content: fs::read(entry.path())?, mode });
        }
    }
    Ok(payload)
}

fn write_files(directory: &Path, payload: &Payload) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (path, File { content, mode }) in payload {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap_or(directory))?;
        fs::write(&path, content)?;
        fs::set_permissions(&path, Permissions::from_mode(*mode))?;
    }
    Ok(())
}

/// Makes the names that a container sees, and removes everything else that earlier writes have left.
fn link_names(directory: &Path, payload: &Payload) -> io::Result<()> {
    let first = |path: &String| Path::new(path).components().next().map(|part| PathBuf::from(part.as_os_str()));
    let names: BTreeSet<PathBuf> = payload.keys().filter_map(first).collect();
    for name in &names {
        let (link, target) = (directory.join(name), Path::new(DATA).join(name));
        if fs::read_link(&link).ok().as_ref() != Some(&target) {
            remove(&link)?;
            symlink(target, link)?;
        }
    }
    let current = fs::read_link(directory.join(DATA))?;
    for entry in fs::read_dir(directory)? {
        let name = PathBuf::from(entry?.file_name());
        if !names.contains(&name) && name != current && name != Path::new(DATA) {
            remove(&directory.join(name))?;
        }
    }
    Ok(())
}

/// Removes a file, a link or a directory, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str, u32)]) -> Payload {
        let file = |(path, content, mode): &(&str, &str, u32)| {
            ((*path).to_owned(), File { content: content.as_bytes().to_vec(), mode: *mode })
        };
        files.iter().map(file).collect()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_replaced_together_and_what_is_gone_goes() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("volume");
        let before = payload(&[("a", "1", 0o400), ("deep/b", "2", 0o644), ("deep/c", "3", 0o644)]);
        write(&directory, &before).unwrap();
        assert_eq!(names(&directory)[1..], ["..data", "a", "deep"]);
        assert_eq!(fs::read_to_string(directory.join("deep/b")).unwrap(), "2");
        let first = fs::read_link(directory.join(DATA)).unwrap();
        assert_eq!(read(&directory.join(&first), "").unwrap(), before);

        write(&directory, &before).unwrap();
        assert_eq!(fs::read_link(directory.join(DATA)).unwrap(), first, "what is up to date is not written again");
        // A mode alone is a change, too.
        let after = payload(&[("a", "1", 0o440), ("e", "5", 0o644)]);
        write(&directory, &after).unwrap();
        let second = fs::read_link(directory.join(DATA)).unwrap();
        assert_eq!(names(&directory), [second.to_str().unwrap(), "..data", "a", "e"]);
        assert_eq!(read(&directory.join(&second), "").unwrap(), after);
        write(&directory, &Payload::new()).unwrap();
        assert_eq!(names(&directory)[1..], ["..data"]);
    }

    #[test]
    fn a_write_that_was_cut_off_and_plain_files_do_no_harm() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a"), "plain").unwrap();
        fs::create_dir_all(place.path().join("deep/old")).unwrap();
        fs::create_dir_all(place.path().join("..half-written")).unwrap();
        symlink("..nowhere", place.path().join(NEW_DATA)).unwrap();
        symlink("..nowhere", place.path().join(DATA)).unwrap();
        write(place.path(), &payload(&[("a", "1", 0o644), ("deep/b", "2", 0o644)])).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(place.path().join("deep/b")).unwrap(), "2");
        assert_eq!(names(place.path())[1..], ["..data", "a", "deep"]);
    }

    #[test]
    fn paths_lead_into_the_volume_or_are_refused() {
        for good in ["a", "a/b", "a..b", ".hidden", "a/..b"] {
            assert!(leads_inside(good), "{good}");
        }
        for bad in ["", "/a", "..", "../a", "a/../../b", "..data", "a/.."] {
            assert!(!leads_inside(bad), "{bad}");
        }
    }
}
