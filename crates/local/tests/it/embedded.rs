//! The conformance suite on the embedded API, in process and over HTTPS.

use crate::conformance::{self, Scope, for_each_case};
use plimsoll_local::{Api, Options};

/// An API in a temporary directory.
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

mod in_process {
    use super::*;

    macro_rules! cases {
        ($($module:ident: $case:ident,)*) => { $(
            #[tokio::test]
            async fn $case() {
                let embedded = Embedded::open().await;
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
            /// One server for all cases: this tests the HTTPS path.
            #[tokio::test]
            async fn every_case_passes_over_https_too() {
                let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
                let embedded = Embedded::open().await;
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

mod elsewhere {
    use super::*;
    use kube::{
        Client, Config,
        config::{KubeConfigOptions, Kubeconfig},
    };

    const KUBECONFIG: &str = "PLIMSOLL_CONFORMANCE_KUBECONFIG";

    macro_rules! cases {
        ($($module:ident: $case:ident,)*) => {
            /// Runs the suite against a real cluster with a controller manager.
            #[tokio::test]
            async fn every_case_passes_on_the_configured_cluster() {
                let Some(path) = std::env::var_os(KUBECONFIG) else {
                    eprintln!("skipped every_case_passes_on_the_configured_cluster: {KUBECONFIG} is not set");
                    return;
                };
                let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
                let kubeconfig = Kubeconfig::read_from(path).unwrap();
                let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
                let client = Client::try_from(config).unwrap();
                let mut failed = Vec::new();
                $({
                    let client = client.clone();
                    let case = tokio::spawn(async move {
                        let scope = Scope::new(client, "conformance").await;
                        conformance::$module::$case(&scope).await;
                        scope.end().await;
                    });
                    failed.extend(case.await.is_err().then_some(stringify!($case)));
                })*
                assert!(failed.is_empty(), "{failed:?}");
            }
        };
    }
    for_each_case!(cases);
}
