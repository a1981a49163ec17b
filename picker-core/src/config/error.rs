//! What can be wrong with a configuration, and what to write instead.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::units::show_duration;
use super::{PICKER_API_VERSION, SCRAPE_INTERVAL_MIN};
use crate::time::Span;

/// One mistake. Its text is one line: where, what, and how to put it right.
#[derive(Clone, PartialEq, Debug)]
pub struct ConfigError {
    /// Where: `pools[0].scrape.interval`, or `configuration` for the document as a whole.
    pub path: String,
    /// What.
    pub cause: Cause,
}

/// Something that was read differently from what is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigWarning {
    /// The interval at `path` is below [`SCRAPE_INTERVAL_MIN`], which is used.
    IntervalRaised {
        /// Where.
        path: String,
        /// What is written there.
        found: Span,
    },
    /// Plugins that may change or go in the reference picker, which has a flag for them.
    Alpha {
        /// Where.
        path: String,
        /// Their names.
        plugins: Vec<String>,
    },
    /// Something that has a successor.
    Deprecated {
        /// Where.
        path: String,
        /// What.
        name: String,
        /// The successor.
        instead: String,
    },
    /// Something that has no effect.
    NoEffect {
        /// Where.
        path: String,
        /// Why.
        why: &'static str,
    },
}

impl ConfigWarning {
    /// Queues are described at `path` and not switched on.
    pub(super) fn gate_off(path: String) -> Self {
        let why = "the feature gate flowControl is off";
        Self::NoEffect { path, why }
    }
}

/// What is wrong.
#[derive(Clone, PartialEq, Debug)]
pub enum Cause {
    /// The text is no JSON at all.
    NotJson,
    /// The JSON is malformed.
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What the JSON reader says.
        reason: String,
    },
    /// The bytes are no serialized `google.protobuf.Struct`.
    NotStruct {
        /// The offset of the fault.
        at: usize,
    },
    /// A name that means nothing here.
    Unknown {
        /// What it would be the name of.
        what: &'static str,
        /// The name.
        name: String,
        /// What was probably meant.
        nearest: Option<String>,
        /// Every name that means something.
        known: Vec<String>,
    },
    /// Nothing is given where something must be.
    Missing(Wanted),
    /// The value is of another kind, or a text of another form.
    NotA {
        /// The value in a few words.
        found: String,
        /// What belongs there.
        wanted: Wanted,
    },
    /// The number, time or size is too small or too large.
    OutOfRange {
        /// The value.
        found: String,
        /// The least that may stand there.
        least: String,
        /// The most.
        most: String,
    },
    /// A whole number that some readers of the document would round.
    IntegerTooLarge(String),
    /// A list, an object or the document is too long.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The value is in use already.
    Duplicate {
        /// What it is.
        what: &'static str,
        /// The value.
        value: String,
        /// Where it stands first.
        first: String,
    },
    /// The address of an endpoint is none.
    Address {
        /// The text.
        address: String,
        /// What is wrong with it.
        fault: AddressFault,
    },
    /// A pool before this one takes all its requests.
    Shadowed {
        /// Where the other pool stands.
        by: String,
    },
    /// Metrics are stale before the next ones come.
    StaleBetweenScrapes {
        /// The interval that the threshold is not above.
        interval: Span,
    },
    /// `header` beside `via: filterState`.
    HeaderUnused,
    /// A key of the filter beside `serve: page`.
    BesidePage,
    /// The version of the picker's configuration is another's.
    ApiVersion(String),
    /// A plugin that does nothing in a profile.
    NotForProfiles(String),
    /// A weight for a plugin that scores nothing.
    WeightOfNoScorer(String),
    /// Something that only words tell, those of the reference picker where it has some.
    Told {
        /// What is wrong.
        what: String,
        /// What to do.
        fix: String,
    },
    /// So many more mistakes that are not listed.
    More(usize),
}

/// What belongs in a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is the text that its Display gives")]
pub enum Wanted {
    Object,
    List,
    Text,
    Boolean,
    Number,
    Integer,
    Duration,
    Size,
    Capacity,
    Weight,
    Name,
    PoolName,
    Host,
    Path,
    HeaderName,
    Pools,
    Endpoints,
    Address,
    PluginType,
    PluginRef,
    ProfileName,
    Targets,
}

