//! Messages of several services, and PluginLister.

use prost::Message;

use super::Method;

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResourceIdentifier {
    #[prost(string, tag = "1")]
    pub group: String,
    #[prost(string, tag = "2")]
    pub resource: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(string, tag = "4")]
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResourceSelector {
    #[prost(string, repeated, tag = "1")]
    pub included_namespaces: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub excluded_namespaces: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub included_resources: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub excluded_resources: Vec<String>,
    #[prost(string, tag = "5")]
    pub selector: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct OperationProgress {
    #[prost(bool, tag = "1")]
    pub completed: bool,
    #[prost(string, tag = "2")]
    pub err: String,
    #[prost(int64, tag = "3")]
    pub n_completed: i64,
    #[prost(int64, tag = "4")]
    pub n_total: i64,
    #[prost(string, tag = "5")]
    pub operation_units: String,
    #[prost(string, tag = "6")]
    pub description: String,
    #[prost(message, optional, tag = "7")]
    pub started: Option<prost_types::Timestamp>,
    #[prost(message, optional, tag = "8")]
    pub updated: Option<prost_types::Timestamp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct PluginIdentifier {
    #[prost(string, tag = "1")]
    pub command: String,
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListPluginsResponse {
    #[prost(message, repeated, tag = "1")]
    pub plugins: Vec<PluginIdentifier>,
}

pub const LIST_PLUGINS: Method<Empty, ListPluginsResponse> = Method::new("/generated.PluginLister/ListPlugins");
