//! The curves as a picture.

use std::fmt::Write;

use crate::crowd::Figures;
use crate::{Curve, spelled};

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 190.0;
/// Within a panel: left, top, right, bottom.
const MARGIN: [f64; 4] = [48.0, 34.0, 14.0, 26.0];
const COLUMNS: usize = 3;
type Time = (&'static str, fn(&Figures) -> f64, &'static str);
/// The lines of a panel of times: what they are of, and what they look like.
const TIMES: [Time; 4] = [
    ("begin", |f| f.begin, "first"),
    ("begin, again", |f| f.begin_again, "first dashed"),
    ("wake and join", |f| f.end, "second"),
    ("wake and join, again", |f| f.end_again, "second dashed"),
];

const STYLE: &str = "
svg { font: 12px system-ui, 'DejaVu Sans', sans-serif; --page: #fbfbf9; --ink: #1b1f24; --soft: #59626d;
  --line: #dde1e6; --first: #0069b4; --second: #c2500a; --third: #00795a; }
@media (prefers-color-scheme: dark) { svg { --page: #14171b; --ink: #e8eaed; --soft: #a3adb8;
  --line: #353c45; --first: #5cb3f5; --second: #f29450; --third: #3fcf9f; } }
.page { fill: var(--page); } text { fill: var(--ink); } .soft { fill: var(--soft); font-size: 10.5px; }
.title { font-weight: 600; } .grid { stroke: var(--line); }
.first { stroke: var(--first); } .second { stroke: var(--second); } .third { stroke: var(--third); }
polyline, .key { fill: none; stroke-width: 2; } .dashed { stroke-dasharray: 4 3; }
circle { fill: var(--page); stroke-width: 1.5; }
";

/// A round number that is not less.
fn above(most: f64) -> f64 {
    let step = 10f64.powf(most.max(1.0).log10().floor());
    [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .map(|n| n * step)
        .into_iter()
        .find(|&n| n >= most)
        .unwrap_or(most)
}

type Line<'a> = (Vec<(usize, f64)>, &'a str);

fn panel(out: &mut String, number: usize, title: &str, unit: &str, lines: &[Line]) {
    let x0 = (number % COLUMNS) as f64 * WIDTH + MARGIN[0];
    let y0 = 64.0 + (number / COLUMNS) as f64 * HEIGHT + MARGIN[1];
    let (wide, high) = (WIDTH - MARGIN[0] - MARGIN[2], HEIGHT - MARGIN[1] - MARGIN[3]);
    let all = || lines.iter().flat_map(|line| &line.0);
    let most = above(all().map(|point| point.1).fold(0.0, f64::max));
    let x = |size: usize| x0 + wide * ((size as f64).log10() - 2.0) / 4.0;
    let y = |value: f64| y0 + high * (1.0 - value / most);
    let _ = writeln!(out, r#"<text class="title" x="{x0}" y="{}">{title}</text>"#, y0 - 18.0);
    let _ = writeln!(out, r#"<text class="soft" x="{x0}" y="{}">{unit}</text>"#, y0 - 5.0);
    for part in 0..=2 {
        let value = most * f64::from(part) / 2.0;
        let (at, text) = (y(value), spelled(value.round() as usize));
        let _ = writeln!(out, r#"<path class="grid" d="M{x0} {at:.1}h{wide}"/>"#);
        let _ = writeln!(
            out,
            r#"<text class="soft" text-anchor="end" x="{}" y="{:.1}">{text}</text>"#,
            x0 - 5.0,
            at + 4.0
        );
    }
    for (power, text) in ["100", "1,000", "10,000", "100,000", "1M"].into_iter().enumerate() {
        let at = x0 + wide * power as f64 / 4.0;
        let _ = writeln!(
            out,
            r#"<text class="soft" text-anchor="middle" x="{at:.1}" y="{:.1}">{text}</text>"#,
            y0 + high + 15.0
        );
    }
    for (points, class) in lines {
        let path: Vec<String> =
            points.iter().map(|&(size, value)| format!("{:.1},{:.1}", x(size), y(value))).collect();
        let _ = writeln!(out, r#"<polyline class="{class}" points="{}"/>"#, path.join(" "));
        let colour = class.split(' ').next().unwrap_or_default();
        for &(size, value) in points {
            let _ = writeln!(
                out,
                r#"<circle class="{colour}" r="2.5" cx="{:.1}" cy="{:.1}"><title>{}: {value:.0}</title></circle>"#,
                x(size),
                y(value),
                spelled(size)
            );
        }
    }
}

/// A panel of times for each row, and one of all rows' memory.
pub(crate) fn picture(curves: &[Curve]) -> String {
    let rows = (curves.len() + 1).div_ceil(COLUMNS);
    let (wide, high) = (WIDTH * COLUMNS as f64, 64.0 + HEIGHT * rows as f64 + 8.0);
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img" aria-label="Cost of each fiber by the size of the crowd"><style>{STYLE}</style>
<rect class="page" width="100%" height="100%"/>
<text class="title" x="16" y="24">What each fiber costs, by the size of the crowd</text>
"#
    );
    for (place, (what, _, class)) in TIMES.iter().enumerate() {
        let at = 16.0 + place as f64 * 190.0;
        let _ = writeln!(
            out,
            r#"<path class="key {class}" d="M{at} 43h26"/><text x="{}" y="47">{what}</text>"#,
            at + 33.0
        );
    }
    for (number, curve) in curves.iter().enumerate() {
        let lines = TIMES.map(|(_, of, class)| {
            (curve.points.iter().map(|(size, f)| (*size, of(f))).collect(), class)
        });
        panel(&mut out, number, curve.row.name, "nanoseconds of the processor each", &lines);
    }
    let lines: Vec<Line> = curves
        .iter()
        .map(|curve| (curve.points.iter().map(|(size, f)| (*size, f.bytes)).collect(), "third"))
        .collect();
    panel(&mut out, curves.len(), "all rows: memory", "bytes each, page tables among them", &lines);
    out.push_str("</svg>\n");
    out
}
