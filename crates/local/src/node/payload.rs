//! Volumes that are files written by the node: configMap, secret, downwardAPI and projected.
//!
//! ```text
//!  <volume>/..2024_05_01_10_00_00.000000001/deep/colour     the file
//!  <volume>/..data -> ..2024_05_01_10_00_00.000000001       replaced by a rename, so that all files change atomically
//!  <volume>/deep -> ..data/deep                             the path in the container
//! ```

use super::{
    config_source::{ConfigData, ConfigSource},
    downward_api,
    pod::items,
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
const DATA_LINK: &str = "..data";
const NEW_DATA_LINK: &str = "..data_tmp";
/// Lifetime of a token without `expirationSeconds`, and the minimum, as in Kubernetes.
const DEFAULT_EXPIRATION: i64 = 3600;
const MIN_EXPIRATION: i64 = 600;

/// The files of a volume, by their path in it.
pub(super) type Payload = BTreeMap<String, FileProjection>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileProjection {
    content: Vec<u8>,
    mode: u32,
}

/// The kubelet's name of the volume plugin; `None` for other volumes.
pub(super) fn plugin_name(kind: &str) -> Option<&'static str> {
    match kind {
        "configMap" => Some("configmap"),
        "secret" => Some("secret"),
        "downwardAPI" => Some("downward-api"),
        "projected" => Some("projected"),
        _ => None,
    }
}

/// Collects the files of a volume from their sources.
pub(super) struct PayloadBuilder<'a> {
    pub core: &'a Core,
    pub pod: &'a Value,
    /// The directory of the volume. A token in it is reused until it has to be replaced.
    pub directory: &'a Path,
}

