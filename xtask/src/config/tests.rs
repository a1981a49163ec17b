use std::{env, fs, process};

use serde_json::{Value, json};

use super::*;
use crate::bootstrap::{Bootstrap, PAGES, TRAFFIC};
use crate::compose::Destination;
use crate::workspace::root;

/// A change of a shipped configuration.
type Change = fn(&mut Bootstrap);

/// What is found in the shipped configuration of a destination after a change.
fn found(destination: Destination, change: Change) -> Vec<Finding> {
    let mut bootstrap = destination.shipped().unwrap();
    change(&mut bootstrap);
    found_in(&[bootstrap.value_mut()])
}

fn found_in(documents: &[&Value]) -> Vec<Finding> {
    let documents = documents.iter().enumerate();
    let documents: Vec<_> = documents
        .map(|(index, document)| (index.to_string(), document.to_string()))
        .collect();
    check(&documents).unwrap()
}

/// Checks that each change gives one finding, with this end of its path and these words.
fn check_each(destination: Destination, level: Level, cases: &[(Change, &str, &str)]) {
    for (change, path, words) in cases {
        let found = found(destination, *change);
        let [one] = found.as_slice() else {
            panic!("{path} {words}: {found:#?}");
        };
        assert_eq!(one.level, level, "{one}");
        assert!(one.path.ends_with(path), "{path} is not in: {one}");
        assert!(one.text.contains(words), "{words} is not in: {one}");
        assert!(level == Level::Note || one.text.contains(" Fix: "), "{one}");
    }
}

fn check_warnings(cases: &[(Change, &str, &str)]) {
    check_each(Destination::OriginalDst, Level::Warning, cases);
}

fn manager(it: &mut Bootstrap) -> &mut Value {
    it.manager_mut(TRAFFIC).unwrap()
}

fn filters(it: &mut Bootstrap) -> &mut Vec<Value> {
    manager(it)["http_filters"].as_array_mut().unwrap()
}

/// Envoy's configuration of the picker.
fn plugin(it: &mut Bootstrap) -> &mut Value {
    &mut manager(it)["http_filters"][0]["typed_config"]["config"]
}

fn host(it: &mut Bootstrap) -> &mut Value {
    &mut manager(it)["route_config"]["virtual_hosts"][0]
}

/// The route of picked requests is 0, of others 1.
fn route(it: &mut Bootstrap, index: usize) -> &mut Value {
    &mut host(it)["routes"][index]
}

fn cluster<'a>(it: &'a mut Bootstrap, name: &str) -> &'a mut Value {
    it.cluster_mut(name).unwrap()
}

fn http_options<'a>(it: &'a mut Bootstrap, name: &str) -> &'a mut Value {
    let options = &mut cluster(it, name)["typed_extension_protocol_options"];
    &mut options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]["common_http_protocol_options"]
}

fn remove(owner: &mut Value, key: &str) {
    let removed = owner.as_object_mut().unwrap().remove(key);
    assert!(removed.is_some(), "no {key} in {owner}");
}

/// Changes the picker's own configuration.
fn picker(it: &mut Bootstrap, change: impl FnOnce(&mut Value)) {
    let mut picker = it.picker().unwrap();
    change(&mut picker);
    it.set_picker(&picker).unwrap();
}

#[test]
fn the_shipped_configurations_have_nothing_to_mend() {
    for destination in [Destination::OriginalDst, Destination::OverrideHost] {
        assert_eq!(found(destination, |_| {}), [], "{destination:?}");
    }
}

#[test]
fn what_envoy_does_with_the_module_is_checked() {
    check_warnings(&[
        (
            |it| remove(plugin(it), "allow_on_headers_stop_iteration"),
            "allow_on_headers_stop_iteration",
            "hangs",
        ),
        (
            |it| plugin(it)["allow_on_headers_stop_iteration"] = json!(false),
            "allow_on_headers_stop_iteration",
            "hangs",
        ),
        (
            |it| remove(plugin(it), "failure_policy"),
            "failure_policy",
            "FAIL_CLOSED",
        ),
        (
            |it| plugin(it)["failure_policy"] = json!("FAIL_CLOSED"),
            "failure_policy",
            "503",
        ),
        (
            |it| plugin(it)["failure_policy"] = json!("FAIL_OPEN"),
            "failure_policy",
            "unpicked",
        ),
        (
            |it| {
                remove(plugin(it), "failure_policy");
                plugin(it)["fail_open"] = json!(true);
            },
            "fail_open",
            "deprecated",
        ),
        (
            |it| plugin(it)["vm_config"]["code"] = json!({"remote": {"sha256": "0"}}),
            "code.remote",
            "nack_on_code_cache_miss",
        ),
    ]);
}

