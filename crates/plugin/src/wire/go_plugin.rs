//! The services of go-plugin itself: health, output, shutdown.

use prost::Message;

use super::{Empty, Method, ServerStreaming};

/// The service name of the health check.
pub const HEALTH_SERVICE_NAME: &str = "plugin";
/// The status of a healthy process.
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

/// Redirected standard output (1) or standard error (2) of a plugin.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StdioData {
    #[prost(int32, tag = "1")]
    pub channel: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub data: Vec<u8>,
}

pub const CHECK_HEALTH: Method<HealthCheckRequest, HealthCheckResponse> = Method::new("/grpc.health.v1.Health/Check");
pub const STREAM_STDIO: Method<Empty, StdioData, ServerStreaming> = Method::new("/plugin.GRPCStdio/StreamStdio");
pub const SHUTDOWN: Method<Empty, Empty> = Method::new("/plugin.GRPCController/Shutdown");
