//! Expressions over token counts: a mistake lies within the text, an expression is of one type, and
//! parentheses around it and blanks behind it change nothing.

use std::io;

use picker_core::{Expression, ExpressionFault, Usage, UsageReport};

/// The text of an expression.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (number, condition) = (Expression::number(&text), Expression::condition(&text));
    assert!(number.is_err() || condition.is_err(), "{text}");
    for error in [number.as_ref().err(), condition.as_ref().err()] {
        let columns = 1..=text.chars().count() + 1;
        assert!(
            error.is_none_or(|it| columns.contains(&it.column)),
            "{error:?}"
        );
    }
    let wrapped = format!("({text}\n)");
    for usage in USAGES {
        if let Ok(number) = &number {
            let report = UsageReport::new(number.clone(), None);
            let reported = report.of(&usage);
            assert!(reported.is_none_or(|it| Some(it) == number.whole(&usage)));
            if let Some(wrapped) = unless_too_long(Expression::number(&wrapped)) {
                assert_eq!(wrapped.whole(&usage), number.whole(&usage));
            }
        }
        if let Ok(condition) = &condition
            && let Some(wrapped) = unless_too_long(Expression::condition(&wrapped))
        {
            assert_eq!(wrapped.holds(&usage), condition.holds(&usage));
        }
    }
}

/// Expressions with every operator, and one that is too deep.
pub fn seeds() -> io::Result<Vec<Vec<u8>>> {
    let texts = [
        "usage.prompt_tokens + usage.completion_tokens * 3",
        "has(usage.prompt_tokens_details.cached_tokens) && usage.total_tokens >= 1e3",
        "has(usage.prompt_tokens_details) ? int(usage.prompt_tokens) % 0x10 : -1 // none",
        "!(1 < 2 || 2.5 <= .5) == (double(7) / 0.0 != 1.0)",
        "-9223372036854775808 / -1 - 2",
        "((((((((((((((((((1))))))))))))))))))",
    ];
    Ok(texts.map(|text| text.as_bytes().to_vec()).to_vec())
}

/// The expression; `None` when the parentheses were too many.
fn unless_too_long(read: Result<Expression, picker_core::ExpressionError>) -> Option<Expression> {
    let fault = read.as_ref().err().map(|error| error.fault);
    assert!(
        matches!(fault, None | Some(ExpressionFault::TooLong)),
        "{read:?}"
    );
    read.ok()
}

const USAGES: [Usage; 3] = [
    Usage {
        prompt: None,
        cached: None,
        output: None,
    },
    Usage {
        prompt: Some(1000),
        cached: Some(64),
        output: Some(7),
    },
    Usage {
        prompt: Some(u64::MAX),
        cached: Some(0),
        output: Some(u64::MAX),
    },
];
