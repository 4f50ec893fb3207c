//! The comparison as a picture: bars of the means, a dot for each run.

use std::fmt::Write as _;

use crate::compare::{Cell, Pace};
use crate::stats::{largest, mean};

const BAR: usize = 18;
const GROUP: usize = 62;
const LEFT: usize = 120;
const WIDTH: usize = 720;
/// Room right of the longest bar for its figure.
const RIGHT: usize = 150;
const TOP: usize = 48;

/// Two bars a cell, base over this, as long as the decode rate.
pub(crate) fn svg(cells: &[Cell]) -> String {
    let rates = || cells.iter().flat_map(|cell| cell.base.iter().chain(&cell.this)).copied();
    let most = largest(rates()).filter(|most| *most > 0.0).unwrap_or(1.0);
    let x = |rate: f64| LEFT as f64 + rate / most * (WIDTH - LEFT - RIGHT) as f64;
    let height = TOP + GROUP * cells.len() + 12;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">Decode, tokens a second</text>\n\
         <text x=\"{LEFT}\" y=\"38\" fill=\"#555555\">bar: mean of two runs; dots: the runs; grey: \
         base, blue: this</text>\n"
    );
    for (at, cell) in cells.iter().enumerate() {
        let top = TOP + at * GROUP;
        let label = escaped(&cell.name);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "<text x=\"8\" y=\"{}\">{label}</text>", top + BAR + 8);
        for (i, (runs, colour)) in
            [(&cell.base, "#9aa0a6"), (&cell.this, "#1a73e8")].into_iter().enumerate()
        {
            let (y, end) = (top + 6 + i * (BAR + 4), mean(runs).map(x));
            let Some(end) = end else {
                let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"{}\">no rate</text>", y + 14);
                continue;
            };
            let width = end - LEFT as f64;
            let _ = writeln!(
                text,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" \
                 fill=\"{colour}\"/>"
            );
            for run in runs {
                let (cx, cy) = (x(*run), y + BAR / 2);
                let _ =
                    writeln!(text, "<circle cx=\"{cx:.1}\" cy=\"{cy}\" r=\"3\" fill=\"#202124\"/>");
            }
            let verdict = match (i, cell.pace) {
                (0, _) => String::new(),
                (_, Pace::Unknown) => " unknown".into(),
                (_, pace) => {
                    let gap = cell.gap().unwrap_or(0.0) * 100.0;
                    format!(" {gap:+.1}%, {}", pace.name())
                }
            };
            let rate = mean(runs).unwrap_or(0.0);
            let _ = writeln!(
                text,
                "<text x=\"{:.1}\" y=\"{}\">{rate:.2}{verdict}</text>",
                end + 8.0,
                y + 14
            );
        }
    }
    text.push_str("</svg>\n");
    text
}

/// A page with the chart and the table in it.
pub(crate) fn html(svg: &str, table: &str, base: &str, this: &str) -> String {
    let (table, base, this) = (escaped(table), escaped(base), escaped(this));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>finback bench \
         compare</title></head>\n<body style=\"font-family: sans-serif; max-width: 60em; margin: \
         2em auto\">\n<h1>finback bench compare</h1>\n<p>base: {base}<br>this: {this}</p>\n\
         {svg}<pre>{table}</pre>\n</body>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Verdict;

    fn cell(base: &[f64], this: &[f64]) -> Cell {
        Cell {
            name: "raw <t=0>".into(),
            base: base.into(),
            this: this.into(),
            ttft_s: [None; 2],
            pace: crate::compare::pace(base, this),
            replies: Verdict::Failed,
        }
    }

    #[test]
    fn every_run_has_its_dot_and_names_are_escaped() {
        let text = svg(&[cell(&[10.0, 12.0], &[5.0, 5.5]), cell(&[], &[3.0])]);
        assert_eq!(text.matches("<circle").count(), 5);
        assert!(text.contains("raw &lt;t=0&gt;") && text.contains("no rate"), "{text}");
        assert!(text.contains("-52.3%, slower") && text.contains(" unknown"), "{text}");
        // The longest run ends where the room for the figures begins.
        assert!(text.contains(&format!("cx=\"{}.0\"", WIDTH - RIGHT)), "{text}");
        let page = html(&text, "a < b", "http://a", "http://b");
        assert!(page.contains("a &lt; b") && page.contains("<svg"), "{page}");
    }
}
