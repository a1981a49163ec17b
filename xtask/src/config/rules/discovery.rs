//! The collector's way to who knows the endpoints.

use crate::config::finding::Finding;
use crate::config::model::Model;

/// Discovery asks through a cluster that is there.
pub(super) fn the_cluster_is_there(model: &Model<'_>) -> Vec<Finding> {
    if model.clusters.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for plugin in model.managers.iter().flat_map(|it| it.pickers()) {
        let pools = plugin.config().map(|config| &config.pools);
        for pool in pools.into_iter().flatten() {
            let name = pool.discovery.as_ref().map(|it| it.cluster.as_str());
            let Some(name) = name.filter(|name| model.cluster(name).is_none()) else {
                continue;
            };
            findings.push(plugin.place.get("configuration.value").warn(
                format!("the cluster {name} of discovery is no cluster here"),
                "Without it no endpoint is found, and no request is picked for",
                format!("add the cluster {name}; envoy/kubernetes-cluster.yaml has one"),
            ));
        }
    }
    findings
}
