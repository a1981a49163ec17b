//! A route of Envoy that leads to clusters, and which requests take it.

use picker_core::{Config, Destination, PoolConfig};

use super::place::Place;

/// A route that leads to clusters.
#[derive(Clone, Debug)]
pub(super) struct Route<'a> {
    /// The table it is in.
    pub(super) table: Place<'a>,
    /// The virtual host it is in.
    pub(super) host: Place<'a>,
    /// The route.
    pub(super) place: Place<'a>,
    /// What it does: the message `route`.
    pub(super) action: Place<'a>,
}

/// The routes of a table that lead to clusters.
pub(super) fn routes<'a>(table: &Place<'a>) -> Vec<Route<'a>> {
    let hosts = table.list("virtual_hosts").into_iter();
    let routes = hosts.flat_map(|host| {
        let routes = host.list("routes").into_iter();
        routes.map(move |place| (host.clone(), place))
    });
    routes
        .filter(|(_, place)| place.field("route").is_given())
        .map(|(host, place)| Route {
            table: table.clone(),
            host,
            action: place.field("route"),
            place,
        })
        .collect()
}

impl<'a> Route<'a> {
    /// The clusters it leads to, as far as it names them.
    pub(super) fn clusters(&self) -> Vec<&'a str> {
        let weighted = self.action.list("weighted_clusters.clusters");
        let weighted = weighted.iter().map(|cluster| cluster.field("name"));
        let all = std::iter::once(self.action.field("cluster")).chain(weighted);
        all.filter_map(|cluster| cluster.text()).collect()
    }

    /// When a request is sent again: the route's own word, else that of its virtual host.
    pub(super) fn retry_policy(&self) -> Place<'a> {
        let own = self.action.field("retry_policy");
        let of_host = self.host.field("retry_policy");
        if own.is_given() { own } else { of_host }
    }

    /// Whether it is only for requests that have this header.
    pub(super) fn needs(&self, header: &str) -> bool {
        let matchers = self.place.list("match.headers");
        let mut ours = matchers
            .iter()
            .filter(|it| it.field("name").text() == Some(header));
        ours.any(|it| {
            let present = it.field("present_match");
            !it.field("invert_match").is_true() && (!present.is_given() || present.is_true())
        })
    }

    /// Whether every request that fits `other` fits this one too.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.place.field("match"), other.place.field("match"));
        let paths = ["prefix", "path", "path_separated_prefix"].map(|key| theirs.field(key).text());
        let is_same =
            |one: &Place<'_>, two: &Place<'_>| one.node().to_json() == two.node().to_json();
        let fits = |(name, condition): (&str, Place<'_>)| match name {
            "prefix" => {
                let prefix = condition.text().unwrap_or_default();
                let mut paths = paths.iter().flatten();
                prefix == "/" || paths.any(|path| path.starts_with(prefix))
            }
            "headers" => {
                let theirs = theirs.list("headers");
                let mut ours = ours.list("headers").into_iter();
                ours.all(|our| theirs.iter().any(|their| is_same(&our, their)))
            }
            name => is_same(&condition, &theirs.field(name)),
        };
        self.host.path == other.host.path && ours.fields().into_iter().all(fits)
    }

    /// Whether a request that this picker picks for can take it, before the pick or after.
    pub(super) fn may_serve(&self, config: &Config) -> bool {
        if let Destination::Header(header) = &config.destination
            && self.needs(header)
        {
            return true;
        }
        self.pools(config).next().is_some()
    }

    /// The pools whose requests can take it.
    pub(super) fn pools<'c>(&self, config: &'c Config) -> impl Iterator<Item = &'c PoolConfig> {
        config.pools.iter().filter(|pool| self.may_match(pool))
    }

    fn may_match(&self, pool: &PoolConfig) -> bool {
        let matches = &pool.matches;
        let names = |wanted: &[String], found: &[&str]| {
            wanted.is_empty()
                || found.is_empty()
                || found.iter().any(|name| wanted.iter().any(|it| it == name))
        };
        let name = self.place.field("name").text();
        let domains = self.host.list("domains");
        let host_fits = |host: &String| domains.iter().any(|it| fits(host, it.text()));
        let paths = ["prefix", "path", "path_separated_prefix"];
        let path = paths
            .iter()
            .find_map(|key| self.place.field("match").field(key).text());
        let path_fits = |wanted: &String| {
            path.is_none_or(|path| path.starts_with(wanted) || wanted.starts_with(path))
        };
        names(&matches.clusters, &self.clusters())
            && (matches.routes.is_empty() || names(&matches.routes, &[name.unwrap_or_default()]))
            && (matches.hosts.is_empty() || matches.hosts.iter().any(host_fits))
            && (matches.path_prefixes.is_empty() || matches.path_prefixes.iter().any(path_fits))
    }
}

/// Whether a host without port can be one of a virtual host's domain.
fn fits(host: &str, domain: Option<&str>) -> bool {
    let domain = domain.unwrap_or_default();
    let bare = match domain.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|it| it.is_ascii_digit() || it == b'*') => bare,
        _ => domain,
    };
    match (bare.strip_prefix('*'), bare.strip_suffix('*')) {
        (Some(end), _) => host.ends_with(end),
        (_, Some(start)) => host.starts_with(start),
        _ => host.eq_ignore_ascii_case(bare),
    }
}
