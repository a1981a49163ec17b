//! Conditions on labels, as Kubernetes has them.

use alloc::string::String;
use alloc::vec::Vec;

/// Labels that an endpoint must have: all of the requirements hold. None hold always.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LabelSelector {
    /// The requirements.
    pub requirements: Vec<Requirement>,
}

/// What one label must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    /// The label.
    pub label: String,
    /// Values that fit.
    pub values: Vec<String>,
    /// Whether any value fits that is not in `values`, instead of those that are.
    pub is_negated: bool,
    /// Whether an endpoint fits that has no such label.
    pub fits_without: bool,
}

impl LabelSelector {
    /// Whether `labels` are as required.
    pub fn fits(&self, labels: &[(String, String)]) -> bool {
        self.requirements.iter().all(|it| it.fits(labels))
    }
}

impl Requirement {
    fn fits(&self, labels: &[(String, String)]) -> bool {
        let label = labels.iter().find(|(name, _)| *name == self.label);
        match label {
            Some((_, value)) => self.values.contains(value) != self.is_negated,
            None => self.fits_without,
        }
    }
}
