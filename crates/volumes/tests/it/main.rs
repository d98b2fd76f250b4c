//! Tests of the public interface of the volumes.

mod repository_key;
mod restore_wait;
mod transfer;
mod transfer_name;
mod transfer_timeout;
