//! Hit rates and times to the first token as a picture.

use std::fmt::Write;

use super::report::{Group, Situation};

/// One situation as SVG: two bars for each policy, the best hit rate on top.
///
/// Left the hit rate; right the mean time to the first token, with a line up to what 99 % stay
/// below.
pub fn chart(situation: &Situation, groups: &[Group<'_>]) -> String {
    let mut groups: Vec<&Group<'_>> = groups.iter().collect();
    groups.sort_by(|a, b| b.mean(|it| it.hit).total_cmp(&a.mean(|it| it.hit)));
    let slowest = groups.iter().map(|group| group.mean(|it| it.ttft_p99));
    let slowest = slowest.fold(1.0, f64::max);
    let hits = Panel {
        left: LABELS_WIDTH,
        full: 100.0,
        step: 20.0,
    };
    let waits = Panel {
        left: LABELS_WIDTH + PANEL_WIDTH + GAP,
        full: slowest,
        step: tick_step(slowest),
    };
    let height = TOP + ROW * groups.len() as f64 + BOTTOM;
    let width = waits.left + PANEL_WIDTH + GAP;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"{FONT}\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{PAPER}\"/>"
    );
    text(
        &mut svg,
        (16.0, 26.0),
        "start",
        INK,
        &heading(situation, &groups),
    );
    hits.axis(&mut svg, height, "prompt tokens found in the cache, %");
    waits.axis(
        &mut svg,
        height,
        "time to the first token, ms: mean, and 99 %",
    );
    for (place, group) in groups.iter().enumerate() {
        let y = TOP + ROW * place as f64;
        let is_ours = group.rows.iter().any(|row| row.case.policy.is_ours());
        let color = if is_ours { OURS } else { OTHERS };
        let baseline = y + ROW * 0.66;
        let weight = if is_ours { OURS_INK } else { INK };
        text(
            &mut svg,
            (LABELS_WIDTH - 8.0, baseline),
            "end",
            weight,
            &group.name(),
        );
        let hit = 100.0 * group.mean(|it| it.hit);
        hits.bar(&mut svg, y, hit, color);
        let beside = (hits.x(hit) + 5.0, baseline);
        text(&mut svg, beside, "start", INK, &format!("{hit:.1}"));
        let (mean, p99) = (group.mean(|it| it.ttft_mean), group.mean(|it| it.ttft_p99));
        waits.bar(&mut svg, y, mean, color);
        waits.whisker(&mut svg, y, (mean, p99));
        let beside = (waits.x(p99) + 6.0, baseline);
        text(
            &mut svg,
            beside,
            "start",
            INK,
            &format!("{mean:.0}, {p99:.0}"),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// One set of bars with its scale.
struct Panel {
    left: f64,
    /// The value at the right end.
    full: f64,
    /// Between two grid lines.
    step: f64,
}

impl Panel {
    fn x(&self, value: f64) -> f64 {
        self.left + PANEL_WIDTH * value / self.full
    }

    fn bar(&self, svg: &mut String, y: f64, value: f64, color: &str) {
        let (x, width) = (self.left, self.x(value) - self.left);
        let (y, height) = (y + ROW * 0.2, ROW * 0.6);
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{color}\"/>"
        );
    }

    fn whisker(&self, svg: &mut String, y: f64, (from, to): (f64, f64)) {
        let (from, to, middle) = (self.x(from), self.x(to), y + ROW * 0.5);
        let (top, bottom) = (y + ROW * 0.32, y + ROW * 0.68);
        let _ = writeln!(
            svg,
            "<path d=\"M{from:.1} {middle:.1}H{to:.1}M{to:.1} {top:.1}V{bottom:.1}\" \
             stroke=\"{INK}\" fill=\"none\"/>"
        );
    }

    fn axis(&self, svg: &mut String, height: f64, title: &str) {
        let bottom = height - BOTTOM;
        text(svg, (self.left, TOP - 12.0), "start", INK, title);
        let mut value = 0.0;
        while value <= self.full {
            let x = self.x(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"{GRID}\" fill=\"none\"/>"
            );
            text(
                svg,
                (x, bottom + 18.0),
                "middle",
                FAINT,
                &format!("{value:.0}"),
            );
            value += self.step;
        }
    }
}

fn heading(situation: &Situation, groups: &[&Group<'_>]) -> String {
    let seeds = groups.iter().map(|group| group.rows.len()).max();
    let has_events = groups
        .iter()
        .any(|group| group.rows.iter().any(|row| row.case.policy.knows_caches()));
    let note = if has_events {
        " (* told by the engines what they hold)"
    } else {
        ""
    };
    let seeds = seeds.unwrap_or_default();
    format!("{}, mean of {seeds} seeds{note}", situation.title())
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, color: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{text}</text>"
    );
}

/// A round number that goes into `full` four to ten times.
fn tick_step(full: f64) -> f64 {
    let unit = 10_f64.powf(full.log10().floor());
    match full / unit {
        times if times < 2.0 => unit * 0.2,
        times if times < 5.0 => unit * 0.5,
        _ => unit,
    }
}

/// Room for the names of policies.
const LABELS_WIDTH: f64 = 210.0;

/// Width of one set of bars.
const PANEL_WIDTH: f64 = 280.0;

/// Room for the number behind the longest bar.
const GAP: f64 = 90.0;

/// Room for the titles.
const TOP: f64 = 72.0;

/// Room for the scale.
const BOTTOM: f64 = 34.0;

/// Height of one policy.
const ROW: f64 = 24.0;

/// What every system has.
const FONT: &str = "DejaVu Sans, Verdana, sans-serif";

const PAPER: &str = "#ffffff";
const INK: &str = "#1f2328";
const FAINT: &str = "#6e7781";
const GRID: &str = "#d8dee4";
const OTHERS: &str = "#a8b3c0";
const OURS: &str = "#1f7a4d";
const OURS_INK: &str = "#14603b";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_between_four_and_ten_steps() {
        for (full, step) in [
            (1.0, 0.2),
            (199.0, 20.0),
            (450.0, 50.0),
            (658.0, 100.0),
            (9999.0, 1000.0),
        ] {
            assert!((tick_step(full) / step - 1.0).abs() < 1e-9, "{full}");
        }
    }
}