#[test]
fn the_place_of_the_picker_among_the_filters_is_checked() {
    check_warnings(&[
        (|it| filters(it).reverse(), "http_filters[picker]", "router"),
        (
            |it| {
                filters(it).insert(
                    0,
                    buffer("buffer.v3.Buffer", json!({"max_request_bytes": 1})),
                )
            },
            "http_filters[picker]",
            "holds request bodies",
        ),
        (
            |it| {
                let mode = json!({"processing_mode": {"request_body_mode": "BUFFERED"}});
                filters(it).insert(0, buffer("ext_proc.v3.ExternalProcessor", mode));
            },
            "http_filters[picker]",
            "holds request bodies",
        ),
        (
            |it| {
                let copy = filters(it)[0].clone();
                filters(it).insert(1, copy);
            },
            "typed_config.config",
            "second copy",
        ),
    ]);
    let streams = |it: &mut Bootstrap| {
        let mode = json!({"processing_mode": {"request_body_mode": "STREAMED"}});
        filters(it).insert(0, buffer("ext_proc.v3.ExternalProcessor", mode));
    };
    assert_eq!(found(Destination::OriginalDst, streams), []);
}

fn buffer(kind: &str, mut config: Value) -> Value {
    config["@type"] = json!(format!(
        "type.googleapis.com/envoy.extensions.filters.http.{kind}"
    ));
    json!({"name": "first", "typed_config": config})
}

#[test]
fn what_copies_share_is_checked() {
    check_warnings(&[
        (
            |it| {
                let pages = it.manager_mut(PAGES).unwrap();
                pages["http_filters"][0]["typed_config"]["config"]["vm_config"]["vm_id"] =
                    json!("other");
            },
            "vm_config.vm_id",
            "other, while another copy of the picker has picker",
        ),
        (
            |it| {
                let service = &mut it.value_mut()["bootstrap_extensions"][0]["typed_config"];
                service["config"]["vm_config"]["vm_id"] = json!("other");
            },
            "vm_config.vm_id",
            "share nothing",
        ),
        (
            |it| remove(&mut plugin(it)["vm_config"], "vm_id"),
            "vm_config.vm_id",
            "empty",
        ),
        (
            |it| {
                add_listener(it);
                plugin(it)["vm_config"]["vm_id"] = json!("other");
            },
            "listeners[second].filter_chains[0].filters[http_connection_manager].typed_config.http_filters[picker].typed_config.config.vm_config.vm_id",
            "picker, while another copy of the picker has other",
        ),
        (
            |it| {
                add_listener(it);
                picker(it, |it| it["pools"][0]["engine"] = json!("sglang"));
            },
            "configuration.value",
            "the pool llm is another one",
        ),
    ]);
    check_each(
        Destination::OriginalDst,
        Level::Note,
        &[(
            |it| remove(it.value_mut(), "bootstrap_extensions"),
            "bootstrap_extensions",
            "a worker that holds the lease",
        )],
    );
}

#[test]
fn copies_with_pools_of_their_own_need_not_share() {
    let change = |it: &mut Bootstrap| {
        add_listener(it);
        plugin(it)["vm_config"]["vm_id"] = json!("other");
        picker(it, |it| it["pools"][0]["name"] = json!("other"));
    };
    assert_eq!(found(Destination::OriginalDst, change), []);
}

/// Adds a copy of the listener for clients.
fn add_listener(it: &mut Bootstrap) {
    let mut second = it.listener_mut(TRAFFIC).unwrap().clone();
    second["name"] = json!("second");
    let listeners = &mut it.value_mut()["static_resources"]["listeners"];
    listeners.as_array_mut().unwrap().push(second);
}

#[test]
fn removed_headers_are_checked() {
    check_warnings(&[
        (
            |it| remove(manager(it), "early_header_mutation_extensions"),
            "early_header_mutation_extensions",
            "x-prefiller-host-port",
        ),
        (
            |it| {
                let early = &mut manager(it)["early_header_mutation_extensions"][0];
                early["typed_config"]["mutations"]
                    .as_array_mut()
                    .unwrap()
                    .pop();
            },
            "early_header_mutation_extensions",
            "does not remove test-epp-endpoint-selection. A client",
        ),
        (
            |it| {
                picker(it, |it| it["destination"]["header"] = json!("x-mine"));
                cluster(it, "llm")["original_dst_lb_config"]["http_header_name"] = json!("x-mine");
                route(it, 0)["match"]["headers"][0]["name"] = json!("x-mine");
            },
            "early_header_mutation_extensions",
            "does not remove x-mine. A client",
        ),
    ]);
}

