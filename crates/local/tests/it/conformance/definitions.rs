//! Custom resources.

use super::{Scope, eventually, refusal, unique};
use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

/// A definition of this test only, and its objects.
struct Widgets<'a> {
    scope: &'a Scope,
    group: String,
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "code": {"type": "string", "pattern": "^[a-z]{3}$"},
            "port": {"x-kubernetes-int-or-string": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "parts": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "count": {"type": "integer", "default": 1},
            }}},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    }})
}

impl<'a> Widgets<'a> {
    async fn define(scope: &'a Scope) -> Self {
        let widgets = Self { scope, group: format!("{}.example.com", unique("g")) };
        let version = |name: &str, storage: bool| {
            json!({
                "name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema()},
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            })
        };
        let definition = json!({
            "metadata": {"name": widgets.name()},
            "spec": {
                "group": widgets.group, "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["gadgets"]},
                "versions": [version("v1", true), version("v1beta1", false)],
            },
        });
        let made = serde_json::from_value(definition).unwrap();
        widgets.definitions().create(&PostParams::default(), &made).await.unwrap();
        widgets.established().await;
        widgets
    }

    fn name(&self) -> String {
        format!("widgets.{}", self.group)
    }

    fn definitions(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.scope.client.clone())
    }

    async fn established(&self) {
        eventually("the definition is established", || async {
            let definition = self.definitions().get(&self.name()).await.unwrap();
            let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
            conditions.iter().any(|one| one.type_ == "Established" && one.status == "True").then_some(())
        })
        .await;
        eventually("its objects are served", || async {
            self.api("v1").list(&kube::api::ListParams::default()).await.ok().map(drop)
        })
        .await;
    }

    fn resource(&self, version: &str) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group, version, "Widget"), "widgets")
    }

    fn api(&self, version: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.scope.client.clone(), &self.scope.namespace, &self.resource(version))
    }

    fn widget(&self, name: &str, spec: &Value) -> DynamicObject {
        DynamicObject::new(name, &self.resource("v1")).data(json!({"spec": spec, "status": {"ready": true}}))
    }

    async fn create(&self, name: &str, spec: &Value) -> Result<DynamicObject, kube::Error> {
        self.api("v1").create(&PostParams::default(), &self.widget(name, spec)).await
    }

    async fn end(self) {
        self.definitions().delete(&self.name(), &DeleteParams::default()).await.unwrap();
    }
}

pub async fn a_definition_is_established_and_serves_objects(scope: &Scope) {
    let widgets = Widgets::define(scope).await;
    let made = widgets.create("one", &json!({"size": 1})).await.unwrap();
    assert_eq!((made.metadata.generation, made.data.get("status")), (Some(1), None), "status is a subresource");
    let api = widgets.api("v1");
    let patch = Patch::Merge(json!({"status": {"ready": true}, "spec": {"size": 5}}));
    let patched = api.patch_status("one", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((&patched.data["status"]["ready"], &patched.data["spec"]["size"]), (&json!(true), &json!(1)));
    assert_eq!(patched.metadata.generation, Some(1));
    let patch = Patch::Merge(json!({"spec": {"size": 5}}));
    assert_eq!(api.patch("one", &PatchParams::default(), &patch).await.unwrap().metadata.generation, Some(2));
    let mut blind = api.get("one").await.unwrap();
    blind.metadata.resource_version = None;
    let refused = refusal(api.replace("one", &PostParams::default(), &blind).await);
    assert_eq!(refused, (422, "Invalid".to_owned()), "a custom resource is never replaced unseen");
    let strategic = Patch::Strategic(json!({"spec": {"size": 6}}));
    let refused = refusal(api.patch("one", &PatchParams::default(), &strategic).await);
    assert_eq!(refused, (415, "UnsupportedMediaType".to_owned()));
    widgets.end().await;
}

pub async fn unknown_fields_are_pruned_and_reported(scope: &Scope) {
    let widgets = Widgets::define(scope).await;
    let spec = json!({
        "size": 1, "surprise": true, "free": {"any": {"thing": 1}}, "port": "http", "tags": {"a": "b"},
        "parts": [{"name": "x", "odd": 1}],
    });
    let made = widgets.create("pruned", &spec).await.unwrap();
    let kept = &made.data["spec"];
    assert_eq!((kept.get("surprise"), &kept["free"]), (None, &json!({"any": {"thing": 1}})));
    assert_eq!((&kept["parts"], &kept["port"]), (&json!([{"name": "x", "count": 1}]), &json!("http")));
    let path = format!("/apis/{}/v1/namespaces/{}/widgets?fieldValidation=Strict", widgets.group, scope.namespace);
    let body = json!({
        "apiVersion": format!("{}/v1", widgets.group), "kind": "Widget", "metadata": {"name": "strict"}, "spec": spec,
    });
    let (code, status) = scope.raw(Method::POST, &path, "application/json", body.to_string()).await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("unknown field \"spec.surprise\"") && message.contains("spec.parts[0].odd"), "{message}");
    widgets.end().await;
}

