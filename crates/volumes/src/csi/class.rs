//! Which VolumeSnapshotClass a snapshot is made with: pure.

use serde_json::Value;

use super::annotation;

/// On a class: it is the one for backups. On a claim, or with the driver's name on a Backup: the class to use.
const CLASS: &str = "velero.io/csi-volumesnapshot-class";

/// The class for a claim whose volume is of this driver; none where the driver has none. The error says why none can be chosen.
/// `policy` is the class that a volume policy names.
pub(super) fn choose(
    classes: &[Value],
    driver: &str,
    claim: &Value,
    policy: Option<&str>,
    backup: &Value,
) -> Result<Option<String>, String> {
    let name = |class: &Value| class.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let of_driver: Vec<&Value> = classes.iter().filter(|class| class["driver"] == driver).collect();
    let by_backup = format!("{CLASS}_{driver}");
    let names = [annotation(claim, CLASS), policy.unwrap_or_default(), annotation(backup, &by_backup)];
    let named = names.into_iter().find(|named| !named.is_empty());
    if let Some(named) = named {
        return match of_driver.iter().find(|class| name(class) == named) {
            Some(_) => Ok(Some(named.to_owned())),
            None => Err(format!("no VolumeSnapshotClass {named} of driver {driver}")),
        };
    }
    let is_marked = |class: &&&Value| class.pointer("/metadata/labels").is_some_and(|all| all.get(CLASS).is_some());
    let marked: Vec<_> = of_driver.iter().filter(is_marked).collect();
    match (marked.as_slice(), of_driver.as_slice()) {
        ([one], _) => Ok(Some(name(one))),
        (_, [only]) => Ok(Some(name(only))),
        ([], []) => Ok(None),
        ([], _) => Err(format!("driver {driver} has several VolumeSnapshotClasses: label one with {CLASS}=true")),
        _ => {
            Err(format!("driver {driver} has several VolumeSnapshotClasses labelled {CLASS}: leave it on one of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, driver: &str, marked: bool) -> Value {
        let labels = if marked { json!({ CLASS: "true" }) } else { json!({}) };
        json!({ "metadata": { "name": name, "labels": labels }, "driver": driver })
    }

    #[test]
    fn a_name_goes_before_a_mark_and_a_mark_before_the_only_one() {
        let none = json!({});
        let choose =
            |all: &[Value], driver: &str, claim: &Value, backup: &Value| choose(all, driver, claim, None, backup);
        let all = [class("a", "d", false), class("b", "d", true), class("x", "other", true)];
        assert_eq!(choose(&all, "d", &none, &none), Ok(Some("b".into())));
        let claim = json!({ "metadata": { "annotations": { CLASS: "a" } } });
        assert_eq!(choose(&all, "d", &claim, &none), Ok(Some("a".into())));
        let backup = json!({ "metadata": { "annotations": { "velero.io/csi-volumesnapshot-class_d": "a" } } });
        assert_eq!(choose(&all, "d", &none, &backup), Ok(Some("a".into())));
        assert_eq!(choose(&all[..1], "d", &none, &none), Ok(Some("a".into())), "it is the only one");
        assert_eq!(choose(&all, "e", &none, &none), Ok(None));
    }

    #[test]
    fn a_claim_goes_before_a_volume_policy_and_that_before_the_backup() {
        let all = [class("a", "d", false), class("b", "d", true), class("c", "d", false)];
        let named = |name: &str| json!({ "metadata": { "annotations": { CLASS: name } } });
        let backup = json!({ "metadata": { "annotations": { "velero.io/csi-volumesnapshot-class_d": "c" } } });
        assert_eq!(choose(&all, "d", &json!({}), Some("a"), &backup), Ok(Some("a".into())));
        assert_eq!(choose(&all, "d", &named("b"), Some("a"), &backup), Ok(Some("b".into())));
        let error = choose(&all, "d", &json!({}), Some("x"), &backup).unwrap_err();
        assert_eq!(error, "no VolumeSnapshotClass x of driver d");
    }

    #[test]
    fn what_cannot_be_chosen_is_named() {
        let none = json!({});
        let choose =
            |all: &[Value], driver: &str, claim: &Value, backup: &Value| choose(all, driver, claim, None, backup);
        let two = [class("a", "d", false), class("b", "d", false)];
        assert!(choose(&two, "d", &none, &none).unwrap_err().contains("several VolumeSnapshotClasses: label one"));
        let marked = [class("a", "d", true), class("b", "d", true)];
        assert!(choose(&marked, "d", &none, &none).unwrap_err().contains("leave it on one"));
        let wrong = json!({ "metadata": { "annotations": { CLASS: "x" } } });
        assert!(choose(&two, "d", &wrong, &none).unwrap_err().contains("no VolumeSnapshotClass x of driver d"));
    }
}
