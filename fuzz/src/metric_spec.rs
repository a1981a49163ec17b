//! What a user selects samples by: a mistake lies within the text, blanks around it change nothing,
//! and a spec selects the sample that it looks like.

use std::io;

use picker_core::{
    Engine, EngineMapping, Mapped, MetricSpec, Reporter, SpecError, Timestamp, read_page_of,
};

/// The text of a spec.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let spec = text.parse::<MetricSpec>();
    let is_long = text.len() > SPEC_BYTES_MAX;
    match &spec {
        Ok(spec) => {
            assert!(!is_long);
            for wrapped in [
                format!("\t {text}"),
                format!("{text} \n"),
                format!("{text}\u{a0}"),
            ] {
                let read = wrapped.parse::<MetricSpec>();
                assert!(
                    wrapped.len() > SPEC_BYTES_MAX || read.as_ref() == Ok(spec),
                    "{wrapped}"
                );
            }
            // Neither can follow a spec that is complete.
            for longer in [format!("{text}}}"), format!("{text}=1")] {
                assert!(longer.parse::<MetricSpec>().is_err(), "{longer}");
            }
            selects_what_it_looks_like(&text, spec);
        }
        Err(SpecError { column, expected }) => {
            assert!((1..=text.chars().count() + 1).contains(column), "{text}");
            assert!(!expected.is_empty());
        }
    }
}

/// Specs in every form, and some that are none.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let texts = [
        "vllm:num_requests_waiting",
        "q{state=waiting}",
        "q{state=\"waiting\",priority='gold',}",
        " q { state = \"a\\\"b\\n\\\\\" , x=y } ",
        "q{}",
        "q{state=~\"a\"}",
        "q{state!=a}",
        "q{state=\"a}",
        "9q",
        "",
    ];
    let long = format!("q{{state={}}}", "a".repeat(SPEC_BYTES_MAX));
    Ok(texts
        .into_iter()
        .chain([long.as_str()])
        .map(|it| it.as_bytes().to_vec())
        .collect())
}

/// Where the text is that of a sample too, with one label at the most, the spec selects that
/// sample.
fn selects_what_it_looks_like(text: &str, spec: &MetricSpec) {
    let line = format!("{text} 3");
    let name: String = text
        .trim_start()
        .chars()
        .take_while(|it| *it == ':' || *it == '_' || it.is_ascii_alphanumeric())
        .collect();
    let any = name.parse::<MetricSpec>();
    assert!(any.is_ok(), "{text:?} begins with no name");
    let waiting = |spec: &MetricSpec| {
        let mut mapping = EngineMapping::new("mine");
        mapping.read(Mapped::Waiting, spec.clone());
        let engine = Engine::Mapped(&mapping);
        let reporter = Reporter { engine, rank: None };
        let read = read_page_of(line.as_bytes(), reporter, true, Timestamp(0)).ok()?;
        read.metrics.waiting
    };
    let selected = waiting(spec);
    assert!(selected.is_none_or(|it| it == 3.0), "{line}");
    // Other blanks are part of a name in a page, and a part of a total is left out there unless it
    // is asked for.
    let is_plain = |it: char| matches!(it, ' ' | '\t') || !it.is_whitespace();
    let is_simple = text.matches('=').count() <= 1 && text.chars().all(is_plain);
    if is_simple && any.is_ok_and(|any| waiting(&any).is_some()) {
        assert_eq!(selected, Some(3.0), "{line}");
    }
}

const SPEC_BYTES_MAX: usize = 1024;
