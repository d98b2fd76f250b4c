//! The restic repository format: an engine that reads and writes it.
