//! What a restore selected, on disk.
