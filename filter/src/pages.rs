//! The local pages, served by a filter instance of their own on a listener of their own.

use picker_core::page;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::host::{self, Buffer, Host};

/// One request for a page.
#[derive(Default)]
pub(crate) struct Page {
    path: String,
}

impl Context for Page {}

impl HttpContext for Page {
    fn on_http_request_headers(&mut self, _: usize, ends: bool) -> Action {
        let path = host::request_header(":path").unwrap_or_default();
        self.path = path.split('?').next().unwrap_or_default().to_owned();
        if ends || self.path != DISCOVERY {
            self.answer(&[]);
        }
        Action::Pause
    }

    fn on_http_request_body(&mut self, size: usize, ends: bool) -> Action {
        if ends && self.path == DISCOVERY {
            self.answer(&host::buffer(Buffer::RequestBody, 0, size));
        }
        Action::Pause
    }
}

impl Page {
    fn answer(&self, body: &[u8]) {
        let now = host::now();
        let (status, text) = match self.path.as_str() {
            DISCOVERY => (200, page::endpoint_discovery(&Host, body, now)),
            "/picker/state" => (200, page::state(&Host, now)),
            _ => (404, NOT_FOUND.to_owned()),
        };
        let headers = [
            ("content-type", "application/json"),
            ("cache-control", "no-store"),
        ];
        // A stream that has gone needs no answer.
        let _ = host::reply(status, "picker_page", &headers, &text);
    }
}

/// Where Envoy asks for the endpoints of a cluster over REST.
const DISCOVERY: &str = "/v3/discovery:endpoints";

const NOT_FOUND: &str =
    r#"{"error":"no such page","pages":["/picker/state","/v3/discovery:endpoints"]}"#;
