//! What the plugin library itself serves beside a plugin's own services: health, output, the end.

use prost::Message;

use super::{Down, Empty, Method};

/// The name under which a process reports its health.
pub const HEALTH_OF: &str = "plugin";
/// The answer of a healthy one.
pub const SERVING: i32 = 1;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub service: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    pub status: i32,
}

/// A piece of what a plugin wrote to what it believes to be its standard output (1) or error (2).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StdioData {
    #[prost(int32, tag = "1")]
    pub channel: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

pub const CHECK_HEALTH: Method<HealthCheckRequest, HealthCheckResponse> = Method::at("/grpc.health.v1.Health/Check");
pub const STREAM_STDIO: Method<Empty, StdioData, Down> = Method::at("/plugin.GRPCStdio/StreamStdio");
pub const SHUT_DOWN: Method<Empty, Empty> = Method::at("/plugin.GRPCController/Shutdown");
