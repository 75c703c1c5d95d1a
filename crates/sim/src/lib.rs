//! Whole stores run from one seed, cut and faulted, against a model.
