//! What an endpoint does for a request, as its label says.

/// The label.
pub(crate) const ROLE_LABEL: &str = "llm-d.ai/role";

/// The values that include decoding, which is also done where the label is missing.
pub(crate) const DECODES: &[&str] = &["decode", "prefill-decode", "both", "encode-prefill-decode"];

/// Those that include computing prompts.
pub(crate) const PREFILLS: &[&str] = &[
    "prefill",
    "encode-prefill",
    "prefill-decode",
    "both",
    "encode-prefill-decode",
];

/// Those that include encoding images and the like.
pub(crate) const ENCODES: &[&str] = &["encode", "encode-prefill", "encode-prefill-decode"];
