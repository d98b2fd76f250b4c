//! ObjectStore.

use std::collections::HashMap;

use prost::Message;

use super::{ClientStreaming, Empty, Method, ServerStreaming, plugin_requests};

#[derive(Clone, PartialEq, Eq, Message)]
pub struct InitRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(map = "string, string", tag = "2")]
    pub config: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct PutObjectRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    #[prost(string, tag = "3")]
    pub key: String,
    #[prost(bytes = "bytes", tag = "4")]
    pub body: bytes::Bytes,
}

/// One object, for ObjectExists, GetObject and DeleteObject.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ObjectRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    #[prost(string, tag = "3")]
    pub key: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ObjectExistsResponse {
    #[prost(bool, tag = "1")]
    pub exists: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ObjectBytes {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: bytes::Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListCommonPrefixesRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    #[prost(string, tag = "3")]
    pub delimiter: String,
    #[prost(string, tag = "4")]
    pub prefix: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListCommonPrefixesResponse {
    #[prost(string, repeated, tag = "1")]
    pub prefixes: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListObjectsRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    #[prost(string, tag = "3")]
    pub prefix: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListObjectsResponse {
    #[prost(string, repeated, tag = "1")]
    pub keys: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateSignedUrlRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub bucket: String,
    #[prost(string, tag = "3")]
    pub key: String,
    /// Nanoseconds.
    #[prost(int64, tag = "4")]
    pub ttl: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateSignedUrlResponse {
    #[prost(string, tag = "1")]
    pub url: String,
}

pub const INIT_STORE: Method<InitRequest, Empty> = Method::new("/generated.ObjectStore/Init");
pub const PUT_OBJECT: Method<PutObjectRequest, Empty, ClientStreaming> =
    Method::new("/generated.ObjectStore/PutObject");
pub const OBJECT_EXISTS: Method<ObjectRequest, ObjectExistsResponse> =
    Method::new("/generated.ObjectStore/ObjectExists");
pub const GET_OBJECT: Method<ObjectRequest, ObjectBytes, ServerStreaming> =
    Method::new("/generated.ObjectStore/GetObject");
pub const LIST_COMMON_PREFIXES: Method<ListCommonPrefixesRequest, ListCommonPrefixesResponse> =
    Method::new("/generated.ObjectStore/ListCommonPrefixes");
pub const LIST_OBJECTS: Method<ListObjectsRequest, ListObjectsResponse> =
    Method::new("/generated.ObjectStore/ListObjects");
pub const DELETE_OBJECT: Method<ObjectRequest, Empty> = Method::new("/generated.ObjectStore/DeleteObject");
pub const CREATE_SIGNED_URL: Method<CreateSignedUrlRequest, CreateSignedUrlResponse> =
    Method::new("/generated.ObjectStore/CreateSignedURL");

plugin_requests!(
    InitRequest,
    PutObjectRequest,
    ObjectRequest,
    ListCommonPrefixesRequest,
    ListObjectsRequest,
    CreateSignedUrlRequest
);
