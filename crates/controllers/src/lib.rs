//! One module for each custom resource: observe, decide, act.