pub async fn defaults_are_filled_in(scope: &Scope) {
    let widgets = Widgets::define(scope).await;
    let made = widgets.create("plain", &json!({"size": 2, "colour": null, "parts": [{}]})).await.unwrap();
    assert_eq!((&made.data["spec"]["colour"], &made.data["spec"]["parts"][0]["count"]), (&json!("red"), &json!(1)));
    widgets.end().await;
}

pub async fn a_schema_violation_names_every_field(scope: &Scope) {
    let widgets = Widgets::define(scope).await;
    let cases = [
        (json!({}), "spec.size", "FieldValueRequired"),
        (json!({"size": "big"}), "spec.size", "FieldValueTypeInvalid"),
        (json!({"size": 11}), "spec.size", "FieldValueInvalid"),
        (json!({"size": 1, "colour": "blue"}), "spec.colour", "FieldValueNotSupported"),
        (json!({"size": 1, "code": "ABC"}), "spec.code", "FieldValueInvalid"),
        (json!({"size": 1, "port": 1.5}), "spec.port", "FieldValueTypeInvalid"),
        (json!({"size": 1, "tags": {"a": 1}}), "spec.tags.a", "FieldValueTypeInvalid"),
    ];
    for (spec, field, reason) in cases {
        let Err(kube::Error::Api(status)) = widgets.create("wrong", &spec).await else { panic!("{spec} was accepted") };
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{spec}");
        let causes = status.details.clone().unwrap().causes;
        assert!(causes.iter().any(|cause| cause.field == field && cause.reason == reason), "{spec}: {causes:?}");
    }
    widgets.end().await;
}

pub async fn versions_differ_in_name_only(scope: &Scope) {
    let widgets = Widgets::define(scope).await;
    widgets.create("seen", &json!({"size": 3})).await.unwrap();
    let other = widgets.api("v1beta1").get("seen").await.unwrap();
    assert_eq!(other.types.unwrap().api_version, format!("{}/v1beta1", widgets.group));
    assert_eq!(other.data["spec"]["size"], 3);
    let patch = Patch::Merge(json!({"spec": {"size": 4}}));
    widgets.api("v1beta1").patch("seen", &PatchParams::default(), &patch).await.unwrap();
    let back = widgets.api("v1").get("seen").await.unwrap();
    assert_eq!(
        (back.types.unwrap().api_version, &back.data["spec"]["size"]),
        (format!("{}/v1", widgets.group), &json!(4))
    );
    widgets.end().await;
}

pub async fn deleting_a_definition_deletes_its_objects(scope: &Scope) {
    let widgets = Widgets::define(scope).await;
    let mut held = widgets.widget("held", &json!({"size": 1}));
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    let api = widgets.api("v1");
    api.create(&PostParams::default(), &held).await.unwrap();
    widgets.create("free", &json!({"size": 1})).await.unwrap();
    widgets.definitions().delete(&widgets.name(), &DeleteParams::default()).await.unwrap();
    eventually("its objects are being deleted", || async {
        api.get("held").await.unwrap().metadata.deletion_timestamp
    })
    .await;
    assert!(widgets.definitions().get(&widgets.name()).await.unwrap().metadata.deletion_timestamp.is_some());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("held", &PatchParams::default(), &patch).await.unwrap();
    eventually("the definition is deleted", || async {
        widgets.definitions().get_opt(&widgets.name()).await.unwrap().is_none().then_some(())
    })
    .await;
    eventually("the kind is removed", || async {
        matches!(api.get("held").await, Err(kube::Error::Api(status)) if status.code == 404).then_some(())
    })
    .await;
}

pub async fn an_invalid_definition_is_rejected(scope: &Scope) {
    let definitions: Api<CustomResourceDefinition> = Api::all(scope.client.clone());
    let group = format!("{}.example.com", unique("bad"));
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let good = json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [version]},
    });
    let spoil: [fn(&mut Value); 4] = [
        |definition| definition["metadata"]["name"] = json!("other.example.com"),
        |definition| definition["spec"]["versions"][0]["storage"] = json!(false),
        |definition| definition["spec"]["versions"][0]["schema"] = json!({}),
        |definition| definition["spec"]["scope"] = json!("Sideways"),
    ];
    for change in spoil {
        let mut wrong = good.clone();
        change(&mut wrong);
        let made = serde_json::from_value(wrong.clone()).unwrap();
        let refused = refusal(definitions.create(&PostParams::default(), &made).await);
        assert_eq!(refused, (422, "Invalid".to_owned()), "{wrong}");
    }
    let made = definitions
        .create(&PostParams { dry_run: true, ..PostParams::default() }, &serde_json::from_value(good).unwrap())
        .await;
    assert!(made.unwrap().name_any().starts_with("things."));
}
