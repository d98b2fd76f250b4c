//! The structs of Kanister's parameters, with their field names in templates and in JSON.
//!
//! The parameters are JSON, with the names of `toJson`. Templates use Go's names.

use super::value::Type;

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    /// Go's name.
    pub(super) name: &'static str,
    /// The key in JSON.
    pub(super) json: &'static str,
    /// The type.
    pub(super) holds: FieldType,
    /// Whether JSON omits it when empty.
    pub(super) omit_empty: bool,
}

/// The type of a field, usable in a constant.
#[derive(Debug)]
pub(super) enum FieldType {
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
    Struct(&'static StructType),
    Pointer(&'static StructType),
    MapOf(&'static StructType),
    MapOfPointers(&'static StructType),
}

impl FieldType {
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

/// A struct.
#[derive(Debug)]
pub(super) struct StructType {
    /// Go's name of the type.
    pub(super) name: &'static str,
    /// The fields, in Go's order.
    pub(super) fields: &'static [Field],
    /// The embedded field, whose fields are accessible directly.
    pub(super) embedded: Option<&'static str>,
}

impl PartialEq for StructType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for StructType {}

const fn field(name: &'static str, holds: FieldType) -> Field {
    Field { name, json: name, holds, omit_empty: false }
}

const fn tagged(name: &'static str, json: &'static str, holds: FieldType) -> Field {
    Field { name, json, holds, omit_empty: false }
}

const fn optional(name: &'static str, json: &'static str, holds: FieldType) -> Field {
    Field { name, json, holds, omit_empty: true }
}

/// The parameters of a phase.
pub(super) static PARAMS: StructType = StructType {
    name: "param.TemplateParams",
    fields: &[
        field("StatefulSet", FieldType::Pointer(&STATEFUL_SET)),
        field("DeploymentConfig", FieldType::Pointer(&DEPLOYMENT_CONFIG)),
        field("Deployment", FieldType::Pointer(&DEPLOYMENT)),
        field("PVC", FieldType::Pointer(&PVC)),
        field("Namespace", FieldType::Pointer(&NAMESPACE)),
        field("ArtifactsIn", FieldType::MapOf(&ARTIFACT)),
        field("ConfigMaps", FieldType::MapOf(&CONFIG_MAP)),
        field("Secrets", FieldType::MapOf(&SECRET)),
        field("Time", FieldType::Text),
        field("Profile", FieldType::Pointer(&PROFILE)),
        field("RepositoryServer", FieldType::Pointer(&REPOSITORY_SERVER)),
        field("Options", FieldType::TextMap),
        field("Object", FieldType::AnyMap),
        field("Phases", FieldType::MapOfPointers(&PHASE)),
        field("DeferPhase", FieldType::Pointer(&PHASE)),
        field("CurrentPhase", FieldType::Pointer(&PHASE)),
        field("PodOverride", FieldType::AnyMap),
        field("PodAnnotations", FieldType::TextMap),
        field("PodLabels", FieldType::TextMap),
    ],
    embedded: None,
};

macro_rules! workload {
    ($shape:ident, $name:literal) => {
        static $shape: StructType = StructType {
            name: $name,
            fields: &[
                field("Name", FieldType::Text),
                field("Namespace", FieldType::Text),
                field("Pods", FieldType::Texts),
                field("Containers", FieldType::TextLists),
                field("PersistentVolumeClaims", FieldType::TextMapMap),
            ],
            embedded: None,
        };
    };
}

workload!(STATEFUL_SET, "param.StatefulSetParams");
workload!(DEPLOYMENT, "param.DeploymentParams");
workload!(DEPLOYMENT_CONFIG, "param.DeploymentConfigParams");

static PVC: StructType = StructType {
    name: "param.PVCParams",
    fields: &[field("Name", FieldType::Text), field("Namespace", FieldType::Text)],
    embedded: None,
};

static NAMESPACE: StructType = StructType {
    name: "param.NamespaceParams",
    fields: &[field("Name", FieldType::Text), field("Namespace", FieldType::Text)],
    embedded: None,
};

static ARTIFACT: StructType = StructType {
    name: "v1alpha1.Artifact",
    fields: &[
        optional("KeyValue", "keyValue", FieldType::TextMap),
        optional("KopiaSnapshot", "kopiaSnapshot", FieldType::Text),
    ],
    embedded: None,
};

static PHASE: StructType = StructType {
    name: "param.Phase",
    fields: &[
        field("Secrets", FieldType::MapOf(&SECRET)),
        field("ConfigMaps", FieldType::MapOf(&CONFIG_MAP)),
        field("Output", FieldType::AnyMap),
    ],
    embedded: None,
};

static PROFILE: StructType = StructType {
    name: "param.Profile",
    fields: &[
        field("Location", FieldType::Struct(&LOCATION)),
        field("Credential", FieldType::Struct(&CREDENTIAL)),
        field("SkipSSLVerify", FieldType::Bool),
    ],
    embedded: None,
};

static LOCATION: StructType = StructType {
    name: "v1alpha1.Location",
    fields: &[
        tagged("Type", "type", FieldType::Text),
        optional("Bucket", "bucket", FieldType::Text),
        optional("Endpoint", "endpoint", FieldType::Text),
        optional("Prefix", "prefix", FieldType::Text),
        optional("Region", "region", FieldType::Text),
    ],
    embedded: None,
};

static CREDENTIAL: StructType = StructType {
    name: "param.Credential",
    fields: &[
        field("Type", FieldType::Text),
        field("KeyPair", FieldType::Pointer(&KEY_PAIR)),
        field("Secret", FieldType::Pointer(&SECRET)),
        field("KopiaServerSecret", FieldType::Pointer(&KOPIA_SERVER_SECRET)),
    ],
    embedded: None,
};

static KEY_PAIR: StructType = StructType {
    name: "param.KeyPair",
    fields: &[field("ID", FieldType::Text), field("Secret", FieldType::Text)],
    embedded: None,
};

static REPOSITORY_SERVER: StructType = StructType {
    name: "param.RepositoryServer",
    fields: &[
        field("Name", FieldType::Text),
        field("Namespace", FieldType::Text),
        field("ServerInfo", FieldType::Struct(&SERVER_INFO)),
        field("Username", FieldType::Text),
        field("Credentials", FieldType::Struct(&REPOSITORY_SERVER_CREDENTIALS)),
        field("Address", FieldType::Text),
        field("ContentCacheMB", FieldType::Int),
        field("MetadataCacheMB", FieldType::Int),
    ],
    embedded: None,
};

static SERVER_INFO: StructType = StructType {
    name: "v1alpha1.ServerInfo",
    fields: &[optional("PodName", "podName", FieldType::Text), optional("ServiceName", "serviceName", FieldType::Text)],
    embedded: None,
};

static REPOSITORY_SERVER_CREDENTIALS: StructType = StructType {
    name: "param.RepositoryServerCredentials",
    fields: &[field("ServerTLS", FieldType::Struct(&SECRET)), field("ServerUserAccess", FieldType::Struct(&SECRET))],
    embedded: None,
};

static KOPIA_SERVER_SECRET: StructType = StructType {
    name: "param.KopiaServerCreds",
    fields: &[
        field("Username", FieldType::Text),
        field("Hostname", FieldType::Text),
        field("Password", FieldType::Text),
        field("Cert", FieldType::Text),
        field("ConnectOptions", FieldType::IntMap),
    ],
    embedded: None,
};

static OBJECT_META: StructType = StructType {
    name: "v1.ObjectMeta",
    fields: &[
        optional("Name", "name", FieldType::Text),
        optional("GenerateName", "generateName", FieldType::Text),
        optional("Namespace", "namespace", FieldType::Text),
        optional("UID", "uid", FieldType::Text),
        optional("ResourceVersion", "resourceVersion", FieldType::Text),
        optional("Generation", "generation", FieldType::Int),
        optional("CreationTimestamp", "creationTimestamp", FieldType::Any),
        optional("DeletionTimestamp", "deletionTimestamp", FieldType::Any),
        optional("Labels", "labels", FieldType::TextMap),
        optional("Annotations", "annotations", FieldType::TextMap),
        optional("OwnerReferences", "ownerReferences", FieldType::Any),
        optional("Finalizers", "finalizers", FieldType::Texts),
        optional("ManagedFields", "managedFields", FieldType::Any),
    ],
    embedded: None,
};

static SECRET: StructType = StructType {
    name: "v1.Secret",
    fields: &[
        optional("Kind", "kind", FieldType::Text),
        optional("APIVersion", "apiVersion", FieldType::Text),
        tagged("ObjectMeta", "metadata", FieldType::Struct(&OBJECT_META)),
        optional("Immutable", "immutable", FieldType::Any),
        optional("Data", "data", FieldType::BytesMap),
        optional("StringData", "stringData", FieldType::TextMap),
        optional("Type", "type", FieldType::Text),
    ],
    embedded: Some("ObjectMeta"),
};

static CONFIG_MAP: StructType = StructType {
    name: "v1.ConfigMap",
    fields: &[
        optional("Kind", "kind", FieldType::Text),
        optional("APIVersion", "apiVersion", FieldType::Text),
        tagged("ObjectMeta", "metadata", FieldType::Struct(&OBJECT_META)),
        optional("Immutable", "immutable", FieldType::Any),
        optional("Data", "data", FieldType::TextMap),
        optional("BinaryData", "binaryData", FieldType::BytesMap),
    ],
    embedded: Some("ObjectMeta"),
};