impl PayloadBuilder<'_> {
    /// The files of a volume of one of the kinds that have a [`plugin_name`].
    pub fn collect(&self, kind: &str, volume: &Value) -> Result<Payload, Unavailable> {
        let mode = mode(&volume["defaultMode"], DEFAULT_MODE)?;
        let payload =
            if kind == "projected" { self.projected(volume, mode)? } else { self.collect_source(kind, volume, mode)? };
        match payload.keys().find(|path| !is_confined(path)) {
            Some(path) => Err(Unavailable::Unsupported(format!("path \"{path}\" must be inside the volume"))),
            None => Ok(payload),
        }
    }

    /// The files of all sources. The error names everything that is missing.
    fn projected(&self, volume: &Value, mode: u32) -> Result<Payload, Unavailable> {
        let (mut payload, mut missing) = (Payload::new(), Vec::new());
        for source in items(volume, "/sources") {
            let kind = source.as_object().into_iter().flatten().find(|(_, value)| !value.is_null());
            let Some((kind, source)) = kind else { continue };
            let collected = match kind.as_str() {
                "serviceAccountToken" => self.token(source, mode),
                "configMap" | "secret" | "downwardAPI" => self.collect_source(kind, source, mode),
                other => Err(Unavailable::Unsupported(format!("the embedded node does not support {other} sources"))),
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

    fn collect_source(&self, kind: &str, source: &Value, mode: u32) -> Result<Payload, Unavailable> {
        let referent = match kind {
            "configMap" => ConfigSource::ConfigMap,
            "secret" => ConfigSource::Secret,
            _ => return self.downward(source, mode),
        };
        // The name of a secret has another field in a volume than in a projected source.
        let name = ["/secretName", "/name"].into_iter().map(|field| text(source, field)).find(|name| !name.is_empty());
        let contents = referent.read(self.core, self.pod, name.unwrap_or_default(), source["optional"] == true)?;
        contents.map_or_else(|| Ok(Payload::new()), |contents| project_keys(contents, referent, source, mode))
    }

    fn downward(&self, source: &Value, mode: u32) -> Result<Payload, Unavailable> {
        let file = |item: &Value| -> Result<(String, FileProjection), Unavailable> {
            let content = match (item.get("fieldRef"), item.get("resourceFieldRef")) {
                (Some(field), _) if !field.is_null() => {
                    downward_api::field_for_file(self.pod, text(field, "/fieldPath"))?
                }
                (_, Some(resource)) => downward_api::resource(self.pod, None, resource)?,
                _ => {
                    return Err(Unavailable::Unsupported(format!(
                        "downwardAPI item {item} has neither fieldRef nor resourceFieldRef"
                    )));
                }
            };
            let mode = self::mode(&item["mode"], mode)?;
            Ok((text(item, "/path").to_owned(), FileProjection { content: content.into_bytes(), mode }))
        };
        items(source, "/items").map(file).collect()
    }

    /// A token of the service account of the pod: the existing one, or a new one when it has to be replaced.
    fn token(&self, source: &Value, mode: u32) -> Result<Payload, Unavailable> {
        let seconds = source["expirationSeconds"].as_i64().unwrap_or(DEFAULT_EXPIRATION);
        if seconds < MIN_EXPIRATION {
            let message = format!("expirationSeconds {seconds} is less than 10 minutes");
            return Err(Unavailable::Unsupported(message));
        }
        let (path, name) = (text(source, "/path"), downward_api::service_account(self.pod));
        let account = self.core.read_object("serviceaccounts", text(self.pod, "/metadata/namespace"), name)?;
        let account = account.ok_or_else(|| {
            Unavailable::Missing(format!("failed to fetch token: serviceaccounts \"{name}\" not found"))
        })?;
        let audience = Some(text(source, "/audience")).filter(|given| !given.is_empty()).unwrap_or(AUDIENCE);
        let request = TokenRequest { pod: self.pod, account: &account, audience, seconds };
        let (tokens, now) = (&self.core.tokens, Timestamp::now());
        let existing = if is_confined(path) { fs::read_to_string(self.directory.join(path)).ok() } else { None };
        let token = existing.filter(|token| tokens.is_fresh(token, &request, now));
        let token = token.unwrap_or_else(|| tokens.issue(&request, now));
        Ok(Payload::from([(path.to_owned(), FileProjection { content: token.into_bytes(), mode })]))
    }
}

/// The listed keys at their paths; without a list all keys.
fn project_keys(
    contents: ConfigData,
    referent: ConfigSource,
    source: &Value,
    mode: u32,
) -> Result<Payload, Unavailable> {
    let mut listed = items(source, "/items").peekable();
    if listed.peek().is_none() {
        return Ok(contents.into_iter().map(|(key, content)| (key, FileProjection { content, mode })).collect());
    }
    let mut payload = Payload::new();
    for item in listed {
        let key = text(item, "/key");
        match contents.get(key) {
            Some(content) => {
                let file = FileProjection { content: content.clone(), mode: self::mode(&item["mode"], mode)? };
                payload.insert(text(item, "/path").to_owned(), file);
            }
            None if source["optional"] == true => {}
            None if referent == ConfigSource::ConfigMap => {
                return Err(Unavailable::Missing(format!("configmap references non-existent config key: {key}")));
            }
            None => return Err(Unavailable::Missing(format!("references non-existent secret key: {key}"))),
        }
    }
    Ok(payload)
}

/// Parses the mode of a file.
fn mode(given: &Value, default: u32) -> Result<u32, Unavailable> {
    if given.is_null() {
        return Ok(default);
    }
    let mode = given.as_u64().and_then(|mode| u32::try_from(mode).ok()).filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| Unavailable::Unsupported(format!("mode {given} is not between 0 and 0777")))
}

/// Whether a path stays inside its volume and does not collide with the names that the node uses there.
fn is_confined(path: &str) -> bool {
    let is_named = |part: Component<'_>| matches!(part, Component::Normal(_));
    !path.is_empty() && !path.starts_with("..") && Path::new(path).components().all(is_named)
}

/// Updates the files of a volume atomically; does nothing if they are up to date.
pub(super) fn write(directory: &Path, payload: &Payload) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let existing = read(&directory.join(DATA_LINK), "").ok();
    if existing.as_ref() != Some(payload) {
        let new = format!("..{}", Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S.%9f"));
        write_files(&directory.join(&new), payload)?;
        let link = directory.join(NEW_DATA_LINK);
        remove_path(&link)?;
        symlink(new, &link)?;
        fs::rename(link, directory.join(DATA_LINK))?;
    }
    update_links(directory, payload)
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
            payload.insert(name, FileProjection { content: fs::read(entry.path())?, mode });
        }
    }
    Ok(payload)
}

