use super::*;
use crate::request::Prompt;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const BURST: Burst = Burst {
    window: Span::from_millis(100),
    requests_max: 1000,
    per_endpoint_max: usize::MAX,
    block: 1,
    blocks_max: 2048,
    lead: 0,
    by_bytes: false,
};

/// A prompt with a block for each letter; what begins alike has the same first blocks.
fn request(prompt: &str, bytes: u64) -> Request {
    let next = |before: &mut u64, letter: u8| {
        *before = *before * 31 + u64::from(letter);
        Some(BlockHash(*before))
    };
    let blocks = prompt.bytes().scan(7, next).collect();
    Request {
        prompts: vec![Prompt { bytes, blocks }],
        ..Request::default()
    }
}

fn gathered(burst: &Burst, id: u64, prompt: &str) -> Gathered {
    let (prompt, bytes) = prompt.split_once(':').unwrap_or((prompt, "1"));
    let request = request(prompt, bytes.parse().unwrap());
    burst.gathered(WaitId(id), &request).unwrap()
}

/// Where each of `prompts` goes, in their order; a prompt may say how many bytes it has.
#[track_caller]
fn check(burst: &Burst, endpoints: u32, (prompts, expected): (&str, &str)) {
    let numbered = (0..).zip(prompts.split(' '));
    let mut requests: Vec<Gathered> = numbered.map(|(id, it)| gathered(burst, id, it)).collect();
    let endpoints: Vec<EndpointId> = (1..=endpoints).map(EndpointId).collect();
    burst.place(&mut requests, &endpoints);
    requests.sort_by_key(|it| it.id);
    let shown = |it: &Gathered| {
        it.endpoint
            .map_or_else(|| "-".into(), |it| it.0.to_string())
    };
    let placed: Vec<String> = requests.iter().map(shown).collect();
    assert_eq!(placed.join(" "), expected, "{prompts} on {endpoints:?}");
}

#[test]
fn requests_of_one_prompt_go_to_one_endpoint_and_the_longest_prompts_first() {
    for row in [
        ("a", "1"),
        ("aa bbb aa c bbb aa", "2 1 2 3 1 2"),
        // Groups come before what is alone, however long that is.
        ("cccc aa aa", "2 1 1"),
        // The least loaded: 2, 2 and 1 after the groups and the longer single one.
        ("bbb bbb aa aa dd c", "1 1 2 2 3 3"),
        ("bbb bbb aa aa dd ee c", "1 1 2 2 3 3 1"),
    ] {
        check(&BURST, 3, row);
    }
    check(&BURST, 0, ("aa aa b", "- - -"));
}

#[test]
fn an_endpoint_has_no_more_of_one_prompt_than_it_may_have() {
    let most = |per_endpoint_max| Burst {
        per_endpoint_max,
        ..BURST
    };
    check(&most(2), 3, ("aa aa aa aa aa", "1 1 2 2 3"));
    check(&most(2), 2, ("aa aa aa aa aa", "1 1 2 2 1"));
    check(&most(1), 2, ("bbb bbb bbb aa aa", "1 2 1 2 1"));
    // The third endpoint has the least all the time.
    let by_bytes = Burst {
        by_bytes: true,
        ..most(1)
    };
    check(
        &by_bytes,
        3,
        ("bbb:100 bbb:100 aa:1 aa:1 aa:1", "1 2 3 1 2"),
    );
}

#[test]
fn requests_or_their_bytes_are_balanced() {
    let prompts = "aaa:1000 aaa:1000 bb:10 bb:10 c:10";
    check(&BURST, 2, (prompts, "1 1 2 2 1"));
    let by_bytes = Burst {
        by_bytes: true,
        ..BURST
    };
    check(&by_bytes, 2, (prompts, "1 1 2 2 2"));
}

#[test]
fn prompts_that_begin_alike_stay_together_up_to_a_fair_share() {
    let led = Burst { lead: 2, ..BURST };
    check(&BURST, 2, ("aab aac dd e", "2 1 1 2"));
    check(&led, 2, ("aab aac dd e", "1 1 2 2"));
    // Two of four are a fair share of two endpoints.
    check(&led, 2, ("aab aac aad e", "2 1 1 2"));
    check(&led, 2, ("aab aab aac dd e", "1 1 1 2 2"));
    // Three of three endpoints: there is nothing to share in a prompt that is too short.
    check(&led, 3, ("a b c", "3 2 1"));
}

