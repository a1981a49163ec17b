//! Addresses that show or change more than clients should see.

use std::net::IpAddr;

use picker_core::Role;

use crate::config::finding::Finding;
use crate::config::model::Model;
use crate::config::place::Place;

/// The admin interface and the picker's pages are for the machine itself.
pub(super) fn what_shows_state_is_on_loopback(model: &Model<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let bootstrap = model
        .bootstrap
        .iter()
        .filter(|_| !model.managers.is_empty());
    for address in bootstrap.filter_map(|it| open(&it.field("admin"))) {
        let why = "Whoever reaches it can stop Envoy and read its configuration";
        findings.push(warn(&address, why));
    }
    for manager in &model.managers {
        let mut pages = manager
            .plugins()
            .filter(|it| matches!(it.read, Ok(Role::Page)));
        if let (Some(_), Some(address)) = (pages.next(), open(&manager.listener)) {
            let why = "The picker's pages name every endpoint and its load";
            findings.push(warn(&address, why));
        }
    }
    findings
}

fn warn(address: &Place<'_>, why: &str) -> Finding {
    let what = address.text().unwrap_or_default();
    address.warn(what, why, "address: 127.0.0.1")
}

/// The address of a listener or of the admin interface, unless it is loopback or a file.
fn open<'a>(owner: &Place<'a>) -> Option<Place<'a>> {
    let address = owner.get("address.socket_address.address");
    let ip: IpAddr = address.text()?.parse().ok()?;
    (!ip.to_canonical().is_loopback()).then_some(address)
}
