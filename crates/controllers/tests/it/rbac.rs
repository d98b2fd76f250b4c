//! The permissions of the server and the agent.

use plimsoll_controllers::rbac::{AGENT, AGENT_NAMESPACE, Rule, SERVER, SERVER_NAMESPACE};

#[test]
fn nothing_may_be_deleted_outside_of_the_servers_namespace_but_snapshots_and_agents_write_nothing_there() {
    let verbs = |rights: &[Rule]| rights.iter().flat_map(|right| right.verbs).copied().collect::<Vec<_>>();
    assert!(!verbs(SERVER).iter().any(|verb| ["deletecollection", "*", "impersonate"].contains(verb)));
    let deletes = |right: &&Rule| right.verbs.contains(&"delete");
    let deleted: Vec<_> = SERVER.iter().filter(deletes).flat_map(|right| right.groups).collect();
    assert_eq!(deleted, [&"snapshot.storage.k8s.io"], "nothing but snapshots");
    assert!(verbs(AGENT).iter().all(|verb| ["get", "list", "watch"].contains(verb)));
    assert!(
        [SERVER, SERVER_NAMESPACE, AGENT, AGENT_NAMESPACE]
            .iter()
            .all(|rights| rights.iter().all(|right| !right.why.is_empty()))
    );
}