#[test]
fn limits_of_bodies_are_checked() {
    check_warnings(&[
        (
            |it| remove(host(it), "request_body_buffer_limit"),
            "virtual_hosts[llm].request_body_buffer_limit",
            "the listener allows 1048576 bytes",
        ),
        (
            |it| {
                remove(host(it), "request_body_buffer_limit");
                remove(
                    it.listener_mut(TRAFFIC).unwrap(),
                    "per_connection_buffer_limit_bytes",
                );
            },
            "virtual_hosts[llm].request_body_buffer_limit",
            "a listener's default is 1048576 bytes",
        ),
        (
            |it| route(it, 1)["request_body_buffer_limit"] = json!(2_000_000),
            "routes[unpicked].request_body_buffer_limit",
            "2000000 bytes at most",
        ),
        (
            |it| {
                remove(host(it), "request_body_buffer_limit");
                host(it)["per_request_buffer_limit_bytes"] = json!(2_000_000);
            },
            "virtual_hosts[llm].per_request_buffer_limit_bytes",
            "2000000 bytes at most",
        ),
        (
            |it| {
                picker(it, |it| {
                    it["pools"][0]["limits"]["requestBodyBytes"] = json!("64Mi")
                })
            },
            "virtual_hosts[llm].request_body_buffer_limit",
            "would take 67108864 bytes. Fix: request_body_buffer_limit: 68157440",
        ),
    ]);
    for change in [
        // The listener's limit is the least there is.
        (|it| {
            it.listener_mut(TRAFFIC).unwrap()["per_connection_buffer_limit_bytes"] =
                json!("34603008");
            remove(host(it), "request_body_buffer_limit");
        }) as Change,
        // A request has this route only when its body has been read.
        |it| route(it, 0)["request_body_buffer_limit"] = json!(1),
        // The newer field of the host wins over the older one of the route.
        |it| route(it, 1)["per_request_buffer_limit_bytes"] = json!(1),
        |it| {
            let limit = |it: &mut Value| it["pools"][0]["limits"] = json!({"requestBodyBytes": 9});
            picker(it, limit);
            remove(host(it), "request_body_buffer_limit");
        },
    ] {
        assert_eq!(found(Destination::OriginalDst, change), []);
    }
}

#[test]
fn timers_of_routes_are_checked() {
    check_warnings(&[
        (
            |it| remove(&mut route(it, 0)["route"], "timeout"),
            "routes[picked].route.timeout",
            "not set, which is 15 s",
        ),
        (
            |it| route(it, 1)["route"]["timeout"] = json!("599.9s"),
            "routes[unpicked].route.timeout",
            "599.9s",
        ),
        (
            |it| {
                route(it, 0)["route"]["max_stream_duration"] =
                    json!({"max_stream_duration": "60s"});
            },
            "max_stream_duration.max_stream_duration",
            "60s",
        ),
        (
            |it| route(it, 0)["route"]["idle_timeout"] = json!("30s"),
            "route.idle_timeout",
            "silent",
        ),
        (
            |it| {
                let policy = host(it)["retry_policy"].clone();
                route(it, 0)["route"]["retry_policy"] = policy;
                route(it, 0)["route"]["retry_policy"]["per_try_timeout"] = json!("10s");
            },
            "retry_policy.per_try_timeout",
            "still generating",
        ),
        (
            |it| host(it)["retry_policy"]["per_try_idle_timeout"] = json!("10s"),
            "retry_policy.per_try_idle_timeout",
            "still generating",
        ),
    ]);
}

#[test]
fn timers_of_streams_and_clusters_are_checked() {
    check_warnings(&[
        (
            |it| remove(manager(it), "stream_idle_timeout"),
            "stream_idle_timeout",
            "not set, which is 300 s",
        ),
        (
            |it| manager(it)["stream_idle_timeout"] = json!("300s"),
            "stream_idle_timeout",
            "waits here",
        ),
        (
            |it| {
                manager(it)["common_http_protocol_options"] = json!({"max_stream_duration": "9s"});
            },
            "common_http_protocol_options.max_stream_duration",
            "9s",
        ),
        (
            |it| manager(it)["request_timeout"] = json!("10s"),
            "request_timeout",
            "408",
        ),
        (
            |it| http_options(it, "llm")["max_stream_duration"] = json!("10s"),
            "common_http_protocol_options.max_stream_duration",
            "resets",
        ),
    ]);
    let zero: &[(Change, &str, &str)] = &[(
        |it| manager(it)["stream_idle_timeout"] = json!("0s"),
        "stream_idle_timeout",
        "never ends",
    )];
    check_each(Destination::OriginalDst, Level::Note, zero);
    for change in [
        (|it| route(it, 0)["route"]["timeout"] = json!("600s")) as Change,
        |it| manager(it)["request_timeout"] = json!("60s"),
        |it| {
            remove(host(it), "retry_policy");
            host(it)["retry_policy_typed_config"] = json!({"@type": "t/a.b.Policy"});
        },
        // Routes with timers of their own do not use the manager's.
        |it| {
            remove(manager(it), "stream_idle_timeout");
            for index in [0, 1] {
                route(it, index)["route"]["idle_timeout"] = json!("0s");
            }
        },
    ] {
        assert_eq!(found(Destination::OriginalDst, change), []);
    }
}

