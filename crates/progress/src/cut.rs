//! A tree that is small enough to store.