fn write_files(directory: &Path, payload: &Payload) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (path, FileProjection { content, mode }) in payload {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap_or(directory))?;
        fs::write(&path, content)?;
        fs::set_permissions(&path, Permissions::from_mode(*mode))?;
    }
    Ok(())
}

/// Creates the links that a container sees, and removes what earlier writes have left.
fn update_links(directory: &Path, payload: &Payload) -> io::Result<()> {
    let first = |path: &String| Path::new(path).components().next().map(|part| PathBuf::from(part.as_os_str()));
    let names: BTreeSet<PathBuf> = payload.keys().filter_map(first).collect();
    for name in &names {
        let (link, target) = (directory.join(name), Path::new(DATA_LINK).join(name));
        if fs::read_link(&link).ok().as_ref() != Some(&target) {
            remove_path(&link)?;
            symlink(target, link)?;
        }
    }
    let current = fs::read_link(directory.join(DATA_LINK))?;
    for entry in fs::read_dir(directory)? {
        let name = PathBuf::from(entry?.file_name());
        if !names.contains(&name) && name != current && name != Path::new(DATA_LINK) {
            remove_path(&directory.join(name))?;
        }
    }
    Ok(())
}

/// Removes a file, link or directory, if it exists.
fn remove_path(path: &Path) -> io::Result<()> {
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
            ((*path).to_owned(), FileProjection { content: content.as_bytes().to_vec(), mode: *mode })
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
    fn files_are_replaced_atomically_and_removed_files_disappear() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("volume");
        let before = payload(&[("a", "1", 0o400), ("deep/b", "2", 0o644), ("deep/c", "3", 0o644)]);
        write(&directory, &before).unwrap();
        assert_eq!(names(&directory)[1..], ["..data", "a", "deep"]);
        assert_eq!(fs::read_to_string(directory.join("deep/b")).unwrap(), "2");
        let first = fs::read_link(directory.join(DATA_LINK)).unwrap();
        assert_eq!(read(&directory.join(&first), "").unwrap(), before);

        write(&directory, &before).unwrap();
        assert_eq!(fs::read_link(directory.join(DATA_LINK)).unwrap(), first, "what is up to date is not written again");
        // A mode alone is a change, too.
        let after = payload(&[("a", "1", 0o440), ("e", "5", 0o644)]);
        write(&directory, &after).unwrap();
        let second = fs::read_link(directory.join(DATA_LINK)).unwrap();
        assert_eq!(names(&directory), [second.to_str().unwrap(), "..data", "a", "e"]);
        assert_eq!(read(&directory.join(&second), "").unwrap(), after);
        write(&directory, &Payload::new()).unwrap();
        assert_eq!(names(&directory)[1..], ["..data"]);
    }

    #[test]
    fn an_interrupted_write_and_plain_files_are_replaced() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a"), "plain").unwrap();
        fs::create_dir_all(place.path().join("deep/old")).unwrap();
        fs::create_dir_all(place.path().join("..half-written")).unwrap();
        symlink("..nowhere", place.path().join(NEW_DATA_LINK)).unwrap();
        symlink("..nowhere", place.path().join(DATA_LINK)).unwrap();
        write(place.path(), &payload(&[("a", "1", 0o644), ("deep/b", "2", 0o644)])).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(place.path().join("deep/b")).unwrap(), "2");
        assert_eq!(names(place.path())[1..], ["..data", "a", "deep"]);
    }

    #[test]
    fn paths_outside_the_volume_are_rejected() {
        for good in ["a", "a/b", "a..b", ".hidden", "a/..b"] {
            assert!(is_confined(good), "{good}");
        }
        for bad in ["", "/a", "..", "../a", "a/../../b", "..data", "a/.."] {
            assert!(!is_confined(bad), "{bad}");
        }
    }
}
