//! Which prompts are alike, and how far.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

/// How many leading blocks two requests share.
#[track_caller]
fn shared(one: &Request, other: &Request) -> usize {
    let pairs = blocks(one).iter().zip(blocks(other));
    pairs.take_while(|(one, other)| one == other).count()
}

#[track_caller]
fn check_alike(bodies: &[String]) {
    let requests: Vec<_> = bodies.iter().map(chat).collect();
    for (body, pair) in bodies.iter().skip(1).zip(requests.windows(2)) {
        let [one, other] = pair else { continue };
        assert!(!blocks(one).is_empty(), "{body}");
        assert_eq!(one.prompts, other.prompts, "{body}");
    }
}

/// That no two of the bodies have their last block in common.
#[track_caller]
fn check_different(bodies: &[String]) {
    let mut seen: Vec<_> = bodies
        .iter()
        .map(|body| blocks(&chat(body)).last().copied())
        .collect();
    assert!(seen.iter().all(Option::is_some), "each has a block");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), bodies.len(), "{bodies:?}");
}

fn message(role: &str, len: usize) -> String {
    format!("{{\"role\":\"{role}\",\"content\":{}}}", long(role, len))
}

fn conversation(messages: &[String]) -> String {
    format!("{{\"model\":\"m\",\"messages\":[{}]}}", messages.join(","))
}

#[test]
fn the_next_turn_begins_with_all_blocks_of_the_turn_before() {
    let turns: Vec<_> = (0..12)
        .map(|turn| message("user", 100 + turn * 97))
        .collect();
    let requests: Vec<_> = (1..=turns.len())
        .map(|count| chat(conversation(&turns[..count])))
        .collect();
    for pair in requests.windows(2) {
        let [before, after] = pair else { continue };
        assert_eq!(shared(before, after), blocks(before).len());
    }
    assert!(20 < blocks(requests.last().unwrap()).len());
}

#[test]
fn a_prompt_shorter_than_a_block_has_no_blocks() {
    for len in [0, 12, BLOCK_BYTES - 1] {
        let request = completion(format!("{{\"model\":\"m\",\"prompt\":{}}}", long("", len)));
        assert_eq!(blocks(&request), [], "{len}");
        assert_eq!(request.prompts.first().map(|it| it.bytes), Some(len as u64));
    }
    let request = completion(format!("{{\"prompt\":{}}}", long("", BLOCK_BYTES)));
    assert_eq!(blocks(&request).len(), 1);
}

