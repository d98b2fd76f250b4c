//! Pure decisions: which objects, in which order, changed how.
