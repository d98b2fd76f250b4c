//! Every rule of the progress model, as a property or a story.
