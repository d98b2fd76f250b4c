//! What other programs rely on: the definitions, the wire format and the texts of faults.

mod crds;
mod durations;
mod round_trip;
mod upstream;
mod validation;
