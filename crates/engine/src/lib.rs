//! Backup and restore as plan, run and outcome.