/// Lets requests of the picker's pool wait, as `flow_control` says.
fn queue(it: &mut Bootstrap, flow_control: Value) {
    picker(it, |it| {
        let picker = &mut it["pools"][0]["picker"];
        picker["featureGates"] = json!(["flowControl"]);
        picker["flowControl"] = flow_control;
    });
}

#[test]
fn silence_is_long_enough_for_a_request_that_waits_for_its_turn() {
    check_warnings(&[
        (
            |it| {
                queue(it, json!({}));
                manager(it)["stream_idle_timeout"] = json!("119s");
            },
            "stream_idle_timeout",
            "silent for 119s, and one that waits for its turn is silent for up to 60s",
        ),
        (
            |it| {
                queue(it, json!({"noEndpointRequestTTL": "2h"}));
            },
            "stream_idle_timeout",
            "up to 7200s (noEndpointRequestTTL) before its answer begins. \
             Fix: stream_idle_timeout: 7260s, or a shorter noEndpointRequestTTL.",
        ),
        (
            |it| {
                queue(
                    it,
                    json!({"defaultRequestTTL": "20m", "noEndpointRequestTTL": "5s"}),
                );
                remove(manager(it), "stream_idle_timeout");
            },
            "stream_idle_timeout",
            "not set, which is 300 s. Envoy ends a request that is silent for 300s, and one that \
             waits for its turn is silent for up to 1200s (defaultRequestTTL)",
        ),
        (
            |it| {
                queue(it, json!({"defaultRequestTTL": "20m"}));
                route(it, 1)["route"]["idle_timeout"] = json!("1200s");
            },
            "routes[unpicked].route.idle_timeout",
            "Fix: idle_timeout: 3600s, or a shorter noEndpointRequestTTL.",
        ),
        // The other route is taken after the pick, and nothing waits there.
        (
            |it| {
                queue(it, json!({}));
                route(it, 0)["route"]["idle_timeout"] = json!("60s");
            },
            "routes[picked].route.idle_timeout",
            "clients wait 600 s by default",
        ),
        (
            |it| {
                queue(it, json!({}));
                manager(it)["stream_idle_timeout"] = json!("120s");
            },
            "stream_idle_timeout",
            "clients wait 600 s by default",
        ),
    ]);
    for change in [
        (|it| queue(it, json!({"defaultRequestTTL": "59m"}))) as Change,
        // For as long as the client waits: nothing is known to be too short.
        |it| queue(it, json!({"defaultRequestTTL": "0s"})),
    ] {
        assert_eq!(found(Destination::OriginalDst, change), []);
    }
}

#[test]
fn what_reads_the_destination_is_checked() {
    check_warnings(&[
        (
            |it| {
                remove(
                    &mut cluster(it, "llm")["original_dst_lb_config"],
                    "http_header_name",
                )
            },
            "clusters[llm].original_dst_lb_config.http_header_name",
            "reads x-envoy-original-dst-host, the picker writes x-gateway-destination-endpoint",
        ),
        (
            |it| remove(cluster(it, "llm"), "original_dst_lb_config"),
            "clusters[llm]",
            "none of the clusters llm, llm_any reads",
        ),
        (
            |it| {
                picker(it, |it| it["destination"] = json!({"via": "filterState"}));
                route(it, 0)["route"]["cluster"] = json!("llm_any");
            },
            "configuration.value",
            "no route leads to a cluster of type ORIGINAL_DST",
        ),
    ]);
    check_each(
        Destination::OverrideHost,
        Level::Warning,
        &[
            (
                |it| *sources(it) = json!([{"header": "x-other"}]),
                "override_host_sources[0].header",
                "reads x-other",
            ),
            (
                |it| *sources(it) = by_metadata(),
                "clusters[llm]",
                "none of the clusters llm reads",
            ),
        ],
    );
}

#[test]
fn routes_with_a_pick_and_without_are_checked() {
    check_warnings(&[
        (
            |it| remove(&mut route(it, 0)["match"], "headers"),
            "routes[picked]",
            "in spite of failureMode: FailOpen",
        ),
        (
            |it| _ = host(it)["routes"].as_array_mut().unwrap().pop(),
            "routes[picked].match",
            "answered 404",
        ),
        (
            |it| route(it, 1)["match"]["prefix"] = json!("/other"),
            "routes[picked].match",
            "no route serves a request without it",
        ),
        (
            |it| host(it)["routes"].as_array_mut().unwrap().reverse(),
            "routes[picked]",
            "routes[unpicked], which takes every request",
        ),
        (
            |it| {
                route(it, 1)["match"]["headers"] =
                    json!([{"name": "x-tenant", "present_match": true}]);
            },
            "routes[picked].match",
            "answered 404",
        ),
        (
            |it| {
                let header = json!(["x-gateway-destination-endpoint"]);
                route(it, 0)["request_headers_to_remove"] = header;
            },
            "request_headers_to_remove[0]",
            "before it chooses the host",
        ),
    ]);
    let closed = |it: &mut Bootstrap| {
        remove(&mut route(it, 0)["match"], "headers");
        picker(it, |it| it["pools"][0]["failureMode"] = json!("FailClose"));
    };
    assert_eq!(found(Destination::OriginalDst, closed), []);
}

