//! What a server can be told to do wrong.
//!
//! A fault is written `KIND`, `KIND:NUMBER` or `KIND:NUMBER:RATE`, on the command line and over
//! HTTP alike: `slow:500`, `error:503`, `error:503:0.5`, `reset:0.1`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

/// All faults of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// How the metrics page is answered.
    pub metrics: MetricsFault,
    /// How requests are answered.
    pub requests: RequestFault,
    /// The share of requests that the fault hits, `0..=1`, spread evenly; `None` is all of them.
    pub rate: Option<f64>,
    /// Whether connections are refused.
    pub refuse: bool,
}

/// How the metrics page is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsFault {
    /// As it should be.
    #[default]
    Ok,
    /// After a delay.
    Slow(Duration),
    /// With 200 and nothing.
    Empty,
    /// With 200 and a web page.
    Html,
    /// With 404.
    NotFound,
    /// With 500.
    Error,
    /// Never.
    Hang,
    /// With a page that ends in the middle of a line; the HTTP message itself is whole.
    Truncated,
    /// With half the promised bytes, and then the connection closes.
    Cut,
    /// With the page as it was when the fault began.
    Stale,
}

/// How a request that is not for the metrics page is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestFault {
    /// As it should be.
    #[default]
    Ok,
    /// With this status and an error body.
    Error(u16),
    /// With 200 and a stream whose only event is an error, as of an engine that has died.
    ErrorEvent,
    /// Never.
    Hang,
    /// By closing the connection.
    Reset,
    /// With 200 and the beginning of a stream, and then the connection closes.
    Cut,
}

/// Why a fault could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// No fault is called that, or its number is not one it can have.
    Unknown(String),
    /// The body is not a JSON object.
    NotAnObject,
    /// The object has a field that means nothing here, or a value of the wrong type.
    Field(String),
}

/// A change of the faults, as it is sent over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultChange {
    /// The faults once the change is made.
    pub faults: Faults,
    /// How long connections are refused; `None` is until the next change.
    pub refuse_for: Option<Duration>,
    /// Whether the server starts afresh: counters at 0, cache empty, requests in flight cut.
    pub restart: bool,
}

impl FaultChange {
    /// Reads a change of `current`; fields that are not there stay as they are.
    pub fn parse(body: &[u8], current: Faults) -> Result<Self, FaultError> {
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else {
            return Err(FaultError::NotAnObject);
        };
        let mut change = Self {
            faults: current,
            ..Self::default()
        };
        for (name, value) in &fields {
            let wrong = || FaultError::Field(name.clone());
            match (name.as_str(), value) {
                ("metrics", Value::String(text)) => change.faults.metrics = text.parse()?,
                ("requests", Value::String(text)) => change.faults.set_requests(text)?,
                ("refuse", Value::Bool(refuse)) => change.faults.refuse = *refuse,
                ("refuse_ms", Value::Number(_)) => {
                    change.faults.refuse = true;
                    let millis = value.as_u64().ok_or_else(wrong)?;
                    change.refuse_for = Some(Duration::from_millis(millis));
                }
                ("restart", Value::Bool(restart)) => change.restart = *restart,
                _ => return Err(wrong()),
            }
        }
        Ok(change)
    }
}

impl Faults {
    /// Sets how requests are answered, from `KIND`, `KIND:RATE`, `error:STATUS` or
    /// `error:STATUS:RATE`.
    pub fn set_requests(&mut self, text: &str) -> Result<(), FaultError> {
        let unknown = || FaultError::Unknown(text.to_owned());
        let mut words = text.split(':');
        let fault = match words.next() {
            Some("ok") => RequestFault::Ok,
            Some("hang") => RequestFault::Hang,
            Some("reset") => RequestFault::Reset,
            Some("cut") => RequestFault::Cut,
            Some("error-event") => RequestFault::ErrorEvent,
            Some("error") => {
                let status = words.next().and_then(|word| word.parse().ok());
                let status = status.filter(|status| (400..600).contains(status));
                RequestFault::Error(status.ok_or_else(unknown)?)
            }
            _ => return Err(unknown()),
        };
        let rate = match words.next().map(str::parse::<f64>) {
            None => None,
            Some(Ok(rate)) if (0.0..=1.0).contains(&rate) => Some(rate),
            Some(_) => return Err(unknown()),
        };
        if words.next().is_some() {
            return Err(unknown());
        }
        self.requests = fault;
        self.rate = rate;
        Ok(())
    }

    /// How the request number `number`, counted from 0, is answered.
    pub fn request_fault(&self, number: u64) -> RequestFault {
        let Some(rate) = self.rate else {
            return self.requests;
        };
        let hits_before = (number as f64 * rate).floor();
        let hits_after = ((number + 1) as f64 * rate).floor();
        if hits_after > hits_before {
            self.requests
        } else {
            RequestFault::Ok
        }
    }

