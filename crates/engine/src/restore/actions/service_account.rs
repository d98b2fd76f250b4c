//! Service accounts: the token that is made anew.

use serde_json::Value;

use super::{Said, map_at, text};

pub(super) fn act(item: &mut Value, _: &Value) -> Said {
    let token = format!("{}-token-", text(item, "/metadata/name"));
    let Some(secrets) = map_at(item, "").and_then(|account| account.get_mut("secrets")).and_then(Value::as_array_mut)
    else {
        return Said::default();
    };
    // Only the last one is the cluster's own: an earlier one of such a name is somebody's choice.
    if let Some(place) = secrets.iter().rposition(|secret| text(secret, "/name").starts_with(&token)) {
        secrets.remove(place);
    }
    Said::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn left(names: &[&str]) -> Vec<String> {
        let secrets: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let mut account = json!({"metadata": {"name": "foo"}, "secrets": secrets});
        act(&mut account, &Value::Null);
        account["secrets"].as_array().unwrap().iter().map(|secret| text(secret, "/name").to_owned()).collect()
    }

    #[test]
    fn the_token_goes_and_other_secrets_stay() {
        assert!(left(&[]).is_empty());
        assert_eq!(left(&["foo-bar", "baz-token"]), ["foo-bar", "baz-token"]);
        assert!(left(&["foo-token-12345"]).is_empty());
        assert_eq!(left(&["a", "foo-token-12345", "b"]), ["a", "b"]);
        assert_eq!(left(&["foo-token-1", "b", "foo-token-2"]), ["foo-token-1", "b"], "only one of them");
    }

    #[test]
    fn an_account_without_secrets_is_left_as_it_is() {
        let mut account = json!({"metadata": {"name": "foo"}});
        act(&mut account, &Value::Null);
        assert_eq!(account, json!({"metadata": {"name": "foo"}}));
    }
}
