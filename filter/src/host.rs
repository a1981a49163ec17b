//! Every call into the host.
//!
//! The SDK's own wrappers panic on statuses they do not expect, and a panic takes down the virtual
//! machine of a worker with all its streams. So the imports are declared here and every status
//! becomes a `Result`. The one exception is [`http_call`]: only the SDK's wrapper can tell its
//! dispatcher whose call was answered.
#![allow(unsafe_code, reason = "the host is reached through a C interface")]

use std::ptr::null_mut;
use std::time::Duration;

use picker_core::{SharedData, Span, Timestamp, Version};

/// A status of the host that is not success, as its number in the proxy-wasm ABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HostError(pub(crate) u32);

/// A header map.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Headers {
    Request = 0,
    Response = 2,
    CallResponse = 6,
}

/// A buffer.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    CallResponseBody = 4,
    PluginConfiguration = 7,
}

/// Envoy's log, behind the macros of the `log` crate.
struct Log;

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = match record.level() {
                log::Level::Error => ERROR,
                log::Level::Warn => ERROR - 1,
                log::Level::Info => ERROR - 2,
                log::Level::Debug => ERROR - 3,
                log::Level::Trace => ERROR - 4,
            };
            write_log(level, &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// The kind of a stat.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum MetricKind {
    Counter = 0,
    Gauge = 1,
}

/// Shared data of this Envoy process.
pub(crate) struct Host;

impl SharedData for Host {
    fn get(&self, key: &str, value: &mut Vec<u8>) -> Version {
        value.clear();
        let (mut data, mut size, mut version) = (null_mut(), 0, 0);
        // SAFETY: the pointers are valid for the call, and a successful one hands over an
        // allocation of `size` bytes.
        let status = unsafe {
            proxy_get_shared_data(
                key.as_ptr(),
                key.len(),
                &raw mut data,
                &raw mut size,
                &raw mut version,
            )
        };
        if status != OK {
            return Version::ABSENT;
        }
        *value = unsafe { taken(data, size) };
        Version(version)
    }

    fn set_if(&self, key: &str, value: &[u8], version: Version) -> bool {
        set_shared_data(key, value, version.0) == OK
    }

    fn set(&self, key: &str, value: &[u8]) {
        // Refused only for a version that does not match, and 0 matches any.
        let _ = set_shared_data(key, value, 0);
    }
}

fn set_shared_data(key: &str, value: &[u8], version: u32) -> u32 {
    // SAFETY: the host copies both slices before it returns.
    unsafe {
        proxy_set_shared_data(
            key.as_ptr(),
            key.len(),
            value.as_ptr(),
            value.len(),
            version,
        )
    }
}

/// The time of the host's clock.
pub(crate) fn now() -> Timestamp {
    let mut nanoseconds = 0;
    // SAFETY: the pointer is valid for the call. Should it fail, time stands still at zero.
    unsafe { proxy_get_current_time_nanoseconds(&raw mut nanoseconds) };
    Timestamp(nanoseconds / 1000)
}

/// A number nobody can foresee.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the buffer is as long as is said.
    unsafe { random_get(bytes.as_mut_ptr(), bytes.len()) };
    u64::from_le_bytes(bytes)
}

/// The value of a header; `None` when it is absent. Values need not be UTF-8.
pub(crate) fn header(headers: Headers, name: &str) -> Option<Vec<u8>> {
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: as for shared data.
    let status = unsafe {
        proxy_get_header_map_value(
            headers as u32,
            name.as_ptr(),
            name.len(),
            &raw mut data,
            &raw mut size,
        )
    };
    // SAFETY: the call has succeeded.
    (status == OK).then(|| unsafe { taken(data, size) })
}

/// All headers of a map, asked of the host at once, which costs what two single ones cost.
pub(crate) struct HeaderMap(Vec<u8>);

impl HeaderMap {
    /// The headers as they are now; empty when the host has none to give.
    pub(crate) fn of(headers: Headers) -> Self {
        let (mut data, mut size) = (null_mut(), 0);
        // SAFETY: as for shared data.
        let status =
            unsafe { proxy_get_header_map_pairs(headers as u32, &raw mut data, &raw mut size) };
        // SAFETY: the call has succeeded.
        Self(if status == OK {
            unsafe { taken(data, size) }
        } else {
            Vec::new()
        })
    }

