//! The structures of Kanister's parameters: what templates call their fields, and what JSON calls them.
//!
//! The parameters come as JSON, spelled as `toJson` would print them. Templates ask for Go's names.

use super::value::Type;

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    /// Go's name.
    pub(super) name: &'static str,
    /// The key in JSON.
    pub(super) json: &'static str,
    /// What it holds.
    pub(super) holds: Holds,
    /// Whether JSON leaves it out when it is empty.
    pub(super) omit_empty: bool,
}

/// What a field holds; a type that can stand in a constant.
#[derive(Debug)]
pub(super) enum Holds {
    Any,
    Bool,
    Int,
    Text,
    Texts,
    TextLists,
    AnyMap,
    TextMap,
    TextMapMap,
    BytesMap,
    IntMap,
    Struct(&'static Shape),
    Pointer(&'static Shape),
    MapOf(&'static Shape),
    MapOfPointers(&'static Shape),
}

impl Holds {
    pub(super) fn as_type(&self) -> Type {
        let texts = || Type::list(Type::Text);
        let text_map = || Type::map(Type::Text);
        match self {
            Self::Any => Type::Any,
            Self::Bool => Type::Bool,
            Self::Int => Type::Int64,
            Self::Text => Type::Text,
            Self::Texts => texts(),
            Self::TextLists => Type::list(texts()),
            Self::AnyMap => Type::map(Type::Any),
            Self::TextMap => text_map(),
            Self::TextMapMap => Type::map(text_map()),
            Self::BytesMap => Type::map(Type::list(Type::Uint8)),
            Self::IntMap => Type::map(Type::Int),
            Self::Struct(shape) => Type::Struct(shape),
            Self::Pointer(shape) => Type::Pointer(shape),
            Self::MapOf(shape) => Type::map(Type::Struct(shape)),
            Self::MapOfPointers(shape) => Type::map(Type::Pointer(shape)),
        }
    }
}

/// A structure.
#[derive(Debug)]
pub(super) struct Shape {
    /// Go's name of the type.
    pub(super) name: &'static str,
    /// Its fields, in Go's order.
    pub(super) fields: &'static [Field],
    /// The field whose own fields can be asked for directly.
    pub(super) embedded: Option<&'static str>,
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Shape {}

const fn field(name: &'static str, holds: Holds) -> Field {
    Field { name, json: name, holds, omit_empty: false }
}

const fn tagged(name: &'static str, json: &'static str, holds: Holds) -> Field {
    Field { name, json, holds, omit_empty: false }
}

const fn optional(name: &'static str, json: &'static str, holds: Holds) -> Field {
    Field { name, json, holds, omit_empty: true }
}

/// The whole tree of a phase.
pub(super) static PARAMS: Shape = Shape {
    name: "param.TemplateParams",
    fields: &[
        field("StatefulSet", Holds::Pointer(&STATEFUL_SET)),
        field("DeploymentConfig", Holds::Pointer(&DEPLOYMENT_CONFIG)),
        field("Deployment", Holds::Pointer(&DEPLOYMENT)),
        field("PVC", Holds::Pointer(&PVC)),
        field("Namespace", Holds::Pointer(&NAMESPACE)),
        field("ArtifactsIn", Holds::MapOf(&ARTIFACT)),
        field("ConfigMaps", Holds::MapOf(&CONFIG_MAP)),
        field("Secrets", Holds::MapOf(&SECRET)),
        field("Time", Holds::Text),
        field("Profile", Holds::Pointer(&PROFILE)),
        field("Options", Holds::TextMap),
        field("Object", Holds::AnyMap),
        field("Phases", Holds::MapOfPointers(&PHASE)),
        field("DeferPhase", Holds::Pointer(&PHASE)),
        field("CurrentPhase", Holds::Pointer(&PHASE)),
        field("PodOverride", Holds::AnyMap),
        field("PodAnnotations", Holds::TextMap),
        field("PodLabels", Holds::TextMap),
    ],
    embedded: None,
};

macro_rules! workload {
    ($shape:ident, $name:literal) => {
        static $shape: Shape = Shape {
            name: $name,
            fields: &[
                field("Name", Holds::Text),
                field("Namespace", Holds::Text),
                field("Pods", Holds::Texts),
                field("Containers", Holds::TextLists),
                field("PersistentVolumeClaims", Holds::TextMapMap),
            ],
            embedded: None,
        };
    };
}

workload!(STATEFUL_SET, "param.StatefulSetParams");
workload!(DEPLOYMENT, "param.DeploymentParams");
workload!(DEPLOYMENT_CONFIG, "param.DeploymentConfigParams");

static PVC: Shape = Shape {
    name: "param.PVCParams",
    fields: &[field("Name", Holds::Text), field("Namespace", Holds::Text)],
    embedded: None,
};

static NAMESPACE: Shape = Shape {
    name: "param.NamespaceParams",
    fields: &[field("Name", Holds::Text), field("Namespace", Holds::Text)],
    embedded: None,
};

static ARTIFACT: Shape = Shape {
    name: "v1alpha1.Artifact",
    fields: &[
        optional("KeyValue", "keyValue", Holds::TextMap),
        optional("KopiaSnapshot", "kopiaSnapshot", Holds::Text),
    ],
    embedded: None,
};

static PHASE: Shape = Shape {
    name: "param.Phase",
    fields: &[
        field("Secrets", Holds::MapOf(&SECRET)),
        field("ConfigMaps", Holds::MapOf(&CONFIG_MAP)),
        field("Output", Holds::AnyMap),
    ],
    embedded: None,
};

static PROFILE: Shape = Shape {
    name: "param.Profile",
    fields: &[
        field("Location", Holds::Struct(&LOCATION)),
        field("Credential", Holds::Struct(&CREDENTIAL)),
        field("SkipSSLVerify", Holds::Bool),
    ],
    embedded: None,
};

static LOCATION: Shape = Shape {
    name: "v1alpha1.Location",
    fields: &[
        tagged("Type", "type", Holds::Text),
        optional("Bucket", "bucket", Holds::Text),
        optional("Endpoint", "endpoint", Holds::Text),
        optional("Prefix", "prefix", Holds::Text),
        optional("Region", "region", Holds::Text),
    ],
    embedded: None,
};

static CREDENTIAL: Shape = Shape {
    name: "param.Credential",
    fields: &[
        field("Type", Holds::Text),
        field("KeyPair", Holds::Pointer(&KEY_PAIR)),
        field("Secret", Holds::Pointer(&SECRET)),
        field("KopiaServerSecret", Holds::Pointer(&KOPIA_SERVER_SECRET)),
    ],
    embedded: None,
};

static KEY_PAIR: Shape =
    Shape { name: "param.KeyPair", fields: &[field("ID", Holds::Text), field("Secret", Holds::Text)], embedded: None };

static KOPIA_SERVER_SECRET: Shape = Shape {
    name: "param.KopiaServerCreds",
    fields: &[
        field("Username", Holds::Text),
        field("Hostname", Holds::Text),
        field("Password", Holds::Text),
        field("Cert", Holds::Text),
        field("ConnectOptions", Holds::IntMap),
    ],
    embedded: None,
};

static OBJECT_META: Shape = Shape {
    name: "v1.ObjectMeta",
    fields: &[
        optional("Name", "name", Holds::Text),
        optional("GenerateName", "generateName", Holds::Text),
        optional("Namespace", "namespace", Holds::Text),
        optional("UID", "uid", Holds::Text),
        optional("ResourceVersion", "resourceVersion", Holds::Text),
        optional("Generation", "generation", Holds::Int),
        optional("CreationTimestamp", "creationTimestamp", Holds::Any),
        optional("DeletionTimestamp", "deletionTimestamp", Holds::Any),
        optional("Labels", "labels", Holds::TextMap),
        optional("Annotations", "annotations", Holds::TextMap),
        optional("OwnerReferences", "ownerReferences", Holds::Any),
        optional("Finalizers", "finalizers", Holds::Texts),
        optional("ManagedFields", "managedFields", Holds::Any),
    ],
    embedded: None,
};

static SECRET: Shape = Shape {
    name: "v1.Secret",
    fields: &[
        optional("Kind", "kind", Holds::Text),
        optional("APIVersion", "apiVersion", Holds::Text),
        tagged("ObjectMeta", "metadata", Holds::Struct(&OBJECT_META)),
        optional("Immutable", "immutable", Holds::Any),
        optional("Data", "data", Holds::BytesMap),
        optional("StringData", "stringData", Holds::TextMap),
        optional("Type", "type", Holds::Text),
    ],
    embedded: Some("ObjectMeta"),
};

static CONFIG_MAP: Shape = Shape {
    name: "v1.ConfigMap",
    fields: &[
        optional("Kind", "kind", Holds::Text),
        optional("APIVersion", "apiVersion", Holds::Text),
        tagged("ObjectMeta", "metadata", Holds::Struct(&OBJECT_META)),
        optional("Immutable", "immutable", Holds::Any),
        optional("Data", "data", Holds::TextMap),
        optional("BinaryData", "binaryData", Holds::BytesMap),
    ],
    embedded: Some("ObjectMeta"),
};
