//! Arguments of the dashboard.

use std::net::SocketAddr;

use clap::Args;

pub const UI: &str = "Where the Plimsoll server is installed, the data comes from it through the API server; you need access to `services/proxy` and
to the Secret plimsoll-dashboard. Elsewhere, with an unchanged Velero or Kanister, this process reads the cluster with your
kubeconfig. Ctrl-C stops it.

Examples:
  plimsoll ui
  plimsoll ui --no-open --listen 127.0.0.1:8086
  plimsoll ui -n velero --allow-changes";

/// `plimsoll ui`.
#[derive(Debug, Args)]
pub struct Ui {
    /// Address to listen on; loopback only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Print the URL without opening a browser
    #[arg(long)]
    pub no_open: bool,
    /// Read the cluster directly, even where the Plimsoll server is installed
    #[arg(long)]
    pub direct: bool,
    /// Allow cancelling and retrying operations in the page, with your permissions
    #[arg(long)]
    pub allow_changes: bool,
}

/// Options of the server for the dashboard.
#[derive(Debug, Args)]
pub struct Dashboard {
    /// Address to listen on for the dashboard, the event stream and /metrics
    #[arg(
        long = "dashboard-address",
        id = "dashboard_address",
        value_name = "ADDRESS",
        env = "PLIMSOLL_DASHBOARD_ADDRESS"
    )]
    pub address: Option<SocketAddr>,
    /// Allow cancelling and retrying operations in the dashboard, with the permissions of the server
    #[arg(long = "dashboard-allow-changes", id = "dashboard_allow_changes", requires = "dashboard_address")]
    pub allow_changes: bool,
    /// Require the token of the dashboard for /metrics
    #[arg(long, requires = "dashboard_address")]
    pub metrics_need_token: bool,
}
