//! An Envoy configuration as the rules see it, from whichever documents it came.
//!
//! A bootstrap, a dump of the admin interface and files of resources hold the same messages in
//! different boxes. What refers by name to something that is in none of the documents is left open:
//! the rules say nothing about what they do not see.

use super::place::Place;
use super::plugin::Plugin;
use super::route::{Route, routes};
use super::tree::Node;

/// A document and its name.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// What it is called in findings.
    pub(super) name: String,
    /// What it says.
    pub(super) tree: Node,
}

/// One Envoy.
#[derive(Debug, Default)]
pub(super) struct Model<'a> {
    /// What only a start can change; `None` when the documents do not have it.
    pub(super) bootstrap: Option<Place<'a>>,
    /// The clusters; none when the documents do not have them.
    pub(super) clusters: Vec<Place<'a>>,
    /// The connection managers that have the picker.
    pub(super) managers: Vec<Manager<'a>>,
    /// The picker's bootstrap services.
    pub(super) services: Vec<Plugin<'a>>,
    listeners: Vec<Place<'a>>,
    routes: Vec<Place<'a>>,
    extensions: Vec<Place<'a>>,
}

/// An HTTP connection manager that has the picker among its filters.
#[derive(Debug)]
pub(super) struct Manager<'a> {
    /// The listener it belongs to.
    pub(super) listener: Place<'a>,
    /// Its own configuration.
    pub(super) place: Place<'a>,
    /// Its HTTP filters, in the order in which requests pass them.
    pub(super) filters: Vec<Filter<'a>>,
    /// Its routes that lead to clusters; `None` when no document has them.
    pub(super) routes: Option<Vec<Route<'a>>>,
}

/// An HTTP filter.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    /// Its entry in the list.
    pub(super) place: Place<'a>,
    /// The last part of its type's name.
    pub(super) kind: &'a str,
    /// Its own configuration.
    pub(super) config: Place<'a>,
    /// The picker, where it is one.
    pub(super) picker: Option<Plugin<'a>>,
}

impl<'a> Model<'a> {
    /// What the documents say together; `None` when they say nothing of an Envoy.
    pub(super) fn new(sources: &'a [Source]) -> Option<Self> {
        let mut model = Self::default();
        for source in sources {
            model.read(Place::root(&source.name, &source.tree));
        }
        if let Some(bootstrap) = model.bootstrap.clone() {
            // A dump has the same again with what came later, except when it was asked for a part.
            if model.listeners.is_empty() {
                model.listeners = bootstrap.list("static_resources.listeners");
            }
            if model.clusters.is_empty() {
                model.clusters = bootstrap.list("static_resources.clusters");
            }
            let extensions = bootstrap.list("bootstrap_extensions");
            let services = extensions
                .iter()
                .map(|it| it.field("typed_config").message());
            let services = services.filter(|it| it.kind == "WasmService");
            let services = services.filter_map(|it| Plugin::read(&it.place.field("config")));
            model.services = services.collect();
        }
        model.managers = model.managers();
        let is_empty = model.bootstrap.is_none()
            && model.listeners.is_empty()
            && model.clusters.is_empty()
            && model.routes.is_empty();
        (!is_empty).then_some(model)
    }