#[test]
fn what_begins_as_an_endpoint_holds_it_goes_there() {
    for (holders, weight, expected) in [
        (vec![3], 1, 3),
        (vec![3, 2], 1, 2),
        (vec![9], 1, 1),
        (vec![], 1, 1),
        // Nothing is less than a fair share of nothing.
        (vec![3], 0, 1),
    ] {
        let led = Burst { lead: 2, ..BURST };
        let mut requests = [Gathered {
            holders: holders.iter().copied().map(EndpointId).collect(),
            weight,
            ..gathered(&led, 1, "aab")
        }];
        led.place(&mut requests, &[1, 2, 3].map(EndpointId));
        let placed = requests[0].endpoint;
        assert_eq!(placed, Some(EndpointId(expected)), "{holders:?}");
    }
}

#[test]
fn only_as_much_of_a_prompt_is_compared_as_was_asked_for() {
    let pairs = Burst { block: 2, ..BURST };
    check(&pairs, 2, ("aab aac aabb", "1 1 2"));
    let two = Burst {
        blocks_max: 2,
        ..BURST
    };
    check(&two, 2, ("aab aac b b", "1 1 2 2"));
    let none = |burst: Burst, prompt: &str| {
        let found = burst.gathered(WaitId(1), &request(prompt, 1));
        assert_eq!(found, None, "{prompt:?} with {burst:?}");
    };
    none(BURST, "");
    none(pairs, "a");
    none(
        Burst {
            blocks_max: 0,
            ..BURST
        },
        "aaa",
    );
    assert_eq!(BURST.gathered(WaitId(1), &Request::bodiless()), None);
}

#[test]
fn a_batch_is_over_with_its_window_or_when_it_is_full() {
    let at = |millis| Timestamp(1_000_000).after(Span::from_millis(millis));
    let two = Burst {
        requests_max: 2,
        ..BURST
    };
    let mut batch = Batch::default();
    assert!(!batch.is_due(&BURST, at(500)), "empty");
    batch.push(gathered(&BURST, 1, "a"), at(0));
    for (millis, expected) in [(0, false), (99, false), (100, true), (200, true)] {
        assert_eq!(batch.is_due(&BURST, at(millis)), expected, "{millis}");
    }
    assert!(batch.is_due(&BURST, Timestamp(1)), "the clock was set back");
    batch.push(gathered(&BURST, 2, "a"), at(99));
    assert!(batch.is_due(&BURST, at(100)), "the first counts");
    assert!(!batch.is_due(&BURST, at(99)) && batch.is_due(&two, at(99)));
}

#[test]
fn those_of_a_batch_are_sent_one_by_one_and_the_next_batch_has_its_own_window() {
    let at = |millis| Timestamp(1_000_000).after(Span::from_millis(millis));
    let mut batch = Batch::default();
    for (id, prompt) in [(1, "a"), (2, "bb"), (3, "bb"), (4, "c")] {
        batch.push(gathered(&BURST, id, prompt), at(0));
    }
    assert_eq!((batch.next(), batch.len()), (None, 4), "not placed yet");
    assert!(batch.remove(WaitId(4)).is_some(), "who leaves early");
    batch.place(&BURST, &[EndpointId(7)]);
    batch.push(gathered(&BURST, 5, "a"), at(120));
    assert!(!batch.is_due(&BURST, at(219)) && batch.is_due(&BURST, at(220)));
    let mut sent = Vec::new();
    while let Some(id) = batch.next() {
        let endpoint = batch.remove(id).and_then(|it| it.endpoint);
        sent.push(format!("{}: {endpoint:?}", id.0));
    }
    let to = |id: u64| format!("{id}: Some(EndpointId(7))");
    assert_eq!(sent, [2, 3, 1].map(to));
    assert_eq!(batch.remove(WaitId(1)), None, "only once");
    assert_eq!(
        (batch.drain(), batch.len(), batch.next()),
        (vec![WaitId(5)], 0, None)
    );
}