    /// The faults as JSON, in the words that [`FaultChange::parse`] reads.
    pub fn to_json(&self) -> Value {
        let mut requests = match self.requests {
            RequestFault::Ok => "ok".to_owned(),
            RequestFault::Error(status) => format!("error:{status}"),
            RequestFault::Hang => "hang".to_owned(),
            RequestFault::Reset => "reset".to_owned(),
            RequestFault::Cut => "cut".to_owned(),
            RequestFault::ErrorEvent => "error-event".to_owned(),
        };
        if let Some(rate) = self.rate {
            requests.push_str(&format!(":{rate}"));
        }
        json!({
            "metrics": self.metrics.to_string(),
            "requests": requests,
            "refuse": self.refuse,
        })
    }
}

impl FromStr for MetricsFault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let unknown = || FaultError::Unknown(text.to_owned());
        if let Some(millis) = text.strip_prefix("slow:") {
            let millis = millis.parse().map_err(|_| unknown())?;
            return Ok(Self::Slow(Duration::from_millis(millis)));
        }
        let named = METRICS_FAULTS.iter().find(|fault| fault.1 == text);
        named.map(|fault| fault.0).ok_or_else(unknown)
    }
}

impl fmt::Display for MetricsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Slow(delay) = self {
            return write!(f, "slow:{}", delay.as_millis());
        }
        let named = METRICS_FAULTS.iter().find(|fault| fault.0 == *self);
        f.write_str(named.map_or("ok", |fault| fault.1))
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => write!(f, "there is no fault `{text}`"),
            Self::NotAnObject => write!(f, "the body is not a JSON object"),
            Self::Field(name) => write!(f, "the field `{name}` is unknown or of the wrong type"),
        }
    }
}

impl std::error::Error for FaultError {}

/// The metrics faults that are a word.
const METRICS_FAULTS: [(MetricsFault, &str); 9] = [
    (MetricsFault::Ok, "ok"),
    (MetricsFault::Empty, "empty"),
    (MetricsFault::Html, "html"),
    (MetricsFault::NotFound, "not-found"),
    (MetricsFault::Error, "error"),
    (MetricsFault::Hang, "hang"),
    (MetricsFault::Truncated, "truncated"),
    (MetricsFault::Cut, "cut"),
    (MetricsFault::Stale, "stale"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_back_as_it_was_written() {
        for metrics in [
            "ok",
            "slow:500",
            "empty",
            "html",
            "not-found",
            "error",
            "hang",
        ] {
            assert_eq!(
                metrics.parse::<MetricsFault>().unwrap().to_string(),
                metrics
            );
        }
        for requests in [
            "ok",
            "error:503",
            "error:429:0.25",
            "hang",
            "reset",
            "reset:0.5",
            "cut",
            "error-event",
        ] {
            let mut faults = Faults::default();
            faults.set_requests(requests).unwrap();
            assert_eq!(faults.to_json()["requests"], requests);
        }
    }

    #[test]
    fn what_is_not_a_fault_is_refused() {
        for metrics in ["", "slow", "slow:x", "broken"] {
            assert!(metrics.parse::<MetricsFault>().is_err(), "{metrics}");
        }
        for requests in [
            "",
            "error",
            "error:200",
            "error:503:2",
            "hang:x",
            "reset:0.5:1",
        ] {
            assert!(
                Faults::default().set_requests(requests).is_err(),
                "{requests}"
            );
        }
        for body in [
            "",
            "[]",
            r#"{"metric":"ok"}"#,
            r#"{"refuse":1}"#,
            r#"{"refuse_ms":-1}"#,
        ] {
            assert!(
                FaultChange::parse(body.as_bytes(), Faults::default()).is_err(),
                "{body}"
            );
        }
    }

    #[test]
    fn a_change_leaves_alone_what_it_does_not_name() {
        let current = Faults {
            metrics: MetricsFault::Html,
            ..Faults::default()
        };
        let change = FaultChange::parse(br#"{"requests":"hang","restart":true}"#, current);
        let faults = Faults {
            requests: RequestFault::Hang,
            ..current
        };
        assert_eq!(
            change,
            Ok(FaultChange {
                faults,
                refuse_for: None,
                restart: true
            })
        );
    }

    #[test]
    fn a_rate_spreads_its_hits_evenly() {
        let faults = Faults {
            requests: RequestFault::Hang,
            rate: Some(0.25),
            ..Faults::default()
        };
        let hits: Vec<_> = (0..12)
            .map(|it| faults.request_fault(it) != RequestFault::Ok)
            .collect();
        let expected: Vec<_> = (0..12).map(|it| it % 4 == 3).collect();
        assert_eq!(hits, expected);
    }
}