fn sources(it: &mut Bootstrap) -> &mut Value {
    let policy = &mut cluster(it, "llm")["load_balancing_policy"]["policies"][0];
    &mut policy["typed_extension_config"]["typed_config"]["override_host_sources"]
}

fn by_metadata() -> Value {
    json!([{"metadata": {"key": "envoy.lb", "path": [{"key": "endpoint"}]}}])
}

#[test]
fn a_header_that_a_filter_copies_for_the_cluster_is_read() {
    let bridged = |it: &mut Bootstrap| {
        *sources(it) = by_metadata();
        let rule = json!({
            "header": "x-gateway-destination-endpoint",
            "on_header_present": {"metadata_namespace": "envoy.lb", "key": "endpoint"},
        });
        let config = json!({"request_rules": [rule]});
        filters(it).insert(1, buffer("header_to_metadata.v3.Config", config));
    };
    assert_eq!(found(Destination::OverrideHost, bridged), []);
}

#[test]
fn the_clusters_of_the_endpoints_are_checked() {
    check_warnings(&[
        (
            |it| remove(http_options(it, "llm"), "idle_timeout"),
            "common_http_protocol_options.idle_timeout",
            "not set, which is an hour",
        ),
        (
            |it| http_options(it, "llm_any")["idle_timeout"] = json!("5s"),
            "common_http_protocol_options.idle_timeout",
            "vllm closes",
        ),
        (
            |it| host(it)["retry_policy"]["retry_on"] = json!("connect-failure"),
            "retry_policy.retry_on",
            "connect-failure. A kept-alive",
        ),
        (
            |it| remove(breakers(it, "llm"), "max_pending_requests"),
            "clusters[llm].circuit_breakers.thresholds[0].max_pending_requests",
            "not set, which is 1024",
        ),
    ]);
    // Triton's HTTP server keeps connections.
    let triton = |it: &mut Bootstrap| {
        remove(http_options(it, "llm"), "idle_timeout");
        picker(it, |it| {
            it["pools"][0]["engine"] = json!("triton-tensorrt-llm")
        });
    };
    assert_eq!(found(Destination::OriginalDst, triton), []);
}

/// The breakers of a cluster, for more endpoints than Envoy's defaults are for.
fn breakers<'a>(it: &'a mut Bootstrap, name: &str) -> &'a mut Value {
    let endpoints = (1..=5).map(|port| json!({"address": format!("127.0.0.1:{port}")}));
    let endpoints: Value = endpoints.collect();
    picker(it, |it| it["pools"][0]["endpoints"] = endpoints);
    &mut cluster(it, name)["circuit_breakers"]["thresholds"][0]
}

#[test]
fn the_collectors_cluster_is_checked() {
    check_warnings(&[
        (
            |it| {
                picker(it, |it| {
                    it["pools"][0]["scrape"]["cluster"] = json!("nowhere")
                })
            },
            "configuration.value",
            "nowhere is no cluster here",
        ),
        (
            |it| cluster(it, "picker_endpoints")["type"] = json!("STATIC"),
            "clusters[picker_endpoints].type",
            "No metrics are read",
        ),
        (
            |it| {
                let config = &mut cluster(it, "picker_endpoints")["original_dst_lb_config"];
                remove(config, "use_http_header");
            },
            "clusters[picker_endpoints].original_dst_lb_config.use_http_header",
            "not set",
        ),
        (
            |it| {
                let config = &mut cluster(it, "picker_endpoints")["original_dst_lb_config"];
                config["http_header_name"] = json!("x-other");
            },
            "clusters[picker_endpoints].original_dst_lb_config.http_header_name",
            "reads x-other",
        ),
        (
            |it| {
                let breakers = &mut cluster(it, "picker_endpoints")["circuit_breakers"];
                breakers["thresholds"][0]["max_requests"] = json!(2);
            },
            "clusters[picker_endpoints].circuit_breakers.thresholds[0].max_requests",
            "2, for the scrapes of 3 endpoints",
        ),
        (
            |it| cluster(it, "picker_endpoints")["connect_timeout"] = json!("0.01s"),
            "clusters[picker_endpoints].connect_timeout",
            "0.01s",
        ),
    ]);
}

