//! Image names: replaced as configured in a ConfigMap.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ActionContext, ActionEffect, list_at, text};
use crate::Error;

pub(super) const RESOURCES: [&str; 8] = [
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "replicasets.apps",
    "replicationcontrollers",
    "jobs.batch",
    "cronjobs.batch",
    "pods",
];

/// Old and new parts of image names. The first match in the order of the keys applies.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ImageNames {
    rules: Vec<(String, String)>,
}

impl ImageNames {
    pub(super) async fn read(context: &ActionContext<'_>) -> Result<Option<Self>, Error> {
        let (client, namespace) = (context.cluster.client(), context.namespace);
        let data = super::configuration(client, namespace, "velero.io/change-image-name").await?;
        Ok(data.map(|data| Self::of(&data)))
    }

    fn of(data: &BTreeMap<String, String>) -> Self {
        let rule = |row: &String| row.split_once(',').map(|(old, new)| (old.trim().to_owned(), new.trim().to_owned()));
        Self { rules: data.values().filter_map(rule).filter(|(old, new)| !old.is_empty() && !new.is_empty()).collect() }
    }

    pub(super) fn apply(&self, item: &mut Value) -> ActionEffect {
        let template = match text(item, "/kind") {
            "Pod" => "/spec",
            "CronJob" => "/spec/jobTemplate/spec/template/spec",
            _ => "/spec/template/spec",
        };
        for list in ["containers", "initContainers"] {
            for container in list_at(item, &format!("{template}/{list}")) {
                if let Some(renamed) = self.renamed(text(container, "/image")) {
                    container["image"] = json!(renamed);
                }
            }
        }
        ActionEffect::default()
    }

    fn renamed(&self, image: &str) -> Option<String> {
        let (old, new) = self.rules.iter().find(|(old, _)| image.contains(old.as_str()))?;
        Some(image.replace(old.as_str(), new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(rule: &str, image: &str) -> String {
        let names = ImageNames::of(&BTreeMap::from([("case".to_owned(), rule.to_owned())]));
        let mut pod =
            json!({"kind": "Pod", "spec": {"containers": [{"image": image}], "initContainers": [{"image": image}]}});
        names.apply(&mut pod);
        assert_eq!(pod["spec"]["containers"], pod["spec"]["initContainers"]);
        text(&pod, "/spec/containers/0/image").to_owned()
    }

    #[test]
    fn parts_of_image_names_are_replaced() {
        let cases = [
            ("1.1.1.1:5000 , 2.2.2.2:3000", "1.1.1.1:5000/abc:test", "2.2.2.2:3000/abc:test"),
            ("1.1.1.1:5000,2.2.2.2:3000", "1.1.1.1:5000/abc:test", "2.2.2.2:3000/abc:test"),
            ("abc:test,myproject:latest", "1.1.1.1:5000/abc:test", "1.1.1.1:5000/myproject:latest"),
            ("5000,3333", "1.1.1.1:5000/abc:test", "1.1.1.1:3333/abc:test"),
            ("test,latest", "1.1.1.1:5000/abc:test", "1.1.1.1:5000/abc:latest"),
            ("dev,prod", "dev/image1:dev", "prod/image1:prod"),
            ("other,prod", "dev/image1:dev", "dev/image1:dev"),
            ("no comma", "no comma", "no comma"),
            ("dev,", "dev", "dev"),
        ];
        for (rule, image, expected) in cases {
            assert_eq!(renamed(rule, image), expected, "{rule}");
        }
    }

    #[test]
    fn images_are_replaced_in_all_workloads() {
        let names = ImageNames::of(&BTreeMap::from([("case".to_owned(), "a,b".to_owned())]));
        for (kind, place) in
            [("Deployment", "/spec/template/spec"), ("CronJob", "/spec/jobTemplate/spec/template/spec")]
        {
            let mut item = place[1..]
                .rsplit('/')
                .fold(json!({"containers": [{"image": "a"}]}), |inner, field| json!({field: inner}));
            item["kind"] = json!(kind);
            names.apply(&mut item);
            assert_eq!(text(&item, &format!("{place}/containers/0/image")), "b", "{kind}");
        }
    }
}
