//! What is read takes a bounded amount of memory, however long it is.

#![cfg(test)]
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use picker_core::{
    HashSeed, PROMPT_BLOCKS_MAX, PublicName, RequestScanner, ResponseKind, ResponseReader, Shape,
};

/// Counts what this thread has allocated and not freed, and the most that it had.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.get() + layout.size();
        HELD.set(held);
        MOST.set(MOST.get().max(held));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().saturating_sub(layout.size()));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most that `work` held at once, in bytes.
fn most(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    MOST.set(before);
    work();
    MOST.get() - before
}

/// The most that is held while a body comes: a start, many times the middle, and an end.
fn scanning(shape: Shape, [start, middle, end]: [&str; 3]) -> usize {
    let piece = middle.repeat(65_536 / middle.len());
    most(|| {
        let mut scanner = RequestScanner::new(shape);
        scanner.push(start.as_bytes());
        for _ in 0..12 * 16 {
            scanner.push(piece.as_bytes());
        }
        scanner.push(end.as_bytes());
        let request = scanner.finish(HashSeed::new("llm"));
        assert_eq!(request.faults, []);
    })
}

#[test]
fn a_request_of_twelve_megabytes_is_not_kept() {
    let image = [
        r#"{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,"#,
        "iVBORw0KGgo+",
        r#""}}]}]}"#,
    ];
    let unknown = [r#"{"vendor":""#, "twelve megab", r#""}"#];
    let nested = [r#"{"vendor":["#, r#"[{"a":[]}],"#, "0]}"];
    let file = [
        "--X\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n",
        "\r\n--Y sound\r",
        "\r\n--X--",
    ];
    for (shape, body) in [
        (Shape::ChatCompletions, image),
        (Shape::Messages, unknown),
        (Shape::Completions, nested),
        (Shape::Transcriptions, file),
    ] {
        let bytes = scanning(shape, body);
        assert!(bytes < 4096, "{shape:?}: {bytes} bytes");
    }
}

#[test]
fn a_prompt_of_twelve_megabytes_takes_its_hashes() {
    // A list that grows is copied once, the hashes of the text become those of the blocks.
    let hashes = PROMPT_BLOCKS_MAX * 8 * 3;
    for (shape, body) in [
        (
            Shape::Completions,
            [r#"{"prompt":""#, "lorem ipsum ", r#""}"#],
        ),
        (Shape::Generate, [r#"{"token_ids":["#, "17,", "0]}"]),
        (
            Shape::ChatCompletions,
            [
                r#"{"messages":["#,
                r#"{"role":"user","content":"a\nb"},"#,
                "{}]}",
            ],
        ),
    ] {
        let bytes = scanning(shape, body);
        let bounds = PROMPT_BLOCKS_MAX * 8..hashes + 4096;
        assert!(bounds.contains(&bytes), "{shape:?}: {bytes} bytes");
    }
}

#[test]
fn a_stream_takes_the_same_for_any_number_of_events() {
    let events = [
        r#"{"model":"m","choices":[{"index":0,"delta":{"content":"token"}}]}"#,
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a\u00e9"}}"#,
        r#"{"model":"m","usage":{"prompt_tokens":5,"completion_tokens":9}}"#,
    ];
    for event in events {
        let event = format!("event: x\r\n: comment\r\ndata: {event}\r\n\r\n");
        let reading = |count| {
            most(|| {
                let mut reader = ResponseReader::new(ResponseKind::EventStream);
                for _ in 0..count {
                    reader.push(event.as_bytes());
                }
                assert_eq!(reader.finish().events, count);
            })
        };
        let (few, many) = (reading(2), reading(20_000));
        assert_eq!(few, many, "{event}");
        assert!(many < 1024, "{many} bytes for {event}");
    }
}

#[test]
fn a_stream_that_is_renamed_takes_the_same_for_any_number_of_events() {
    let event = r#"{"model":"m","choices":[{"index":0,"delta":{"content":"token"}}]}"#;
    let event = format!("data: {event}\n\n");
    let reading = |count| {
        let (name, mut out) = (PublicName::new("public"), Vec::with_capacity(1024));
        most(|| {
            let mut reader = ResponseReader::new(ResponseKind::EventStream);
            for _ in 0..count {
                assert!(reader.push_renaming(event.as_bytes(), &name, &mut out));
            }
            assert_eq!(reader.finish().events, count);
        })
    };
    let (few, many) = (reading(2), reading(20_000));
    assert_eq!(few, many);
    assert!(many < 1024, "{many} bytes");
}