#[test]
fn tags_and_addresses_are_checked() {
    check_warnings(&[
        (
            |it| {
                let tags = &mut it.value_mut()["stats_config"]["stats_tags"];
                tags.as_array_mut().unwrap().pop();
            },
            "stats_config.stats_tags",
            "no tag for `;priority=`",
        ),
        (
            |it| it.set_admin("0.0.0.0:9901".parse().unwrap()).unwrap(),
            "admin.address.socket_address.address",
            "can stop Envoy",
        ),
        (
            |it| it.set_pages("10.0.0.1:9902".parse().unwrap()).unwrap(),
            "listeners[pages].address.socket_address.address",
            "pages",
        ),
    ]);
}

#[test]
fn the_embedded_configuration_is_checked_in_either_form() {
    let mistaken: &[(Change, &str, &str)] = &[
        (
            |it| picker(it, |it| it["pools"][0]["enginee"] = json!("vllm")),
            "configuration.value",
            "pools[0].enginee: \"enginee\" is no known key",
        ),
        (
            |it| {
                picker(it, |it| it["pools"][0]["enginee"] = json!("vllm"));
                as_struct(it);
            },
            "configuration.value",
            "pools[0].enginee",
        ),
        (
            |it| plugin(it)["configuration"]["@type"] = json!("t/google.protobuf.Any"),
            "configuration.value",
            "cannot read Any",
        ),
        (
            |it| {
                let kind = "type.googleapis.com/google.protobuf.BytesValue";
                plugin(it)["configuration"] = json!({"@type": kind, "value": "e30="});
            },
            "configuration.value",
            "pools: a list of pools is missing",
        ),
    ];
    check_each(Destination::OriginalDst, Level::Error, mistaken);
    check_warnings(&[(
        |it| remove(plugin(it), "configuration"),
        "typed_config.config.configuration",
        "picks nothing",
    )]);
    let raised = |it: &mut Bootstrap| {
        picker(it, |it| it["pools"][0]["scrape"]["interval"] = json!("1ms"));
    };
    let found_raised = found(Destination::OriginalDst, raised);
    assert_eq!(found_raised[0].level, Level::Warning);
    assert!(
        found_raised[0]
            .text
            .starts_with("pools[0].scrape.interval: 1ms is less")
    );
    assert_eq!(found(Destination::OriginalDst, as_struct), []);
}

fn as_struct(it: &mut Bootstrap) {
    let value = it.picker().unwrap();
    plugin(it)["configuration"] =
        json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": value});
}

#[test]
fn a_typed_struct_is_looked_into() {
    let wrapped = |it: &mut Bootstrap| {
        let typed = &mut filters(it)[0]["typed_config"];
        let mut value = typed.take();
        remove(&mut value["config"], "failure_policy");
        let kind = value["@type"].clone();
        remove(&mut value, "@type");
        *typed = json!({
            "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
            "type_url": kind,
            "value": value,
        });
    };
    check_warnings(&[(wrapped, "value.config.failure_policy", "FAIL_CLOSED")]);
}

#[test]
fn a_picker_by_another_name_is_found() {
    let renamed = |it: &mut Bootstrap| {
        let plugin = plugin(it);
        plugin["root_id"] = json!("a");
        plugin["vm_config"]["code"]["local"]["filename"] = json!("a.wasm");
        remove(plugin, "failure_policy");
        plugin["vm_config"]["vm_id"] = json!("a");
        for copy in [1, 2] {
            let all = it.value_mut();
            let copy = match copy {
                1 => all.pointer_mut("/bootstrap_extensions/0/typed_config/config"),
                _ => all.pointer_mut(
                    "/static_resources/listeners/1/filter_chains/0/filters/0/typed_config\
                     /http_filters/0/typed_config/config",
                ),
            };
            copy.unwrap()["vm_config"]["vm_id"] = json!("a");
        }
    };
    check_warnings(&[(renamed, "typed_config.config.failure_policy", "FAIL_CLOSED")]);
}

#[test]
fn what_filters_do_by_route_is_the_same_with_and_without_a_pick() {
    fn settings(disabled: bool) -> Value {
        json!({"envoy.filters.http.ext_authz": {"disabled": disabled}})
    }
    let both = |it: &mut Bootstrap| {
        route(it, 0)["typed_per_filter_config"] = settings(true);
        route(it, 1)["typed_per_filter_config"] = settings(true);
    };
    assert_eq!(found(Destination::OriginalDst, both), []);
    let one: [Change; 2] = [
        |it| route(it, 0)["typed_per_filter_config"] = json!({"a": {"disabled": true}}),
        |it| route(it, 1)["typedPerFilterConfig"] = json!({"a": {"disabled": true}}),
    ];
    for change in one {
        let findings = found(Destination::OriginalDst, change);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].text.contains("matches the route again"),
            "{findings:?}"
        );
    }
}

