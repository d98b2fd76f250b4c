//! What the API server refuses in Blueprints of the namespace: what Kanister's validating webhook refuses in every action.
//!
//! The policy needs no server that answers and no certificate. Templates and conditions cannot be checked in its language: the
//! server and `plimsoll blueprint validate` do that.

use plimsoll_blueprint::functions::function_spec::{FUNCTIONS, FunctionSpec, POD_ARGUMENTS, Support};
use serde_json::{Value, json};

use super::objects::object;

/// Names of both objects, before the namespace.
const PREFIX: &str = "plimsoll-blueprints";
/// Arguments that are maps of strings.
const MAPS: &str = "['podLabels', 'podAnnotations', 'labels']";

/// The policy and its binding to the namespace.
pub fn blueprint_policy(namespace: &str) -> Vec<Value> {
    let version = "admissionregistration.k8s.io/v1";
    let name = format!("{PREFIX}-{namespace}");
    let mut policy = object(version, "ValidatingAdmissionPolicy", &name, None);
    let rules = rules();
    let tables = [("required", table(required)), ("accepted", table(accepted)), ("refused", refused())];
    let variables = tables.into_iter().chain(rules.iter().map(|rule| (rule.name, rule.findings())));
    let variables: Vec<_> = variables.map(|(name, text)| json!({ "name": name, "expression": text })).collect();
    policy["spec"] = json!({
        // The server validates what an action needs once more: an error here does not stop the installation.
        "failurePolicy": "Ignore",
        "matchConstraints": { "resourceRules": [{ "apiGroups": ["cr.kanister.io"], "apiVersions": ["v1alpha1"],
            "resources": ["blueprints"], "operations": ["CREATE", "UPDATE"] }] },
        "variables": variables,
        "validations": rules.iter().map(Rule::validation).collect::<Vec<_>>(),
    });
    let mut binding = object(version, "ValidatingAdmissionPolicyBinding", &name, None);
    binding["spec"] = json!({
        "policyName": name, "validationActions": ["Deny"],
        "matchResources": { "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } } },
    });
    vec![policy, binding]
}

fn supported() -> impl Iterator<Item = &'static FunctionSpec> {
    FUNCTIONS.iter().filter(|function| function.support == Support::Full)
}

fn required(function: &FunctionSpec) -> Vec<&'static str> {
    function.required.to_vec()
}

fn accepted(function: &FunctionSpec) -> Vec<&'static str> {
    let alternatives = function.one_of.iter().flat_map(|group| group.iter().copied());
    let pod = POD_ARGUMENTS.into_iter().filter(|_| function.creates_pods);
    function.required.iter().chain(function.optional).copied().chain(alternatives).chain(pod).collect()
}

/// A map from each function to these arguments.
fn table(arguments: impl Fn(&FunctionSpec) -> Vec<&'static str>) -> String {
    let rows: Vec<_> =
        supported().map(|function| format!("'{}': {}", function.name, list(&arguments(function)))).collect();
    format!("{{{}}}", rows.join(", "))
}

/// Functions that the server refuses only when their action runs: the other actions of the blueprint do.
fn refused() -> String {
    let refused = FUNCTIONS.iter().filter(|function| function.support != Support::Full);
    list(&refused.map(|function| function.name).collect::<Vec<_>>())
}

fn list(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Something that no phase may have. `faults` is a list of strings about the phase `p` of the action `a`.
struct Rule {
    name: &'static str,
    message: &'static str,
    faults: String,
}

fn rules() -> Vec<Rule> {
    let known = "has(p.func) && p.func in variables.required";
    let rule = |name, message, faults: &str| Rule { name, message, faults: faults.to_owned() };
    let of_arguments = |name, message, list: &str, text: &str| {
        rule(name, message, &format!("{known} && has(p.args) ? {list}.map(k, {text}) : []"))
    };
    vec![
        rule(
            "unknown",
            "a phase has an unknown function",
            &format!(
                "({known}) || (has(p.func) && p.func in variables.refused) \
                 ? [] : [has(p.func) ? 'unknown function ' + p.func : 'func is required']"
            ),
        ),
        rule(
            "missing",
            "a phase lacks an argument",
            &format!(
                "{known} ? variables.required[p.func].filter(k, !has(p.args) || !(k in p.args))\
                 .map(k, p.func + ' requires the argument ' + k) : []"
            ),
        ),
        of_arguments(
            "unsupported",
            "a phase has an argument that its function does not have",
            "p.args.filter(k, !(k in variables.accepted[p.func]))",
            "p.func + ' has no argument ' + k",
        ),
        of_arguments(
            "empty",
            "an argument is null",
            "p.args.filter(k, p.args[k] == null)",
            "'argument ' + k + ' is null'",
        ),
        of_arguments(
            "maps",
            "an argument is not a map of strings",
            &format!(
                "p.args.filter(k, k in {MAPS} && (type(p.args[k]) != map || !p.args[k].all(l, type(p.args[k][l]) == string)))"
            ),
            "'argument ' + k + ' is not a map of strings'",
        ),
        rule(
            "repeated",
            "two phases of an action have the same name",
            &format!(
                "{PHASES}.exists_one(q, has(q.name) && has(p.name) && q.name == p.name) || !has(p.name) || p.name == '' \
                      ? [] : ['another phase of the action has the same name']"
            ),
        ),
    ]
}

/// The phases of the action `a`.
const PHASES: &str = "((has(object.actions[a].phases) ? object.actions[a].phases : []) + \
                      (has(object.actions[a].deferPhase) ? [object.actions[a].deferPhase] : []))";

impl Rule {
    /// The faults of all phases, one list for each action.
    fn findings(&self) -> String {
        let place = "'action ' + a + ', phase ' + (has(p.name) ? p.name : '') + ': '";
        let phases = format!("{PHASES}.map(p, ({}).map(f, {place} + f).join('; '))", self.faults);
        format!("has(object.actions) ? object.actions.map(a, {phases}.filter(f, f != '').join('; ')) : []")
    }

    fn validation(&self) -> Value {
        let findings = format!("variables.{}.filter(f, f != '')", self.name);
        json!({ "expression": format!("size({findings}) == 0"), "message": self.message,
            "messageExpression": format!("{findings}.join('; ')") })
    }
}
