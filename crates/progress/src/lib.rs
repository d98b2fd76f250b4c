//! The progress model: operations, tasks and meters, and what can honestly be said about them.