#[test]
fn a_route_by_the_model_is_one_that_the_picker_leads_to() {
    fn by_model(it: &mut Bootstrap) -> &mut Value {
        let headers = json!([{"name": "x-gateway-model-name", "string_match": {"exact": "m"}}]);
        let other = json!({
            "match": {"prefix": "/", "headers": headers},
            "route": {"cluster": "others", "timeout": "0s", "idle_timeout": "0s"},
        });
        let routes = host(it)["routes"].as_array_mut().unwrap();
        routes.insert(0, other);
        &mut routes[0]
    }
    let texts = |change: Change| {
        let findings = found(Destination::OriginalDst, change);
        let texts = findings.into_iter().map(|it| it.text);
        let about = |it: &String| it.contains("no request has") || it.contains("matches the route");
        texts.filter(about).collect::<Vec<_>>()
    };
    let silent = texts(|it| _ = by_model(it));
    assert!(
        silent[0].contains("wants x-gateway-model-name"),
        "{silent:?}"
    );
    let told = texts(|it| {
        by_model(it);
        picker(it, |it| it["modelHeaders"] = json!({}));
    });
    assert_eq!(told, [""; 0]);
    let unguarded = texts(|it| {
        by_model(it)["typed_per_filter_config"] = json!({"a": {"disabled": true}});
        picker(it, |it| it["modelHeaders"] = json!({}));
    });
    assert_eq!(unguarded.len(), 1, "{unguarded:?}");
    assert!(
        unguarded[0].contains("sets x-gateway-model-name"),
        "{unguarded:?}"
    );
}

#[test]
fn routes_that_no_pool_takes_are_left_alone() {
    let beside = |it: &mut Bootstrap| {
        picker(it, |it| {
            it["pools"][0]["match"] = json!({"pathPrefixes": ["/v1"]})
        });
        let other = json!({"match": {"prefix": "/static"}, "route": {"cluster": "files"}});
        host(it)["routes"].as_array_mut().unwrap().insert(0, other);
    };
    assert_eq!(found(Destination::OriginalDst, beside), []);
    for matches in [
        json!({"clusters": ["llm_any"]}),
        json!({"routes": ["unpicked"]}),
        json!({"hosts": ["api.example.com"]}),
        json!({"pathPrefixes": ["/v1"]}),
    ] {
        let mut bootstrap = Destination::OriginalDst.shipped().unwrap();
        picker(&mut bootstrap, |it| {
            it["pools"][0]["match"] = matches.clone()
        });
        remove(&mut route(&mut bootstrap, 1)["route"], "timeout");
        assert_eq!(found_in(&[bootstrap.value_mut()]).len(), 1, "{matches}");
    }
    let elsewhere: [(Change, Value); 3] = [
        (|_| {}, json!({"clusters": ["other"]})),
        (|_| {}, json!({"routes": ["other"]})),
        (
            |it| host(it)["domains"] = json!(["*.example.com", "b:*"]),
            json!({"hosts": ["a"]}),
        ),
    ];
    for (change, matches) in elsewhere {
        let mut bootstrap = Destination::OriginalDst.shipped().unwrap();
        change(&mut bootstrap);
        picker(&mut bootstrap, |it| {
            it["pools"][0]["match"] = matches.clone()
        });
        remove(&mut route(&mut bootstrap, 1)["route"], "timeout");
        assert_eq!(found_in(&[bootstrap.value_mut()]), [], "{matches}");
    }
}

#[test]
fn an_envoy_in_parts_is_put_together() {
    let mut bootstrap = Destination::OriginalDst.shipped().unwrap();
    remove(&mut route(&mut bootstrap, 0)["route"], "timeout");
    let extension = {
        let filter = &mut filters(&mut bootstrap)[0];
        let typed = filter["typed_config"].take();
        *filter = json!({"name": "picker", "config_discovery": {"type_urls": ["w"]}});
        json!({"@type": "t/envoy.config.core.v3.TypedExtensionConfig", "name": "picker",
            "typed_config": typed})
    };
    let mut table = manager(&mut bootstrap)["route_config"].take();
    remove(manager(&mut bootstrap), "route_config");
    manager(&mut bootstrap)["rds"] = json!({"route_config_name": "traffic"});
    table["@type"] = json!("t/envoy.config.route.v3.RouteConfiguration");
    let mut resources = bootstrap.value_mut()["static_resources"].take();
    for (list, kind) in [
        ("listeners", "listener.v3.Listener"),
        ("clusters", "cluster.v3.Cluster"),
    ] {
        for resource in resources[list].as_array_mut().unwrap() {
            resource["@type"] = json!(format!("t/envoy.config.{kind}"));
        }
    }
    let listeners = json!({"resources": resources["listeners"]});
    let clusters = json!({"resources": resources["clusters"]});
    let routes = json!({"resources": [table]});
    let extensions = json!({"resources": [extension]});

    let all = [
        bootstrap.value_mut(),
        &listeners,
        &clusters,
        &routes,
        &extensions,
    ];
    let found = found_in(&all);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].file.as_str(), found[0].line), ("3", 1));
    assert!(
        found[0].path.ends_with("routes[picked].route.timeout"),
        "{}",
        found[0]
    );

    // What is not there is said, and nothing else about it.
    let notes = found_in(&[&listeners, &extensions]);
    let texts: Vec<&str> = notes.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(
        notes.iter().filter(|it| it.level != Level::Note).count(),
        0,
        "{notes:#?}"
    );
    for missing in ["no bootstrap", "no clusters", "its routes"] {
        assert!(
            texts.iter().any(|it| it.starts_with(missing)),
            "{missing}: {texts:?}"
        );
    }
}

