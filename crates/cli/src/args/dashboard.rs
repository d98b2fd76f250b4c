//! What the dashboard takes.

use std::net::SocketAddr;

use clap::Args;

pub const UI: &str = "Where our server is installed it answers, through the API server: your rights on `services/proxy` and on the Secret
plimsoll-dashboard decide. Elsewhere, beside an unchanged Velero or Kanister, this process looks on itself, with your own
kubeconfig. Ctrl-C ends it.

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
    /// Print the address only
    #[arg(long)]
    pub no_open: bool,
    /// Look on from here, even where our server could answer
    #[arg(long)]
    pub direct: bool,
    /// Let the page cancel operations and do failed ones again, with your rights
    #[arg(long)]
    pub allow_changes: bool,
}

/// How the server serves it.
#[derive(Debug, Args)]
pub struct Dashboard {
    /// Listen here and serve the dashboard, the live stream and /metrics
    #[arg(
        long = "dashboard-address",
        id = "dashboard_address",
        value_name = "ADDRESS",
        env = "PLIMSOLL_DASHBOARD_ADDRESS"
    )]
    pub address: Option<SocketAddr>,
    /// Let the dashboard cancel operations and do failed ones again, with the server's rights
    #[arg(long = "dashboard-allow-changes", id = "dashboard_allow_changes", requires = "dashboard_address")]
    pub allow_changes: bool,
    /// Metrics need the dashboard's token, too
    #[arg(long, requires = "dashboard_address")]
    pub metrics_need_token: bool,
}
