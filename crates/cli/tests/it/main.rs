//! The binary, as users and crashes meet it.

mod architecture;
mod bed;
mod cancel;
mod commands;
mod killed;
mod refused;
mod round_trip;
