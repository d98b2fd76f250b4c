//! The conformance suite of the embedded API on Kubernetes, which must pass it too.

use plimsoll_testkit::{cluster, require};

#[allow(clippy::print_stderr, reason = "not `expect`: the suite belongs to another crate, which prints or does not")]
#[path = "../../../local/tests/it/conformance/mod.rs"]
mod suite;

macro_rules! on_the_real_cluster {
    ($($module:ident: $case:ident,)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let cluster = require!(cluster().await);
                let scope = suite::Scope::new(cluster.client().await.unwrap(), "conformance").await;
                suite::$module::$case(&scope).await;
                scope.end().await;
            }
        )*
    };
}

suite::for_each_case!(on_the_real_cluster);