    /// The bootstrap of an Envoy whose connection managers have the picker.
    pub(super) fn picking_bootstrap(&self) -> Option<&Place<'a>> {
        let bootstrap = self.bootstrap.as_ref();
        bootstrap.filter(|_| !self.managers.is_empty())
    }

    /// The cluster of this name.
    pub(super) fn cluster(&self, name: &str) -> Option<&Place<'a>> {
        let mut clusters = self.clusters.iter();
        clusters.find(|cluster| cluster.field("name").text() == Some(name))
    }

    /// The connection managers that have a picker which picks.
    pub(super) fn picking(&self) -> impl Iterator<Item = &Manager<'a>> {
        let managers = self.managers.iter();
        managers.filter(|manager| manager.pickers().next().is_some())
    }

    /// Every copy of the picker: in the connection managers, then as a service.
    pub(super) fn plugins(&self) -> impl Iterator<Item = &Plugin<'a>> {
        let managers = self.managers.iter().flat_map(Manager::plugins);
        managers.chain(&self.services)
    }

    fn read(&mut self, root: Place<'a>) {
        let elements = ["configs", "resources"].map(|list| root.list(list));
        let mut elements = elements.into_iter().flatten().peekable();
        if elements.peek().is_some() {
            elements.for_each(|element| self.collect(element));
            return;
        }
        let sections = ["static_resources", "dynamic_resources", "admin"];
        if sections.iter().any(|it| root.field(it).is_given()) {
            self.listeners
                .extend(root.list("static_resources.listeners"));
            self.clusters.extend(root.list("static_resources.clusters"));
            self.bootstrap = Some(root);
        }
    }

    /// Finds resources by their types, however deep a dump has them.
    fn collect(&mut self, place: Place<'a>) {
        let message = place.message();
        match message.kind {
            "Listener" => self.listeners.push(message.place),
            "Cluster" => self.clusters.push(message.place),
            "RouteConfiguration" => self.routes.push(message.place),
            "TypedExtensionConfig" => self.extensions.push(message.place),
            "BootstrapConfigDump" => self.bootstrap = Some(place.field("bootstrap")),
            _ => {
                for (name, field) in place.fields() {
                    // What is not in use, or not yet.
                    if ["draining_state", "error_state", "warming_state"].contains(&name) {
                        continue;
                    }
                    let list = place.list(name);
                    let fields = if list.is_empty() { vec![field] } else { list };
                    fields.into_iter().for_each(|field| self.collect(field));
                }
            }
        }
    }

    fn managers(&self) -> Vec<Manager<'a>> {
        let mut managers = Vec::new();
        for listener in &self.listeners {
            let mut chains = listener.list("filter_chains");
            chains.push(listener.field("default_filter_chain"));
            for filter in chains.iter().flat_map(|chain| chain.list("filters")) {
                let message = filter.field("typed_config").message();
                if message.kind == "HttpConnectionManager" {
                    managers.extend(self.manager(listener, message.place));
                }
            }
        }
        managers
    }

    fn manager(&self, listener: &Place<'a>, place: Place<'a>) -> Option<Manager<'a>> {
        let filters = place.list("http_filters").into_iter();
        let filters: Vec<Filter<'a>> = filters.map(|filter| self.filter(filter)).collect();
        filters.iter().find(|filter| filter.picker.is_some())?;
        let inline = Some(place.field("route_config")).filter(Place::is_given);
        let name = place.get("rds.route_config_name").text();
        let by_name = || {
            self.routes
                .iter()
                .find(|it| it.field("name").text() == name)
        };
        Some(Manager {
            listener: listener.clone(),
            routes: inline.as_ref().or_else(by_name).map(routes),
            filters,
            place,
        })
    }

    fn filter(&self, place: Place<'a>) -> Filter<'a> {
        let mut typed = place.field("typed_config");
        if place.field("config_discovery").is_given() {
            let name = place.field("name").text();
            let mut extensions = self.extensions.iter();
            if let Some(found) = extensions.find(|it| it.field("name").text() == name) {
                typed = found.field("typed_config");
            }
        }
        let message = typed.message();
        let picker = (message.kind == "Wasm")
            .then(|| Plugin::read(&message.place.field("config")))
            .flatten();
        Filter {
            place,
            kind: message.kind,
            config: message.place,
            picker,
        }
    }
}

impl<'a> Manager<'a> {
    /// Every copy of the picker here.
    pub(super) fn plugins(&self) -> impl Iterator<Item = &Plugin<'a>> {
        self.filters
            .iter()
            .filter_map(|filter| filter.picker.as_ref())
    }

    /// The copies that pick.
    pub(super) fn pickers(&self) -> impl Iterator<Item = &Plugin<'a>> {
        self.plugins().filter(|plugin| plugin.config().is_some())
    }

    /// The routes of requests that the picker picks for; none when they are not known.
    pub(super) fn picked_routes(&self) -> impl Iterator<Item = &Route<'a>> {
        let routes = self.routes.iter().flatten();
        routes.filter(|route| {
            let mut configs = self.pickers().filter_map(Plugin::config);
            configs.any(|config| route.may_serve(config))
        })
    }
}