/// What is wrong with an endpoint's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressFault {
    /// It has a scheme like `http://`.
    Scheme,
    /// It has a path.
    Path,
    /// It has white space.
    WhiteSpace,
    /// It has a host name in place of an IP address.
    HostName,
    /// It has no port.
    NoPort,
    /// The port is no number from 1 to 65535.
    Port,
    /// It is an IPv6 address without brackets.
    Brackets,
    /// It means any address, or many.
    NotOneHost,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}.", self.path, self.cause)?;
        match &self.cause {
            Cause::More(_) => Ok(()),
            cause => {
                f.write_str(" Fix: ")?;
                cause.fix(f)?;
                f.write_str(".")
            }
        }
    }
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IntervalRaised { path, found } => write!(
                f,
                "{path}: {} is less than {}, which is used instead.",
                show_duration(*found),
                show_duration(SCRAPE_INTERVAL_MIN),
            ),
            Self::Alpha { path, plugins } => write!(
                f,
                "{path}: these are alpha in the reference picker and may change there: {}.",
                Names(plugins),
            ),
            Self::Deprecated {
                path,
                name,
                instead,
            } => write!(
                f,
                "{path}: {name} is deprecated, {instead} takes its place."
            ),
            Self::NoEffect { path, why } => write!(f, "{path}: this has no effect, for {why}."),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("this is not JSON"),
            Self::Syntax {
                line,
                column,
                reason,
            } => write!(f, "not JSON: {reason}, line {line} column {column}"),
            Self::NotStruct { at } => {
                write!(f, "neither JSON nor a protobuf Struct, from byte {at}")
            }
            Self::Unknown { what, name, .. } => write!(f, "{name:?} is no known {what}"),
            Self::Missing(wanted) => write!(f, "{wanted} is missing"),
            Self::NotA { found, wanted } => write!(f, "{found} is not {wanted}"),
            Self::OutOfRange { found, least, most } => {
                write!(f, "{found} is not between {least} and {most}")
            }
            Self::IntegerTooLarge(found) => write!(f, "{found} is above 2^53 and may be rounded"),
            Self::TooMany { what, count, most } => {
                write!(f, "{count} {what} are more than {most}")
            }
            Self::Duplicate { what, value, first } => {
                write!(f, "the {what} {value:?} is already that of {first}")
            }
            Self::Address { address, fault } => write!(f, "{address:?} {fault}"),
            Self::Shadowed { by } => {
                write!(f, "{by} comes first and takes every request of this pool")
            }
            Self::StaleBetweenScrapes { interval } => write!(
                f,
                "metrics are stale before the next ones come, after {}",
                show_duration(*interval)
            ),
            Self::HeaderUnused => f.write_str("no header is set with via: filterState"),
            Self::BesidePage => f.write_str("serve: page picks nothing"),
            Self::ApiVersion(found) => write!(f, "{found:?} is not the version of this document"),
            Self::NotForProfiles(plugin) => {
                write!(f, "{plugin:?} neither filters, scores nor picks")
            }
            Self::WeightOfNoScorer(plugin) => {
                write!(f, "{plugin:?} is no scorer and has no weight")
            }
            Self::Told { what, .. } => f.write_str(what),
            Self::More(count) => write!(f, "{count} more mistakes"),
        }
    }
}

impl Cause {
    /// What to write instead.
    fn fix(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson | Self::Syntax { .. } | Self::NotStruct { .. } => {
                f.write_str("give a JSON object, or a google.protobuf.Struct")
            }
            Self::Unknown {
                nearest: Some(nearest),
                ..
            } => write!(f, "write {nearest:?}"),
            Self::Unknown { known, .. } if known.is_empty() => f.write_str("remove it"),
            Self::Unknown { known, .. } => write!(f, "use one of {}", Names(known)),
            Self::Missing(wanted) | Self::NotA { wanted, .. } => {
                write!(f, "write {}", wanted.example())
            }
            Self::OutOfRange { least, most, .. } => {
                write!(f, "choose a value from {least} to {most}")
            }
            Self::IntegerTooLarge(_) => f.write_str("choose a smaller number"),
            Self::TooMany { most, .. } => write!(f, "leave {most} or fewer"),
            Self::Duplicate { what, .. } => write!(f, "choose another {what} or remove one"),
            Self::Address { fault, .. } => fault.fix(f),
            Self::Shadowed { by } => write!(f, "narrow the match of {by}, or put this pool first"),
            Self::StaleBetweenScrapes { .. } => f.write_str("make it longer than the interval"),
            Self::HeaderUnused => f.write_str("remove it, or write via: header"),
            Self::BesidePage => f.write_str("remove it, or remove serve"),
            Self::ApiVersion(_) => write!(f, "write {PICKER_API_VERSION}"),
            Self::NotForProfiles(_) => f.write_str("remove the reference"),
            Self::WeightOfNoScorer(_) => f.write_str("remove the weight"),
            Self::Told { fix, .. } => f.write_str(fix),
            Self::More(_) => Ok(()),
        }
    }

    /// A mistake told in words.
    pub(super) fn told(what: String, fix: String) -> Self {
        Self::Told { what, fix }
    }
}