    /// Names and values in their order; what is cut off in the middle of a pair is left out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (count, rest) = self.0.split_first_chunk().unwrap_or((&[0; 4], &[]));
        let lengths = u32::from_le_bytes(*count) as usize * PAIR_LENGTHS;
        let (lengths, mut texts) = rest.split_at_checked(lengths).unwrap_or_default();
        let mut text = move |length: &[u8; 4]| {
            let length = u32::from_le_bytes(*length) as usize;
            let (text, rest) = texts.split_at_checked(length)?;
            // A NUL ends every text.
            texts = rest.split_first()?.1;
            Some(text)
        };
        let (lengths, _) = lengths.as_chunks::<4>();
        let (pairs, _) = lengths.as_chunks::<2>();
        pairs
            .iter()
            .map_while(move |[name, value]| Some((text(name)?, text(value)?)))
    }
}

/// The value of a header as text; what is not UTF-8 is replaced, so it equals no name of ours.
pub(crate) fn text_header(headers: Headers, name: &str) -> Option<String> {
    header(headers, name).map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// The value of a request header as text.
pub(crate) fn request_header(name: &str) -> Option<String> {
    text_header(Headers::Request, name)
}

/// Sets a request header, in place of all of that name.
pub(crate) fn set_request_header(name: &str, value: &str) -> Result<(), HostError> {
    set_header(Headers::Request, name, value)
}

/// Sets a header, in place of all of that name.
pub(crate) fn set_header(headers: Headers, name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: the host copies the slices before it returns.
    result(unsafe {
        proxy_replace_header_map_value(
            headers as u32,
            name.as_ptr(),
            name.len(),
            value.as_ptr(),
            value.len(),
        )
    })
}

/// Removes all request headers of that name.
pub(crate) fn remove_request_header(name: &str) -> Result<(), HostError> {
    remove_header(Headers::Request, name)
}

/// Removes all headers of that name.
pub(crate) fn remove_header(headers: Headers, name: &str) -> Result<(), HostError> {
    // SAFETY: the host reads the slice before it returns.
    result(unsafe { proxy_remove_header_map_value(headers as u32, name.as_ptr(), name.len()) })
}

/// At most `size` bytes of a buffer from `start` on; empty when there are none.
pub(crate) fn buffer(buffer: Buffer, start: usize, size: usize) -> Vec<u8> {
    let (mut data, mut length) = (null_mut(), 0);
    // SAFETY: as for shared data.
    let status = unsafe {
        proxy_get_buffer_bytes(buffer as u32, start, size, &raw mut data, &raw mut length)
    };
    // SAFETY: the call has succeeded.
    if status == OK {
        unsafe { taken(data, length) }
    } else {
        Vec::new()
    }
}

/// Puts `bytes` in the place of all that a buffer holds.
pub(crate) fn replace_buffer(buffer: Buffer, bytes: &[u8]) -> Result<(), HostError> {
    // Envoy replaces a buffer whole or not at all; no buffer is longer than this.
    let all = usize::MAX;
    // SAFETY: the host copies the slice before it returns.
    result(unsafe { proxy_set_buffer_bytes(buffer as u32, 0, all, bytes.as_ptr(), bytes.len()) })
}

/// A property of the stream; `None` when it has none of that path.
pub(crate) fn property(path: &[&str]) -> Option<Vec<u8>> {
    let path = path.join("\0");
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: as for shared data.
    let status =
        unsafe { proxy_get_property(path.as_ptr(), path.len(), &raw mut data, &raw mut size) };
    // SAFETY: the call has succeeded.
    (status == OK).then(|| unsafe { taken(data, size) })
}

/// A property of the stream as text.
pub(crate) fn text_property(path: &[&str]) -> Option<String> {
    property(path).map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// Sets filter state `wasm.<name>`, which access logs can show.
pub(crate) fn set_filter_state(name: &str, value: &str) -> Result<(), HostError> {
    // SAFETY: the host copies the slices before it returns.
    result(unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// Sets the filter state that names the destination of an `ORIGINAL_DST` cluster, before any
/// header.
pub(crate) fn set_original_destination(address: &str) -> Result<(), HostError> {
    const FUNCTION: &str = "set_envoy_filter_state";
    // The argument is a protobuf message: path = 1, value = 2, span = 3 with 1 for the request.
    let mut argument = Vec::new();
    for (tag, text) in [(0x0a, ORIGINAL_DESTINATION), (0x12, address)] {
        argument.push(tag);
        // Both texts are shorter than 128 bytes, so one byte holds the length.
        argument.push(text.len() as u8);
        argument.extend_from_slice(text.as_bytes());
    }
    argument.extend_from_slice(&[0x18, 1]);
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: the host copies the slices before it returns; what it gives back is taken over.
    let status = unsafe {
        let status = proxy_call_foreign_function(
            FUNCTION.as_ptr(),
            FUNCTION.len(),
            argument.as_ptr(),
            argument.len(),
            &raw mut data,
            &raw mut size,
        );
        drop(taken(data, size));
        status
    };
    result(status)
}

/// Answers the request in the endpoint's place. `details` shows in the access log.
pub(crate) fn reply(
    status: u16,
    details: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<(), HostError> {
    let headers = header_map(headers);
    // SAFETY: the host copies the slices before it returns. -1 is no gRPC status.
    result(unsafe {
        proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            -1,
        )
    })
}

/// Calls `on_tick` of the current root every `period`.
pub(crate) fn set_tick_period(period: Span) -> Result<(), HostError> {
    // SAFETY: no memory is passed.
    result(unsafe { proxy_set_tick_period_milliseconds(period.as_millis() as u32) })
}

/// Sends a GET through `cluster`; the answer comes to `on_http_call_response` under the returned
/// number.
///
/// The SDK's wrapper handles all statuses that Envoy's `proxy_http_call` returns.
pub(crate) fn http_call(cluster: &str, headers: Vec<(&str, &str)>, timeout: Span) -> Option<u32> {
    let timeout = Duration::from_micros(timeout.0);
    proxy_wasm::hostcalls::dispatch_http_call(cluster, headers, None, Vec::new(), timeout).ok()
}

/// Sends what is logged to Envoy, as far as Envoy's own level wants it.
pub(crate) fn set_up_log() {
    let mut level = ERROR;
    // SAFETY: the pointer is valid for the call. Should it fail, only errors are logged.
    unsafe { proxy_get_log_level(&raw mut level) };
    // A second root of the same virtual machine finds the logger set.
    let _ = log::set_logger(&Log);
    log::set_max_level(match level {
        0 => log::LevelFilter::Trace,
        1 => log::LevelFilter::Debug,
        2 => log::LevelFilter::Info,
        3 => log::LevelFilter::Warn,
        _ => log::LevelFilter::Error,
    });
}

/// Writes a line to Envoy's log at the level above errors: why a configuration was refused.
pub(crate) fn log_critical(message: &str) {
    write_log(ERROR + 1, message);
}

fn write_log(level: u32, message: &str) {
    // SAFETY: the host copies the slice before it returns. There is nobody to tell that logging
    // failed.
    unsafe { proxy_log(level, message.as_ptr(), message.len()) };
}

/// The number under which the stat of this name is counted in this virtual machine.
pub(crate) fn define_metric(kind: MetricKind, name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the host reads the slice before it returns.
    let status =
        unsafe { proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut id) };
    (status == OK).then_some(id)
}

/// Adds to a counter.
pub(crate) fn increment(metric: u32, by: u64) {
    // SAFETY: no memory is passed. An unknown number is refused and nothing is counted.
    unsafe { proxy_increment_metric(metric, by as i64) };
}

/// Sets a gauge.
pub(crate) fn record(metric: u32, value: u64) {
    // SAFETY: as above.
    unsafe { proxy_record_metric(metric, value) };
}

/// Lets the calls that follow be about the stream of this number; about the called one again with 0.
///
/// It holds until the callback ends.
pub(crate) fn set_effective_context(context: u32) -> Result<(), HostError> {
    // SAFETY: no memory is passed.
    result(unsafe { proxy_set_effective_context(context) })
}

/// Lets the request of the current stream go on.
pub(crate) fn resume_request() -> Result<(), HostError> {
    const REQUEST: u32 = 0;
    // SAFETY: no memory is passed.
    result(unsafe { proxy_continue_stream(REQUEST) })
}

/// Makes this root the one that is called when something is put into the queue of this name.
pub(crate) fn register_queue(name: &str) -> Result<(), HostError> {
    let mut queue = 0;
    // SAFETY: the host reads the slice before it returns.
    result(unsafe { proxy_register_shared_queue(name.as_ptr(), name.len(), &raw mut queue) })
}

/// The number of the queue of this name; `None` when nobody has registered it.
pub(crate) fn resolve_queue(name: &str) -> Option<u32> {
    let mut queue = 0;
    // SAFETY: the host reads the slices before it returns. No bytes stand for our own VM id.
    let status = unsafe {
        proxy_resolve_shared_queue(name.as_ptr(), 0, name.as_ptr(), name.len(), &raw mut queue)
    };
    (status == OK).then_some(queue)
}

/// Puts a message into a queue.
pub(crate) fn enqueue(queue: u32, message: &[u8]) -> Result<(), HostError> {
    // SAFETY: the host copies the slice before it returns.
    result(unsafe { proxy_enqueue_shared_queue(queue, message.as_ptr(), message.len()) })
}

/// Takes a message out of a queue; `None` when it is empty.
pub(crate) fn dequeue(queue: u32) -> Option<Vec<u8>> {
    let (mut data, mut size) = (null_mut(), 0);
    // SAFETY: as for shared data.
    let status = unsafe { proxy_dequeue_shared_queue(queue, &raw mut data, &raw mut size) };
    // SAFETY: the call has succeeded.
    (status == OK).then(|| unsafe { taken(data, size) })
}

fn result(status: u32) -> Result<(), HostError> {
    if status == OK {
        Ok(())
    } else {
        Err(HostError(status))
    }
}

/// A header map in the form of the ABI: the count, all lengths, then all names and values, each
/// ended by a NUL.
fn header_map(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = (headers.len() as u32).to_le_bytes().to_vec();
    for (name, value) in headers {
        bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
    }
    for (name, value) in headers {
        for text in [name, value] {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
    }
    bytes
}

/// Takes over an allocation of the host.
///
/// # Safety
///
/// `data` is null or points to `size` bytes that the host allocated through
/// `proxy_on_memory_allocate`, which uses this module's allocator, and that nobody else owns.
unsafe fn taken(data: *mut u8, size: usize) -> Vec<u8> {
    if data.is_null() {
        return Vec::new();
    }
    unsafe { Vec::from_raw_parts(data, size, size) }
}

const OK: u32 = 0;

/// Bytes of the two lengths of a pair in a header map.
const PAIR_LENGTHS: usize = 8;

/// The number of the level for errors; trace is 0 and critical the next.
const ERROR: u32 = 4;

const ORIGINAL_DESTINATION: &str = "envoy.network.transport_socket.original_dst_address";

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_call_foreign_function(
        name: *const u8,
        name_size: usize,
        argument: *const u8,
        argument_size: usize,
        result: *mut *mut u8,
        result_size: *mut usize,
    ) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_dequeue_shared_queue(queue: u32, data: *mut *mut u8, data_size: *mut usize) -> u32;
    fn proxy_enqueue_shared_queue(queue: u32, value: *const u8, value_size: usize) -> u32;
    fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        size: usize,
        data: *mut *mut u8,
        data_size: *mut usize,
    ) -> u32;
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, data_size: *mut usize) -> u32;
    fn proxy_get_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> u32;
    fn proxy_get_property(
        path: *const u8,
        path_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
        version: *mut u32,
    ) -> u32;
    fn proxy_get_log_level(level: *mut u32) -> u32;
    fn proxy_increment_metric(metric: u32, by: i64) -> u32;
    fn proxy_log(level: u32, message: *const u8, message_size: usize) -> u32;
    fn proxy_record_metric(metric: u32, value: u64) -> u32;
    fn proxy_register_shared_queue(name: *const u8, name_size: usize, queue: *mut u32) -> u32;
    fn proxy_remove_header_map_value(map: u32, name: *const u8, name_size: usize) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_resolve_shared_queue(
        vm_id: *const u8,
        vm_id_size: usize,
        name: *const u8,
        name_size: usize,
        queue: *mut u32,
    ) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_set_buffer_bytes(
        buffer: u32,
        start: usize,
        size: usize,
        data: *const u8,
        data_size: usize,
    ) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_set_property(
        path: *const u8,
        path_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_set_shared_data(
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
        version: u32,
    ) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn random_get(buffer: *mut u8, size: usize) -> u16;
}
