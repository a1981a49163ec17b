//! A line of a document with a mark under the place that is meant.

use super::parts::nth_line;

/// The line with its number and, below it, a mark at the column; both count from 1, columns in
/// characters. `None` when the text has no such line.
///
/// Of a long line only the part around the column is shown.
pub(super) fn excerpt(text: &str, line: u64, column: u64) -> Option<String> {
    let all: Vec<char> = nth_line(text, line)?.trim_end().chars().collect();
    let column = usize::try_from(column).ok()?.saturating_sub(1);
    let column = column.min(all.len());
    let start = if all.len() <= CHARS_MAX {
        0
    } else {
        column.saturating_sub(CHARS_MAX / 2)
    };
    let shown = all.iter().skip(start).take(CHARS_MAX);
    // A tab would put the mark elsewhere.
    let shown: String = shown
        .map(|it| if *it == '\t' { ' ' } else { *it })
        .collect();
    let number = line.to_string();
    let (margin, before) = (" ".repeat(number.len()), " ".repeat(column - start));
    Some(format!("  {number} | {shown}\n  {margin} | {before}^"))
}

/// How much of a line is shown: what fits in a terminal beside the line's number.
const CHARS_MAX: usize = 90;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stands_under_the_column() {
        for (text, line, column, expected) in [
            ("a: 1\nb: 2", 2, 4, "  2 | b: 2\n    |    ^"),
            ("a: 1", 1, 1, "  1 | a: 1\n    | ^"),
            ("\ta: ü, x", 1, 7, "  1 |  a: ü, x\n    |       ^"),
            // At the end of a line and past it.
            ("a:", 1, 3, "  1 | a:\n    |   ^"),
            ("a:", 1, 9, "  1 | a:\n    |   ^"),
        ] {
            assert_eq!(
                excerpt(text, line, column).as_deref(),
                Some(expected),
                "{text:?}"
            );
        }
        assert_eq!(excerpt("a", 2, 1), None);
        assert_eq!(excerpt("a", 0, 1), None);
    }

    #[test]
    fn of_a_long_line_the_part_around_the_column_is_shown() {
        let text = format!("{}!{}", "a".repeat(200), "b".repeat(200));
        let shown = excerpt(&text, 1, 201).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0].len(), "  1 | ".len() + CHARS_MAX);
        assert_eq!(lines[0].find('!'), lines[1].find('^'));
    }
}
