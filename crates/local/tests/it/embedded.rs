//! The conformance suite on the embedded API, in process and over HTTPS.

use crate::conformance::{self, Scope, for_each_case};
use plimsoll_local::{Api, Options, Retention};

/// An API in a directory that goes with it.
pub struct Embedded {
    pub api: Api,
    pub directory: tempfile::TempDir,
}

impl Embedded {
    pub async fn open() -> Self {
        Self::open_with(Options::default()).await
    }

    pub async fn open_with(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let api = Api::open_with(directory.path(), options).await.unwrap();
        Self { api, directory }
    }

    /// Closes the API and opens it again over the same data.
    pub async fn reopen(self) -> Self {
        let Self { api, directory } = self;
        api.close().await;
        drop(api);
        let api = Api::open(directory.path()).await.unwrap();
        Self { api, directory }
    }
}

/// A history so short that revision 1 has left it by the time a case runs.
fn forgetful() -> Options {
    Options { retention: Retention { events: 500, bytes: 1 << 20 }, ..Options::default() }
}

mod in_process {
    use super::*;

    macro_rules! cases {
        ($($module:ident: $case:ident,)*) => { $(
            #[tokio::test]
            async fn $case() {
                let embedded = Embedded::open_with(forgetful()).await.reopen().await;
                let scope = Scope::new(embedded.api.client("default"), "conformance").await;
                conformance::$module::$case(&scope).await;
                scope.end().await;
            }
        )* };
    }
    for_each_case!(cases);
}

mod over_https {
    use super::*;
    use kube::{
        Client, Config,
        config::{KubeConfigOptions, Kubeconfig},
    };

    macro_rules! cases {
        ($($module:ident: $case:ident,)*) => {
            /// One listener for all: what is tested here is the way through it.
            #[tokio::test]
            async fn every_case_passes_over_https_too() {
                let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
                let embedded = Embedded::open().await.reopen().await;
                let credentials = embedded.directory.path().join("credentials");
                let served = embedded.api.serve("127.0.0.1:0".parse().unwrap(), &credentials).await.unwrap();
                let kubeconfig = Kubeconfig::read_from(served.kubeconfig_path()).unwrap();
                let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
                let client = Client::try_from(config).unwrap();
                $({
                    let scope = Scope::new(client.clone(), "conformance").await;
                    conformance::$module::$case(&scope).await;
                    scope.end().await;
                })*
                served.shutdown().await;
            }
        };
    }
    for_each_case!(cases);
}
