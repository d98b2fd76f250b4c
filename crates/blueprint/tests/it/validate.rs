//! What `validate` finds, and what it lets pass.

use plimsoll_blueprint::validate::{Severity, validate, validate_action};
use serde_json::{Value, json};

fn dump() -> Value {
    json!({
        "func": "KubeTask",
        "name": "dump",
        "objects": {"login": {"kind": "Secret", "name": "{{ .Object.metadata.name }}", "namespace": "{{ .StatefulSet.Namespace }}"}},
        "args": {
            "image": "tools:1",
            "namespace": "{{ .StatefulSet.Namespace }}",
            "command": ["sh", "-c", "pg_dump -h {{ .StatefulSet.Name }} | kando location push --path /a -"],
        },
    })
}

fn blueprint(phases: Value) -> Value {
    json!({
        "apiVersion": "cr.kanister.io/v1alpha1", "kind": "Blueprint", "metadata": {"name": "b"},
        "actions": {"backup": {
            "outputArtifacts": {"dump": {"keyValue": {"path": "{{ .Phases.dump.Output.path }}"}}},
            "phases": phases,
        }},
    })
}

/// A phase with one changed field.
fn changed(path: &[&str], value: Value) -> Value {
    let mut phase = dump();
    *path.iter().fold(&mut phase, |location, key| &mut location[*key]) = value;
    phase
}

fn reasons(blueprint: &Value) -> Vec<&'static str> {
    validate(blueprint).into_iter().map(|finding| finding.reason).collect()
}

#[test]
fn a_good_blueprint_has_no_findings() {
    assert_eq!(validate(&blueprint(json!([dump()]))), []);
    let wait = json!({"func": "Wait", "name": "wait", "args": {"timeout": "60s", "conditions": {"anyOf": [
        {"condition": "{{ if (eq {$.status.phase} \"Ready\") }}true{{ end }}", "objectReference": {"name": "x"}}]}}});
    assert_eq!(validate(&blueprint(json!([dump(), wait]))), [], "conditions of Wait have a language of their own");
}

#[test]
fn every_error_is_found_with_its_location() {
    let restore = json!({"func": "RestoreData", "name": "r", "args": {
        "namespace": "n", "image": "i", "backupArtifactPrefix": "p", "backupTag": "t", "backupIdentifier": "i", "pod": "p"}});
    let kopia = json!({"func": "RestoreDataUsingKopiaServer", "name": "k", "args": {
        "namespace": "n", "image": "i", "backupIdentifier": "b", "restorePath": "/"}});
    let snapshot = |args: Value| json!({"func": "CreateCSISnapshot", "name": "s", "args": args});
    let cases = [
        (snapshot(json!({"pvc": "p", "namespace": "n"})), "MissingArgument", "action backup, phase s"),
        (
            snapshot(json!({"pvc": "p", "namespace": "n", "snapshotClass": "c", "labels": "x"})),
            "InvalidArgument",
            "action backup, phase s, argument labels",
        ),
        (changed(&["func"], json!("NoSuch")), "UnknownFunction", "action backup, phase dump"),
        (changed(&["func"], Value::Null), "NoFunction", "action backup, phase dump"),
        (changed(&["func"], json!("CreateRDSSnapshot")), "FunctionNotSupported", "action backup, phase dump"),
        (kopia, "MissingArgument", "action backup, phase k"),
        (changed(&["name"], json!("")), "NoPhaseName", "action backup, phase 0"),
        (changed(&["args"], json!({"image": "i"})), "MissingArgument", "action backup, phase dump"),
        (changed(&["args", "imgae"], json!("x")), "UnsupportedArgument", "action backup, phase dump"),
        (changed(&["args", "namespace"], Value::Null), "NullArgument", "action backup, phase dump, argument namespace"),
        (
            changed(&["args", "command"], json!(["a", null])),
            "NullArgument",
            "action backup, phase dump, argument command[1]",
        ),
        (
            changed(&["args", "podLabels"], json!("x")),
            "InvalidArgument",
            "action backup, phase dump, argument podLabels",
        ),
        (
            changed(&["args", "command"], json!(["{{ if }}"])),
            "TemplateInvalid",
            "action backup, phase dump, argument command[0]",
        ),
        (
            changed(&["args", "image"], json!("{{ nofunc }}")),
            "TemplateInvalid",
            "action backup, phase dump, argument image",
        ),
        (
            changed(&["args", "image"], json!("{{ env \"HOME\" }}")),
            "TemplateFunctionRefused",
            "action backup, phase dump, argument image",
        ),
        (
            changed(&["objects", "login", "name"], json!("{{ .x")),
            "TemplateInvalid",
            "action backup, phase dump, objects.login.name",
        ),
        (restore, "MissingArgument", "action backup, phase r"),
    ];
    for (phase, reason, location) in cases {
        let findings = validate(&blueprint(json!([phase])));
        let found: Vec<_> = findings.iter().map(|finding| (finding.reason, finding.location.as_str())).collect();
        assert_eq!(found, [(reason, location)]);
        assert_eq!(findings[0].severity, Severity::Error);
    }
}

