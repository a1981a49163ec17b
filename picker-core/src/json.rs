//! JSON in pieces, for bodies that arrive in chunks cut anywhere.

pub(crate) mod lexer;
mod number;
pub(crate) mod pull;
mod search;
pub(crate) mod short;
mod skip;
mod text;
