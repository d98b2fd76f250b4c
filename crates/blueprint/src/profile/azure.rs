//! The clouds of Azure, by the names in `azure_storage_environment`.

use super::{ProfileError, Result};

/// A cloud that is not the public one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    UsGovernment,
    China,
    German,
}

impl Cloud {
    /// The cloud of this name; `None` for the public one.
    pub(super) fn parse(name: &str) -> Result<Option<Self>> {
        match name.to_ascii_lowercase().replace(['_', '-'], "").as_str() {
            "" | "azurecloud" | "azurepubliccloud" => Ok(None),
            "azureusgovernmentcloud" | "azureusgovernment" | "azureusgov" => Ok(Some(Self::UsGovernment)),
            "azurechinacloud" => Ok(Some(Self::China)),
            "azuregermancloud" => Ok(Some(Self::German)),
            _ => Err(ProfileError::invalid(format!("unknown azure_storage_environment {name:?}"))),
        }
    }

    /// The domain of its storage.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::UsGovernment => "core.usgovcloudapi.net",
            Self::China => "core.chinacloudapi.cn",
            Self::German => "core.cloudapi.de",
        }
    }

    /// The address of an account.
    pub(super) fn account_uri(self, account: &str) -> String {
        format!("https://{account}.blob.{}", self.suffix())
    }
}
