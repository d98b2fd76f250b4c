//! From a tree to rows.
