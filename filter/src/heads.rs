//! What is read of a request's and of an answer's headers, each map asked of the host once.

use picker_core::{Head, OWNED_HEADERS, prefers_cached};

use crate::host::{self, HeaderMap};
use crate::reading::Encoding;
use crate::worker::Worker;

/// Headers of an answer. Of several of one name the first counts; one that is not UTF-8 is empty.
#[derive(Default)]
pub(crate) struct AnswerHead<'a> {
    pub(crate) status: Option<&'a str>,
    pub(crate) media_type: Option<&'a str>,
    pub(crate) encoding: Option<&'a str>,
    /// How long its body is, if it says so.
    pub(crate) length: Option<&'a str>,
    /// What the endpoint says of its load.
    pub(crate) report: Option<&'a str>,
}

impl<'a> AnswerHead<'a> {
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        let mut head = Self::default();
        for (name, value) in headers.iter() {
            let known = match name {
                b":status" => &mut head.status,
                b"content-type" => &mut head.media_type,
                b"content-encoding" => &mut head.encoding,
                b"content-length" => &mut head.length,
                b"endpoint-load-metrics" => &mut head.report,
                _ => continue,
            };
            known.get_or_insert(std::str::from_utf8(value).unwrap_or_default());
        }
        head
    }
}

/// The headers that plans of pools ask for, the first of several of one name; what is not UTF-8 is
/// replaced.
pub(crate) fn asked(worker: &Worker, headers: &HeaderMap) -> Vec<(String, String)> {
    let mut asked: Vec<(String, String)> = Vec::new();
    if worker.asked.is_empty() {
        return asked;
    }
    for (name, value) in headers.iter() {
        let wanted = worker.asked.iter().find(|it| it.as_bytes() == name);
        if let Some(name) = wanted.filter(|name| asked.iter().all(|(it, _)| it != *name)) {
            asked.push((name.clone(), String::from_utf8_lossy(value).into_owned()));
        }
    }
    asked
}

/// Reads the headers and removes those that only the picker may set.
///
/// Of several headers of one name the first counts. What is not UTF-8 is replaced, so it equals no
/// name of ours.
pub(crate) fn read_head<'a>(
    worker: &Worker,
    headers: &'a HeaderMap,
    ends: bool,
) -> (Head<'a>, Encoding) {
    let [
        mut method,
        mut path,
        mut host,
        mut upgrade,
        mut length,
        mut encoding,
    ] = [None; 6];
    let mut only_cached = false;
    for (name, value) in headers.iter() {
        let known = match name {
            b":method" => &mut method,
            b":path" => &mut path,
            b":authority" => &mut host,
            b"upgrade" => &mut upgrade,
            b"content-length" => &mut length,
            b"content-encoding" => &mut encoding,
            b"prefer" => {
                only_cached |= prefers_cached(value);
                continue;
            }
            _ => {
                // Only where it is there: every write makes Envoy match the route again.
                let owned = OWNED_HEADERS.iter().find(|owned| owned.as_bytes() == name);
                if let Some(owned) = owned {
                    let _ = host::remove_request_header(owned);
                }
                continue;
            }
        };
        known.get_or_insert(value);
    }
    let pools = &worker.config.pools;
    let by_cluster = pools.iter().any(|pool| !pool.matches.clusters.is_empty());
    let by_route = pools.iter().any(|pool| !pool.matches.routes.is_empty());
    let property = |is_asked: bool, path| is_asked.then(|| host::text_property(path)).flatten();
    let text = |value: Option<&'a [u8]>| String::from_utf8_lossy(value.unwrap_or_default());
    let length = length.and_then(|length| std::str::from_utf8(length).ok());
    let encoding = Encoding::of(encoding);
    let head = Head {
        method: text(method),
        path: text(path),
        host: text(host),
        cluster: property(by_cluster, &["xds", "cluster_name"]),
        route: property(by_route, &["xds", "route_name"]),
        ends,
        upgrades: upgrade.is_some(),
        encoded: encoding == Encoding::Unknown,
        content_length: length.and_then(|length| length.parse().ok()),
        only_cached,
    };
    (head, encoding)
}
