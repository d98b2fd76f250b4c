//! What is explanation about objects, from the objects alone.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]

mod causes;
mod following;
mod kanister;
mod overview;
mod stock;