#[test]
fn conditions_are_validated_as_templates() {
    let wait = |func: &str, conditions: Value| {
        blueprint(json!([{"func": func, "name": "wait", "args": {"timeout": "60s", "conditions": conditions}}]))
    };
    let one =
        |text: &str| json!({"allOf": [{"condition": text, "objectReference": {"name": "{{ .Namespace.Name }}"}}]});
    for good in ["{{ if eq .status.phase \"Ready\" }}true{{ end }}", "{{ range $.status.conditions }}true{{ end }}"] {
        assert_eq!(validate(&wait("WaitV2", one(good))), [], "{good}");
    }
    let at = "action backup, phase wait, argument conditions";
    let cases = [
        (wait("WaitV2", one("{{ if $.status.ready }}true")), "TemplateInvalid", ".allOf[0].condition"),
        (wait("Wait", one("{{ if }}true{{ end }}")), "ConditionInvalid", ".allOf[0].condition"),
        (wait("Wait", one("{ $.status[x] }")), "ConditionInvalid", ".allOf[0].condition"),
        (wait("WaitV2", json!({"anyOf": [{"objectReference": {}}]})), "InvalidArgument", ".anyOf[0]"),
        (wait("WaitV2", json!({"anyOf": []})), "InvalidArgument", ""),
        (
            wait("Wait", json!({"anyOf": [{"condition": "{ $.a }", "objectReference": {"name": "{{ .x"}}]})),
            "TemplateInvalid",
            ".anyOf[0].objectReference.name",
        ),
    ];
    for (blueprint, reason, below) in cases {
        let findings = validate(&blueprint);
        let found: Vec<_> = findings.iter().map(|finding| (finding.reason, finding.location.clone())).collect();
        assert_eq!(found, [(reason, format!("{at}{below}"))]);
    }
}

#[test]
fn phase_names_are_unique_in_an_action_and_better_so_in_the_blueprint() {
    assert_eq!(reasons(&blueprint(json!([dump(), dump()]))), ["DuplicatePhaseName"]);
    let mut two = blueprint(json!([dump()]));
    two["actions"]["restore"] = json!({"phases": [dump()]});
    assert_eq!(reasons(&two), ["RepeatedPhaseName"]);
    assert_eq!(validate(&two)[0].severity, Severity::Warning);
    assert_eq!(validate_action(&two, "restore"), [], "it can be run");
    let mut deferred = blueprint(json!([dump()]));
    deferred["actions"]["backup"]["deferPhase"] = dump();
    assert_eq!(reasons(&deferred), ["DuplicatePhaseName"]);
    deferred["actions"]["backup"]["deferPhase"]["name"] = json!("");
    assert_eq!(reasons(&deferred), Vec::<&str>::new(), "a deferPhase needs no name");
}

#[test]
fn an_object_that_is_not_a_blueprint_or_has_no_actions_is_an_error() {
    assert_eq!(reasons(&json!({"kind": "Profile"})), ["NotABlueprint"]);
    assert_eq!(reasons(&json!({"kind": "Blueprint"})), ["NoActions"]);
    assert_eq!(reasons(&json!({"kind": "Blueprint", "actions": {"a": {}}})), ["NoPhases"]);
    assert_eq!(reasons(&Value::Null), ["NotABlueprint"]);
}

#[test]
fn credentials_in_a_command_are_a_warning() {
    for line in [
        "kando location push --profile '{{ toJson .Profile }}' --path /a -",
        "export KEY={{ .Profile.Credential.KeyPair.Secret | quote }}",
        "p={{ index .Phases.dump.Secrets.login.Data \"password\" | toString }}",
        "{{ range list 1 }}{{ $.Secrets.login.Data.x | toString }}{{ end }}",
        "{{ with (toJson (.Profile)) }}{{ . }}{{ end }}",
    ] {
        let findings = validate(&blueprint(json!([changed(&["args", "command"], json!(["sh", "-c", line]))])));
        let found: Vec<_> = findings.iter().map(|finding| (finding.severity, finding.reason)).collect();
        assert_eq!(found, [(Severity::Warning, "CredentialInCommand")], "{line}");
    }
    for line in ["{{ .Profile.Location.Bucket }}", "{{ .Secrets.login.Name }}", "{{ .Phases.dump.Output.x }}"] {
        assert_eq!(
            reasons(&blueprint(json!([changed(&["args", "command"], json!([line]))]))),
            [] as [&str; 0],
            "{line}"
        );
    }
    let image = changed(&["args", "image"], json!("{{ .Secrets.login.Data.image | toString }}"));
    assert_eq!(reasons(&blueprint(json!([image]))), [] as [&str; 0], "only commands are shown to everybody");
}
