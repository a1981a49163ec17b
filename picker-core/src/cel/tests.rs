use super::*;
use alloc::format;
use alloc::string::{String, ToString};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const USAGE: Usage = Usage {
    prompt: Some(100),
    cached: Some(64),
    output: Some(7),
};

/// The value of the expression for [`USAGE`], `none`, or what is wrong with it.
fn show(text: &str, usage: &Usage) -> String {
    let expression = match Expression::number(text) {
        Err(error) if error.fault == parser::NUMBER && error.column == 1 => {
            Expression::condition(text)
        }
        read => read,
    };
    match expression.map(|it| it.value(usage)) {
        Ok(Some(Value::Bool(value))) => value.to_string(),
        Ok(Some(Value::Int(value))) => value.to_string(),
        Ok(Some(Value::Double(value))) => format!("{value:?}"),
        Ok(None) => "none".into(),
        Err(error) => error.to_string(),
    }
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(show(text, &USAGE), *expected, "{text}");
    }
}

#[test]
fn literals_are_numbers_and_truths() {
    check(&[
        ("42", "42"),
        ("-42", "-42"),
        ("- 42", "-42"),
        ("0x1F", "31"),
        ("-0xa", "-10"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("1e3", "1000.0"),
        ("25e-1", "2.5"),
        ("1E+2", "100.0"),
        ("true", "true"),
        ("false", "false"),
        (" ( ( 1 ) ) ", "1"),
        ("1 // one\n + 2 // two", "3"),
    ]);
}

#[test]
fn counts_are_doubles_and_total_is_prompt_and_completion() {
    check(&[
        ("usage.prompt_tokens", "100.0"),
        ("usage.completion_tokens", "7.0"),
        ("usage.total_tokens", "107.0"),
        ("usage.prompt_tokens_details.cached_tokens", "64.0"),
        ("usage . prompt_tokens", "100.0"),
        ("int(usage.prompt_tokens)", "100"),
    ]);
}

#[test]
fn arithmetic_binds_and_associates_as_in_cel() {
    check(&[
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 - 3 - 2", "5"),
        ("10 - 2 * 3", "4"),
        ("100 / 10 / 5", "2"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 2", "-1"),
        ("7 % -2", "1"),
        ("2 - -2", "4"),
        ("2--2", "4"),
        ("-(1 + 2)", "-3"),
        ("--1", "1"),
        ("7.0 / 2.0", "3.5"),
        ("usage.prompt_tokens / 8", "12.5"),
        ("3 * usage.completion_tokens", "21.0"),
        ("int(-2.9) + int(2.9)", "0"),
        ("double(3) / 2.0", "1.5"),
        ("0x1e+1", "31"),
        ("1e1+1.0", "11.0"),
    ]);
}

#[test]
fn what_overflows_or_divides_by_zero_has_no_value() {
    check(&[
        ("9223372036854775807 + 1", "none"),
        ("-9223372036854775808 - 1", "none"),
        ("4611686018427387904 * 2", "none"),
        ("-(-9223372036854775808)", "none"),
        ("-9223372036854775808 / -1", "none"),
        ("-9223372036854775808 % -1", "none"),
        ("1 / 0", "none"),
        ("1 % 0", "none"),
        ("1.0 / 0.0", "inf"),
        ("int(1.0 / 0.0)", "none"),
        ("int(9223372036854775808.0)", "none"),
        ("int(0.0 / 0.0)", "none"),
    ]);
}

#[test]
fn comparison_is_of_numbers_and_equality_of_truths_too() {
    check(&[
        ("1 < 2", "true"),
        ("2 <= 2", "true"),
        ("2 > 2", "false"),
        ("2 >= 3", "false"),
        ("2 == 2.0", "true"),
        ("2 != 2.5", "true"),
        ("9223372036854775807 == 9223372036854775806", "false"),
        ("true == false", "false"),
        ("true != false", "true"),
        ("1 < 2 == true", "true"),
        ("usage.prompt_tokens > 99", "true"),
        ("1 + 1 == 2 && 3 < 4", "true"),
    ]);
}

#[test]
fn what_decides_makes_the_other_operand_matter_no_more() {
    check(&[
        ("true || 1 / 0 > 0", "true"),
        ("1 / 0 > 0 || true", "true"),
        ("1 / 0 > 0 || false", "none"),
        ("false || 1 / 0 > 0", "none"),
        ("false && 1 / 0 > 0", "false"),
        ("1 / 0 > 0 && false", "false"),
        ("true && 1 / 0 > 0", "none"),
        ("true && true", "true"),
        ("true && false", "false"),
        ("false || false", "false"),
        ("true || false && false", "true"),
        ("!true || true", "true"),
        ("!(true || true)", "false"),
        ("!!true", "true"),
        ("true ? 1 : 1 / 0", "1"),
        ("false ? 1 / 0 : 2", "2"),
        ("1 / 0 > 0 ? 1 : 2", "none"),
        ("false ? 1 : false ? 2 : 3", "3"),
        ("true ? 1 : 2.5", "1"),
        ("true ? false : true", "false"),
    ]);
}

#[test]
fn only_the_cached_tokens_can_be_missing() {
    let nothing = Usage::default();
    for (text, expected) in [
        ("usage.prompt_tokens", "0.0"),
        ("usage.total_tokens", "0.0"),
        ("usage.prompt_tokens_details.cached_tokens", "none"),
        ("has(usage.prompt_tokens)", "true"),
        ("has(usage.prompt_tokens_details)", "false"),
        ("has(usage.prompt_tokens_details.cached_tokens)", "false"),
        (
            "has(usage.prompt_tokens_details) ? usage.prompt_tokens_details.cached_tokens : 3",
            "3",
        ),
    ] {
        assert_eq!(show(text, &nothing), expected, "{text}");
    }
    check(&[
        ("has(usage.prompt_tokens_details)", "true"),
        ("has(usage.prompt_tokens_details.cached_tokens)", "true"),
    ]);
}

#[test]
fn a_mistake_is_told_with_its_column() {
    for (text, expected) in [
        ("", "a number, a count or '(' is expected at column 1"),
        ("1 +", "a number, a count or '(' is expected at column 4"),
        ("1 2", "an operator or the end is expected at column 3"),
        ("(1", "an operator or ')' is expected at column 3"),
        ("1 = 2", "an operator or the end is expected at column 3"),
        ("true ? 1", "':' is expected at column 9"),
        ("1 + true", "a number is expected at column 5"),
        ("true == 1", "a condition is expected at column 9"),
        ("2 ? 1 : 1", "a condition is expected at column 1"),
        ("1 + !2", "a condition is expected at column 6"),
        ("true ? 1 : false", "a condition is expected at column 8"),
        ("usage", "a number is expected at column 1"),
        (
            "1 + usage.prompt_tokens_details",
            "a number is expected at column 5",
        ),
        ("é", "a number, a count or '(' is expected at column 1"),
        (
            "usage.tokens",
            "no count of usage, and no function at column 1",
        ),
        (
            "1 + size(2)",
            "no count of usage, and no function at column 5",
        ),
        ("has(1)", "a count of usage is expected at column 5"),
        (
            "has(usage.prompt_tokens",
            "an operator or ')' is expected at column 24",
        ),
        ("int 1", "'(' is expected at column 5"),
        ("int(true)", "a number is expected at column 5"),
        ("9223372036854775808", "no number of 64 bits at column 1"),
        ("1.", "no number of 64 bits at column 1"),
        ("1.e3", "no number of 64 bits at column 1"),
        ("1u", "no number of 64 bits at column 1"),
        ("1 + 0xg", "no number of 64 bits at column 5"),
        ("1e999", "no number of 64 bits at column 1"),
        (
            "1 + usage.prompt_tokens % 2",
            "a whole number, such as int(usage.prompt_tokens), is expected at column 5",
        ),
        ("1 // é\n+ true", "a number is expected at column 10"),
    ] {
        assert_eq!(
            Expression::number(text).unwrap_err().to_string(),
            expected,
            "{text}"
        );
    }
    let error = Expression::condition(" usage.prompt_tokens").unwrap_err();
    assert_eq!(error.to_string(), "a condition is expected at column 2");
}

#[test]
fn an_expression_has_its_limits() {
    let is_read = |text: &str| match Expression::number(text) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.fault, ExpressionFault::TooLong, "{text}");
            false
        }
    };
    let nested = |depth| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(is_read(&nested(15)) && !is_read(&nested(16)));
    let signs = |count| format!("{}1", "- ".repeat(count));
    assert!(is_read(&signs(15)) && !is_read(&signs(16)));
    let choices = |count| format!("{}1", "true ? 1 : ".repeat(count));
    assert!(is_read(&choices(15)) && !is_read(&choices(16)));
    let chain = |length| format!("1{}", "+1".repeat(length));
    assert!(is_read(&chain(63)) && !is_read(&chain(64)));
    let long = |length: usize| format!("1{}", " ".repeat(length - 1));
    assert!(is_read(&long(1024)) && !is_read(&long(1025)));
}

#[test]
fn a_report_is_a_whole_number_under_a_condition() {
    for (number, condition, expected) in [
        (
            "usage.prompt_tokens + usage.completion_tokens",
            None,
            Some(107),
        ),
        ("usage.prompt_tokens / 8.0", None, Some(12)),
        ("usage.prompt_tokens - 100", None, None),
        ("0 - 1", None, None),
        ("0 - 2", None, Some(-2)),
        ("-0.5", None, None),
        ("1 / 0", None, None),
        ("1e300", None, None),
        ("5", Some("has(usage.completion_tokens)"), Some(5)),
        ("5", Some("usage.total_tokens > 107"), None),
        ("5", Some("1 / 0 > 0"), None),
    ] {
        let condition = condition.map(|it| Expression::condition(it).unwrap());
        let report = UsageReport::new(Expression::number(number).unwrap(), condition);
        assert_eq!(report.of(&USAGE), expected, "{number}");
    }
}
