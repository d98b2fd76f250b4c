//! Kanister's functions: what each one is called, takes and gives.

pub mod table;