impl Wanted {
    /// How it looks.
    fn example(self) -> &'static str {
        match self {
            Self::Object => "an object, like {\"key\": \"value\"}",
            Self::List => "a list, like [\"one\", \"two\"]",
            Self::Text => "a text in quotes",
            Self::Boolean => "true or false, without quotes",
            Self::Number => "a number without quotes",
            Self::Integer => "a whole number without quotes",
            Self::Duration => "a number with a unit, like 100ms or 2s",
            Self::Size => "a number of bytes, like 33554432 or 32Mi",
            Self::Capacity => "a number of tokens, or auto",
            Self::Weight => "a number from 0 up, like 2 or 0.5",
            Self::Name | Self::ProfileName => "a text that is not empty",
            Self::PoolName => "lower-case letters, digits, - and . only, like llama3",
            Self::Host => "a whole host name without port, like api.example.com",
            Self::Path => "a path that begins with / and has no query, like /metrics",
            Self::HeaderName => "the name of a header that is not Host, like x-endpoint",
            Self::Pools => "a list of pools, like [{\"name\": \"llama3\", \"endpoints\": […]}]",
            Self::Endpoints => "a list of endpoints, like [{\"address\": \"10.0.0.1:8000\"}]",
            Self::Address => "an IP address and a port, like 10.0.0.1:8000",
            Self::PluginType => "the type of a plugin, like queue-scorer",
            Self::PluginRef => "the name of a plugin of the list above",
            Self::Targets => "a list of targets, like [{\"modelRewrite\": \"llama-3.1-8b\"}]",
        }
    }
}

impl AddressFault {
    fn fix(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "leave the scheme out, like 10.0.0.1:8000",
            Self::Path => "leave the path out; scrape.path is the path of the metrics",
            Self::WhiteSpace => "leave the white space out, like 10.0.0.1:8000",
            Self::HostName => "write the IP address; Envoy cannot send to a name it does not know",
            Self::NoPort => "add the port, like 10.0.0.1:8000",
            Self::Port => "write a port from 1 to 65535",
            Self::Brackets => "put the address in brackets, like [2001:db8::1]:8000",
            Self::NotOneHost => "write the address of one server",
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "an object",
            Self::List => "a list",
            Self::Text => "a text",
            Self::Boolean => "true or false",
            Self::Number => "a number",
            Self::Integer => "a whole number",
            Self::Duration => "a duration",
            Self::Size => "a size",
            Self::Capacity => "a capacity",
            Self::Weight => "a weight",
            Self::Name | Self::ProfileName => "a name",
            Self::PoolName => "a pool name",
            Self::Host => "a host name",
            Self::Path => "a path",
            Self::HeaderName => "a header name",
            Self::Pools => "a list of pools",
            Self::Endpoints => "a list of endpoints",
            Self::Address => "an address",
            Self::PluginType => "a plugin type",
            Self::PluginRef => "a reference to a plugin",
            Self::Targets => "a list of targets",
        })
    }
}

impl fmt::Display for AddressFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "has a scheme",
            Self::Path => "has a path",
            Self::WhiteSpace => "has white space",
            Self::HostName => "has a host name",
            Self::NoPort => "has no port",
            Self::Port => "has no usable port",
            Self::Brackets => "is an IPv6 address without brackets",
            Self::NotOneHost => "is not the address of one host",
        })
    }
}

/// Names with commas between them.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}
