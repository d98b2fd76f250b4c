//! The engine from outside: faithful, compatible with restic, safe when killed, honest about damage.

mod browsing;
mod cancelling;
mod crashing;
mod damage;
mod faithful;
mod fault;
mod hostile;
mod interop;
mod locking;
mod memory;
mod s3;
mod world;