#[test]
fn discovery_asks_through_a_cluster_that_is_there() {
    let discovering = |it: &mut Bootstrap| {
        let mut document = it.picker().unwrap();
        let pool = document["pools"][0].as_object_mut().unwrap();
        pool.remove("endpoints");
        let kubernetes = json!({"namespace": "serving", "inferencePool": "llm"});
        pool.insert("discovery".into(), json!({"kubernetes": kubernetes}));
        it.set_picker(&document).unwrap();
    };
    check_warnings(&[(
        discovering,
        "configuration.value",
        "the cluster picker_kube of discovery is no cluster here",
    )]);
    let with_cluster = found(Destination::OriginalDst, |it| {
        let mut document = it.picker().unwrap();
        let pool = document["pools"][0].as_object_mut().unwrap();
        pool.remove("endpoints");
        pool.insert("discovery".into(), json!({"http": {"cluster": "llm_any"}}));
        it.set_picker(&document).unwrap();
    });
    assert!(with_cluster.is_empty(), "{with_cluster:#?}");
}

#[test]
fn an_envoy_without_the_picker_is_told_so() {
    let without = |it: &mut Bootstrap| {
        it.value_mut()["bootstrap_extensions"] = json!([]);
        for listener in [TRAFFIC, PAGES] {
            let manager = it.manager_mut(listener).unwrap();
            manager["http_filters"].as_array_mut().unwrap().remove(0);
        }
    };
    check_warnings(&[(without, "", "no connection manager has the picker")]);
}

#[test]
fn something_else_is_no_envoy() {
    for text in ["a: b", "[]", "pools: []", "resources: []"] {
        let error = check(&[("file".to_owned(), text.to_owned())]).unwrap_err();
        assert!(
            error.to_string().contains("/config_dump"),
            "{text}: {error}"
        );
    }
    let error = check(&[("file".to_owned(), "a: [".to_owned())]).unwrap_err();
    assert!(
        error.to_string().contains("file is neither YAML nor JSON"),
        "{error}"
    );
}

#[test]
fn lines_of_the_file_are_told() {
    let file = "envoy/envoy.yaml";
    let text = fs::read_to_string(root().join(file)).unwrap();
    let text = text.replace("stream_idle_timeout: 3600s", "stream_idle_timeout: 60s");
    let line = text
        .lines()
        .position(|line| line.contains("stream_idle_timeout: 60s"));
    let found = check(&[(file.to_owned(), text)]).unwrap();
    let shown = found[0].to_string();
    let start = format!(
        "{file}:{}:32: warning: static_resources.listeners[traffic].",
        line.unwrap() + 1
    );
    assert!(shown.starts_with(&start), "{shown}");
}

#[test]
fn the_exit_code_says_whether_there_is_something_to_mend() {
    let directory = env::temp_dir().join(format!("picker-config-{}", process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let pool = "pools: [{name: a, endpoints: [{address: 10.0.0.1:80}], scrape: {interval: 1ms}}]";
    let shipped = root().join("envoy/envoy.yaml");
    let mut mended = Destination::OriginalDst.shipped().unwrap();
    remove(manager(&mut mended), "stream_idle_timeout");
    for (envoy, path, code_wanted) in [
        (false, file("warned.yaml", pool), 0),
        (false, file("mistaken.yaml", "pools: []"), 1),
        (false, file("broken.yaml", "pools: ["), 1),
        (false, directory.join("missing.yaml"), 2),
        (false, shipped.clone(), 2),
        (false, file("service.yaml", "kind: Service\n"), 2),
        (true, shipped, 0),
        (true, file("envoy.json", &mended.value_mut().to_string()), 1),
        (true, file("other.yaml", pool), 2),
        (true, directory.join("missing.yaml"), 2),
    ] {
        let files = vec![path.clone()];
        let arguments = ConfigArguments::Check(CheckArguments { envoy, files });
        assert_eq!(code(&arguments), code_wanted, "{}", path.display());
    }
    fs::remove_dir_all(&directory).unwrap();
}
