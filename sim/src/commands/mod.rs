//! One file per subcommand.

pub(crate) mod load;
pub(crate) mod serve;