#[test]
fn bytes_are_the_text_without_framing() {
    for (body, bytes) in [
        (r#"{"messages":[]}"#, 0),
        (r#"{"messages":[{"role":"user","content":"hi"}]}"#, 6),
        (r#"{"messages":[{"role":"user","content":null}]}"#, 4),
        (
            r#"{"messages":[{"content":[{"type":"text","text":"a\u00e9"},{"image_url":"u"}]}]}"#,
            3 + 4 * 225,
        ),
        (
            r#"{"messages":[{"content":"hi"}],"tools":[ {"a" : "b c" } ]}"#,
            15,
        ),
        (r#"{"messages":[{"content":"hi"}],"tools":[ ]}"#, 2),
        (r#"{"messages":[{"tool_calls":[ 1 ]}]}"#, 3),
    ] {
        assert_eq!(
            chat(body).prompts.first().map(|it| it.bytes),
            Some(bytes),
            "{body}"
        );
    }
}

#[test]
fn the_order_of_members_in_the_body_does_not_matter() {
    let messages = format!("\"messages\":[{}]", message("user", 700));
    let tools = format!("\"tools\":[{{\"name\":{}}}]", long("t", 500));
    let model = "\"model\":\"m\",\"cache_salt\":\"s\"";
    check_alike(&[
        format!("{{{model},{tools},{messages}}}"),
        format!("{{{model},{messages},{tools}}}"),
        format!("{{{messages},{tools},{model}}}"),
        format!("{{ {messages} ,\n{model} , \"x\":[1,{{}}], {tools} }}"),
    ]);
}

#[test]
fn a_later_member_of_the_same_name_replaces_the_earlier() {
    let messages = |role| format!("\"messages\":[{}]", message(role, 700));
    let tools = "\"tools\":[{\"name\":\"t\"}]";
    check_alike(&[
        format!("{{{}}}", messages("user")),
        format!("{{{},{}}}", messages("system"), messages("user")),
        format!("{{\"messages\":\"x\",{}}}", messages("user")),
        format!("{{{tools},{},\"tools\":null}}", messages("user")),
        format!("{{{tools},{},\"tools\":[ ]}}", messages("user")),
    ]);
}

#[test]
fn escapes_do_not_matter_in_text() {
    check_alike(&[
        conversation(&[format!(
            "{{\"content\":\"{}\"}}",
            "\u{1F600}/\u{e9}a".repeat(40)
        )]),
        conversation(&[format!(
            "{{\"content\":\"{}\"}}",
            r"\ud83d\uDE00\/\u00e9\u0061".repeat(40)
        )]),
        conversation(&[format!(
            "{{\"\\u0063ontent\":\"{}\"}}",
            "\u{1F600}/\u{e9}\\u0061".repeat(40)
        )]),
    ]);
}

#[test]
fn long_runs_between_escapes_keep_their_order() {
    let text = |newline: &str| {
        let runs = [1, 700, 3, 511, 512, 513, 2, 4000].map(|len| "abcdefg".repeat(len));
        conversation(&[format!("{{\"content\":\"{}\"}}", runs.join(newline))])
    };
    check_alike(&[text("\n"), text("\\n"), text("\\u000a")]);
}

#[test]
fn a_lone_surrogate_is_a_replacement_character() {
    let text = |lone: &str| conversation(&[format!("{{\"content\":\"{}\"}}", lone.repeat(200))]);
    check_alike(&[
        text("\u{FFFD}a"),
        text(r"\ufffda"),
        text(r"\ud83da"),
        text(r"\udc00a"),
        text(r"\uDBFF\u0061"),
    ]);
    check_alike(&[text("\u{FFFD}\n"), text(r"\ud83d\n"), text(r"\ude00\u000a")]);
    check_alike(&[text("\u{FFFD}\u{1F600}"), text(r"\ud83d\ud83d\ude00")]);
    check_alike(&[text("\u{1F600}\u{FFFD}"), text(r"\ud83d\ude00\ude00")]);
    let request = completion(r#"{"prompt":"\ud83d"}"#);
    assert_eq!(request.prompts.first().map(|it| it.bytes), Some(3));
}

#[test]
fn blanks_in_tools_do_not_matter_and_key_order_does() {
    let chat = |tools: String| {
        format!(
            "{{\"tools\":{tools},\"messages\":[{}]}}",
            message("user", 300)
        )
    };
    let name = long("a  b", 300);
    check_alike(&[
        chat(format!(
            "[{{\"name\":{name},\"strict\":true,\"n\":[1,-2.5e3]}}]"
        )),
        chat(format!(
            " [ {{ \"name\" :\t{name}\r\n, \"strict\" : true , \"n\":[1 ,\n-2.5e3 ] }} ] "
        )),
    ]);
    check_different(&[
        chat(format!("[{{\"name\":{name},\"strict\":true}}]")),
        chat(format!("[{{\"strict\":true,\"name\":{name}}}]")),
        chat(format!(
            "[{{\"strict\":true,\"name\":{}}}]",
            long("a b", 300)
        )),
        chat("null".into()),
        chat("[1]".into()),
        chat("[\"1\"]".into()),
    ]);
}

#[test]
fn requests_with_other_tools_share_no_block() {
    let body = |tool: &str| {
        let tool = long(tool, 20_000);
        format!(
            "{{\"messages\":[{}],\"tools\":[{tool}]}}",
            message("user", 600)
        )
    };
    assert_eq!(shared(&chat(body("one")), &chat(body("two"))), 0);
}

#[test]
fn one_text_part_is_like_the_text() {
    let text = long("", 600);
    check_alike(&[
        conversation(&[format!("{{\"role\":\"user\",\"content\":{text}}}")]),
        conversation(&[format!(
            "{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":{text}}}]}}"
        )]),
        conversation(&[format!(
            "{{\"role\":\"user\",\"content\":[{{\"text\":{text},\"type\":\"input_text\"}}]}}"
        )]),
        conversation(&[format!("{{\"role\":\"user\",\"content\":[{text}]}}")]),
    ]);
}

#[test]
fn text_divided_differently_is_different() {
    let tail = message("user", 300);
    check_different(&[
        conversation(&[r#"{"role":"user","content":"ab"}"#.into(), tail.clone()]),
        conversation(&[r#"{"role":"usera","content":"b"}"#.into(), tail.clone()]),
        conversation(&[r#"{"content":"ab","role":"user"}"#.into(), tail.clone()]),
        conversation(&[
            r#"{"role":"user","content":"a"}"#.into(),
            r#"{"content":"b"}"#.into(),
            tail.clone(),
        ]),
        conversation(&[
            r#"{"role":"user","content":"a","name":"b"}"#.into(),
            tail.clone(),
        ]),
        conversation(&[
            r#"{"role":"user","content":"a","refusal":"b"}"#.into(),
            tail.clone(),
        ]),
        conversation(&[
            r#"{"role":"user","content":"a","reasoning":"b"}"#.into(),
            tail.clone(),
        ]),
        conversation(&[
            r#"{"role":"user","content":[{"text":"a"},{"text":"b"}]}"#.into(),
            tail.clone(),
        ]),
        conversation(&[
            r#"{"role":"user","content":[{"text":"a"}]}"#.into(),
            tail.clone(),
        ]),
        conversation(&[r#"{"role":"user","content":null}"#.into(), tail.clone()]),
        conversation(&[
            r#"{"role":"user","content":null,"tool_calls":["ab"]}"#.into(),
            tail.clone(),
        ]),
        conversation(&[
            r#"{"role":"user","content":null,"tool_call_id":"ab"}"#.into(),
            tail,
        ]),
    ]);
}

#[test]
fn bodies_that_differ_in_an_image_differ_from_there_on() {
    let body = |part: &str| {
        conversation(&[
            message("system", 700),
            format!(
                "{{\"content\":[{part},{{\"type\":\"text\",\"text\":{}}}]}}",
                long("", 300)
            ),
        ])
    };
    let parts = [
        r#"{"type":"image_url","image_url":{"url":"https://x/1.png","detail":"low"}}"#,
        r#"{"type":"image_url","image_url":{"url":"https://x/2.png","detail":"low"}}"#,
        r#"{"type":"video_url","video_url":{"url":"https://x/1.png"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"UklGRiQ","format":"wav"}}"#,
        r#"{"type":"file","file":{"file_id":"UklGRiQ"}}"#,
    ];
    check_different(&parts.map(body));
    let requests = parts.map(|part| chat(body(part)));
    for request in requests.iter().skip(1) {
        assert_eq!(
            shared(&requests[0], request),
            2,
            "what stands before the image"
        );
    }
    let kinds: Vec<_> = requests
        .iter()
        .flat_map(|it| &it.media)
        .map(|it| it.kind)
        .collect();
    use MediaKind::{Audio, File, Image, Video};
    assert_eq!(kinds, [Image, Image, Video, Audio, File]);
    assert_eq!(requests[0].media[0].hash, requests[2].media[0].hash);
}

#[test]
fn model_and_salt_are_told_apart() {
    let body = |head: &str| format!("{{{head}\"messages\":[{}]}}", message("user", 300));
    check_different(&[
        body(""),
        body(r#""model":"","#),
        body(r#""cache_salt":"","#),
        body(r#""model":"base","#),
        body(r#""model":"X","#),
        body(r#""cache_salt":"X","#),
        body(r#""model":"base","cache_salt":"X","#),
        body(r#""model":"base","cache_salt":"Y","#),
        body(r#""model":"baseX","#),
        body(r#""model":"base","cache_salt":"","#),
    ]);
    check_alike(&[
        body(r#""model":"X","cache_salt":"s","#),
        body(r#""cache_salt":"s","model":"X","#),
    ]);
}

#[test]
fn the_seed_changes_every_block() {
    let body = format!("{{\"prompt\":{}}}", long("", 1000));
    let under = |seed| {
        let mut scanner = RequestScanner::new(Completions);
        scanner.push(body.as_bytes());
        scanner.finish(HashSeed::new(seed))
    };
    let (one, other) = (under("one"), under("other"));
    assert!(
        blocks(&one)
            .iter()
            .zip(blocks(&other))
            .all(|(one, other)| one != other)
    );
}

/// The bytes of each prompt of a completion.
#[track_caller]
fn check_prompts(prompt: &str, bytes: &[u64], fault: Option<RequestFault>) {
    let request = completion(format!("{{\"prompt\":{prompt}}}"));
    let read: Vec<_> = request.prompts.iter().map(|it| it.bytes).collect();
    assert_eq!(
        (read.as_slice(), request.faults.first().copied()),
        (bytes, fault),
        "{prompt}"
    );
}

#[test]
fn a_completion_has_a_prompt_for_each_text_or_list_of_token_ids() {
    for (prompt, bytes) in [
        ("\"abc\"", &[3][..]),
        ("\"\"", &[0]),
        ("[]", &[]),
        ("null", &[]),
        ("[\"\"]", &[0]),
        ("[\"a\",\"bc\"]", &[1, 2]),
        ("[1,2,4294967295]", &[12]),
        ("[[1,2],[3]]", &[8, 4]),
        ("[[]]", &[0]),
        ("[[],[1]]", &[0, 4]),
        ("[\"a\",1],\"prompt\":\"abc\"", &[3]),
        ("[\"a\",\"b\"],\"prompt\":[1]", &[4]),
        ("\"a\",\"prompt\":null", &[]),
    ] {
        check_prompts(prompt, bytes, None);
    }
}

#[test]
fn mixed_prompts_are_not_hashed() {
    for prompt in [
        "[\"a\",1]",
        "[1,\"a\"]",
        "[[1],\"a\"]",
        "[\"a\",[1]]",
        "[[1],2]",
        "[1,[2]]",
        "[null]",
        "[{\"a\":[1]}]",
        "[[\"a\"]]",
        "[[[1]]]",
        "[-1]",
        "[1.5]",
        "[1e3]",
        "[4294967296]",
        "[[1],[true]]",
    ] {
        check_prompts(prompt, &[], Some(RequestFault::PromptMixed));
    }
    for prompt in ["5", "{\"prompt\":\"a\"}", "true"] {
        check_prompts(prompt, &[], Some(RequestFault::PromptOfWrongType));
    }
}

#[test]
fn messages_of_another_type_give_no_prompt() {
    let fault = RequestFault::PromptOfWrongType;
    for (body, faults) in [
        (r#"{"tools":[1]}"#, &[][..]),
        (r#"{"messages":null}"#, &[]),
        (r#"{"messages":"a"}"#, &[fault]),
        (r#"{"messages":{"content":"a"}}"#, &[fault]),
        (r#"{"messages":["a"]}"#, &[fault]),
        (r#"{"messages":[{},[]]}"#, &[fault]),
    ] {
        let request = chat(body);
        assert_eq!(
            (request.prompts.len(), request.faults.as_slice()),
            (0, faults),
            "{body}"
        );
    }
}

#[test]
fn token_ids_are_hashed_as_numbers_64_in_a_block() {
    let ids: Vec<_> = (0..130_u32).map(|id| id * 1000).collect();
    let list = |ids: &[u32]| {
        ids.iter()
            .map(|id| format!("{id}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let whole = completion(format!("{{\"prompt\":[{}]}}", list(&ids)));
    let nested = completion(format!("{{\"prompt\":[[{}]]}}", list(&ids)));
    assert_eq!(blocks(&whole).len(), 2);
    assert_eq!(whole.prompts, nested.prompts);
    let begun = completion(format!("{{\"prompt\":[{}]}}", list(&ids[..128])));
    assert_eq!(blocks(&begun), blocks(&whole));
    // The same bytes as text are another prompt.
    let zeros = completion(format!("{{\"prompt\":[{}]}}", list(&[0; 64])));
    let text = completion(format!("{{\"prompt\":\"{}\"}}", "\\u0000".repeat(256)));
    assert_eq!((blocks(&zeros).len(), blocks(&text).len()), (1, 1));
    assert_eq!(shared(&zeros, &text), 0);
}

#[test]
fn hashes_do_not_change_from_version_to_version() {
    // The values were computed by another program from the description in the module's doc.
    let ids: Vec<_> = (0..64).map(|id| format!("{id}")).collect();
    for (shape, body, last) in [
        (
            Completions,
            format!("{{\"prompt\":{}}}", long("", 512)),
            0x64d7_1759_4528_87a1,
        ),
        (
            Completions,
            format!(
                "{{\"model\":\"m\",\"cache_salt\":\"s\",\"prompt\":{}}}",
                long("", 512)
            ),
            0x4bad_b53a_9331_2c5e,
        ),
        (
            Completions,
            format!("{{\"prompt\":[{}]}}", ids.join(",")),
            0x0d51_7cb0_234d_340f,
        ),
        (
            ChatCompletions,
            conversation(&[message("user", 300)]),
            0xe1ae_681b_5146_0b4a,
        ),
        (
            ChatCompletions,
            format!(
                "{{\"tools\":[{{\"a\": 1}}],\"messages\":[{},{{\"content\":[{{\"text\":\"a\"}},\
                 {{\"image_url\":{{\"url\":\"b\"}}}}],\"tool_calls\":[1]}},{}]}}",
                message("user", 300),
                message("user", 300)
            ),
            0x530f_78f2_bb9c_d4e5,
        ),
    ] {
        let request = read(shape, &body);
        let hash = blocks(&request).last().map_or(0, |it| it.0);
        assert_eq!(hash, last, "{hash:#018x} {body}");
    }
}

#[test]
fn the_turns_of_a_conversation_are_one_group() {
    let turns = [
        ("system", 700),
        ("user", 300),
        ("assistant", 500),
        ("user", 900),
    ];
    let turns = turns.map(|(role, len)| message(role, len));
    let groups: Vec<_> = (1..=4)
        .map(|count| chat(conversation(&turns[..count])).group)
        .collect();
    assert_eq!(groups[1], groups[2]);
    assert_eq!(groups[1], groups[3]);
    let request = chat(conversation(&turns));
    assert_eq!(
        request.group,
        Some(blocks(&request)[2]),
        "1,000 bytes and a little framing"
    );
    let other = [&turns[0], &message("user", 310).replace("lorem", "dolor")].map(String::clone);
    assert_ne!(chat(conversation(&other)).group, groups[1]);
    assert_eq!(
        chat(conversation(&turns[1..2])).group,
        Some(blocks(&chat(conversation(&turns[1..2])))[0])
    );
    assert_eq!(chat(conversation(&[message("user", 99)])).group, None);
}

#[test]
fn a_role_after_the_content_tells_the_group_all_the_same() {
    let user = format!("{{\"content\":{},\"role\":\"user\"}}", long("", 600));
    let request = chat(conversation(&[user, message("assistant", 600)]));
    assert_eq!(request.group, Some(blocks(&request)[1]));
}

#[test]
fn the_group_of_a_plain_prompt_is_its_beginning() {
    for (len, block) in [
        (255, None),
        (256, Some(0)),
        (8192, Some(31)),
        (9000, Some(31)),
    ] {
        let request = completion(format!("{{\"prompt\":[{},\"x\"]}}", long("a", len)));
        let first = &request.prompts[0].blocks;
        assert_eq!(request.group, block.map(|it: usize| first[it]), "{len}");
    }
}
