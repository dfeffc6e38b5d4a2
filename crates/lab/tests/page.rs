//! The page, in a browser: a real click sorts a table and switches a workload, nothing complains,
//! and a phone does not scroll sideways.

#[path = "support/browser.rs"]
mod browser;

use std::collections::BTreeMap;
use std::fs;

use browser::Browser;
use carefree_lab::compare::Comparison;
use carefree_lab::env::Environment;
use carefree_lab::record::{self, Failed, Parameters, Reading, Record, RunFacts, Subject};
use carefree_lab::report::{Format, comparison, render_all};
use serde_json::json;

/// A record with samples, of a runtime that the published ones do not have, and with a failure
/// that would break the page if it could.
fn mine(started: &str) -> Record {
    mine_of("1.19.8", started, 1.0)
}

/// The same of this version, with so many times the figures.
fn mine_of(version: &str, started: &str, factor: f64) -> Record {
    let mut samples = Vec::new();
    for (unit, time) in [("goroutine", 900.0), ("locked", 42_000.0)] {
        for position in 0..9_u32 {
            let time = factor * time * (1.0 + f64::from(position) / 100.0);
            samples.push(Reading {
                subject: Subject::new(
                    ["go", version, unit, "alloc"],
                    Parameters::of([("units", 10_000)]),
                ),
                run: started.into(),
                position: samples.len(),
                figures: BTreeMap::from([
                    ("time_per_unit".into(), time),
                    ("whole_memory_per_unit".into(), time / 2.0 + 2_000.0),
                ]),
                ..Reading::default()
            });
        }
    }
    let failed = Failed {
        subject: samples[0].subject.clone(),
        times: 1,
        message: "<script>throw 'a failure got into the page'</script>".into(),
        advice: None,
        stderr: Some("</pre><img src=x onerror=\"throw 1\">".into()),
    };
    let environment = Environment {
        started: started.into(),
        cpu: Some("Example 9000".into()),
        cores: 2,
        cores_allowed: 2,
        ..Environment::default()
    };
    Record::new(environment, RunFacts::default(), samples, vec![failed])
}

/// Servers of two runtimes, each under two loads.
fn servers() -> Record {
    let mut samples = Vec::new();
    for (kind, more) in [("plain", 0.0), ("backend", 30_000.0)] {
        for (runtime, unit, time) in [("python", "thread", 2e5), ("go", "goroutine", 5e4)] {
            for position in 0..5_u32 {
                let time = time + more + 100.0 * f64::from(position);
                let parameters = Parameters::of([("rate", 1_000), ("idle", 10_000)]);
                samples.push(Reading {
                    subject: Subject::new(
                        [runtime, "1.0", unit, "serve"],
                        parameters.with("kind", kind),
                    ),
                    position: samples.len(),
                    figures: BTreeMap::from([("cpu_per_request".into(), time)]),
                    ..Reading::default()
                });
            }
        }
    }
    Record::new(Environment::default(), RunFacts::default(), samples, Vec::new())
}

/// Memory of parked threads with a long name, so many times as much.
fn crowd(factor: f64) -> Record {
    let sample = |position: u32| Reading {
        subject: Subject::new(
            ["c++", "14", "thread (carefree)", "parked"],
            Parameters::of([("units", 10_000)]),
        ),
        position: position as usize,
        figures: BTreeMap::from([(
            "whole_memory_per_unit".into(),
            factor * 5_000.0 + f64::from(position),
        )]),
        ..Reading::default()
    };
    let samples = (0..9).map(sample).collect();
    Record::new(Environment::default(), RunFacts::default(), samples, Vec::new())
}

/// Meals of a runtime with a long name, in which threads overtake.
fn meals() -> Record {
    let mut samples = Vec::new();
    for (unit, times) in [("thread", [9.0, 9.0, 9.0]), ("fiber", [1.0, 5.0, 80.0])] {
        for (bites, time) in [10_u64, 100, 1_000].into_iter().zip(times) {
            for position in 0..3_u32 {
                let parameters = Parameters::of([("people", 2_048), ("nutrients", bites)]);
                samples.push(Reading {
                    subject: Subject::new(
                        ["python", "3.13.0 (free-threaded)", unit, "feed"],
                        parameters.with("yields", true),
                    ),
                    position: samples.len(),
                    figures: BTreeMap::from([("time".into(), time + f64::from(position) / 10.0)]),
                    ..Reading::default()
                });
            }
        }
    }
    Record::new(Environment::default(), RunFacts::default(), samples, Vec::new())
}

/// Words of a chart that cover others.
const MEET: &str = "return [...document.querySelectorAll('figure svg')].flatMap(svg => {\
                    const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim());\
                    const boxes = texts.map(t => t.getBoundingClientRect());\
                    return texts.filter((t, at) => boxes.some((b, to) => to > at && b.width > 0 &&\
                        b.left < boxes[at].right - 1 && boxes[at].left < b.right - 1 &&\
                        b.top < boxes[at].bottom - 3 && boxes[at].top < b.bottom - 3))\
                        .map(t => t.textContent); })";

/// The first column of the first table, from top to bottom.
const ORDER: &str = "return [...document.querySelectorAll('#tables table')[0].tBodies[0].rows]\
                     .map(row => row.cells[0].textContent)";

/// The workloads whose panels are shown.
const SHOWN: &str = "return [...document.querySelectorAll('[role=tabpanel]')]\
                     .filter(panel => panel.offsetHeight > 0).map(panel => panel.id)";

#[test]
fn the_page_works_in_a_browser() {
    if !browser::is_installed() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    // Two days of one version: the history has dates across.
    let mine = ["2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z"].map(mine);
    let records: Vec<Record> = mine.into_iter().chain(record::published()).collect();
    fs::write(&page, render_all(&records, Format::Html, false)).expect("written");
    let browser = Browser::start(1200, 900);
    browser.open(&page);

    // One workload at a time, by a click and by keys.
    assert_eq!(browser.run(SHOWN), json!(["panel-alloc"]));
    browser.click("#tab-feed");
    assert_eq!(browser.run(SHOWN), json!(["panel-feed"]));
    let selected = "return document.activeElement.getAttribute('aria-selected') + \
                    document.activeElement.id";
    assert_eq!(browser.run(selected), json!("truetab-feed"));
    browser.press('\u{e014}');
    assert_eq!(browser.run(SHOWN), json!(["panel-fetch"]), "the right arrow goes on");
    browser.press('\u{e014}');
    assert_eq!(browser.run(SHOWN), json!(["panel-alloc"]), "and round");

    // Sorted by the ratio, once up and once down.
    let heading = "#tables table th:nth-child(4) button";
    browser.click(heading);
    let up = browser.run(ORDER);
    assert_eq!(up[0], "ruby 3.2\npublished", "5.2x is the least: {up}");
    let sorted = "return document.querySelector('#tables th:nth-child(4)').ariaSort";
    assert_eq!(browser.run(sorted), json!("ascending"));
    browser.click(heading);
    let down = browser.run(ORDER);
    assert_eq!(down[0], "go 1.19.8\n(goroutine / locked)", "47x is the most: {down}");
    assert_eq!(browser.run(sorted), json!("descending"));
    assert_eq!(up.as_array().map(Vec::len), down.as_array().map(Vec::len));

    // Runtimes are chosen by the keyboard alone, and the address says which.
    browser.click("#tab-alloc");
    let rows = "return [...document.querySelectorAll('#panel-alloc g.row')]\
                .filter(row => row.style.display !== 'none').map(row => row.dataset.runtime)";
    assert!(browser.run(rows).as_array().is_some_and(|rows| rows.contains(&json!("go"))));
    browser.run("document.querySelector('#choice input[value=go]').focus()");
    browser.press(' ');
    let left = browser.run(rows);
    let left = left.as_array().expect("a list");
    assert!(!left.is_empty() && !left.contains(&json!("go")), "{left:?}");
    assert_eq!(browser.run("return location.hash"), json!("#only=ruby,d"));
    // So does it of the workload, one beside the other.
    browser.click("#tab-fetch");
    assert_eq!(browser.run("return location.hash"), json!("#workload=fetch&only=ruby,d"));
    browser.run("location.hash = '#tables'");
    let later = |what: &str| {
        let wait = "return new Promise(done => setTimeout(() => done((() => { WHAT })()), 0))";
        browser.run(&wait.replace("WHAT", what))
    };
    assert_eq!(later(SHOWN), json!(["panel-fetch"]), "the address of a section chooses nothing");
    browser.click("#tab-feed");
    assert_eq!(browser.run("return location.hash"), json!("#workload=feed&only=ruby,d"));
    browser.run("location.hash = '#workload=feed'");
    assert_eq!(later(SHOWN), json!(["panel-feed"]));
    browser.run("location.hash = '#workload=none-of-ours&only=ruby,d'");
    assert_eq!(later(SHOWN), json!(["panel-alloc"]));
    assert_eq!(browser.run("return document.querySelector('#tables tbody tr:not([hidden])').cells[0].textContent.slice(0, 4)"), json!("ruby"));
    // A link shows the same, in its order: versions by name, the oldest on top.
    browser.run("location.hash = '#only=ruby&sort=name'");
    let first = "return new Promise(done => setTimeout(() => {\
                 const rows = [...document.querySelectorAll('#panel-alloc svg.dumbbells g.row')]\
                 .filter(row => row.style.display !== 'none' && row.closest('figure') === \
                 document.querySelector('#panel-alloc figure'));\
                 rows.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top);\
                 done(rows.map(row => row.dataset.name)); }, 0))";
    let named = browser.run(first);
    assert_eq!(named[0], "ruby 2.5 published", "{named}");
    browser.run("location.hash = '#only=d,go,ruby&sort=ratio'");

    // A page that is opened by such an address shows it at once.
    browser.run("location.hash = '#workload=feed&only=ruby'");
    browser.run("location.reload()");
    assert_eq!(later(SHOWN), json!(["panel-feed"]));
    let checked =
        "return [...document.querySelectorAll('#choice input:checked')].map(box => box.value)";
    assert_eq!(browser.run(checked), json!(["ruby"]));
    browser.run("location.hash = '#only=d,go,ruby&sort=ratio'");
    assert_eq!(later(SHOWN), json!(["panel-alloc"]));

    // Charts and sentences of a runtime that is left out go, those of the others stay.
    let parts = "return Object.fromEntries(['figure', 'li'].map(kind => [kind, \
                 [...new Set([...document.querySelectorAll(`#summary ${kind}, #history ${kind}`)]\
                 .filter(part => !part.hidden && /^(In )?(go|ruby)\\b/i.test(part.textContent))\
                 .map(part => /^(In )?go\\b/i.test(part.textContent) ? 'go' : 'ruby'))].sort()]))";
    let both = json!({"figure": ["go", "ruby"], "li": ["go", "ruby"]});
    assert_eq!(browser.run(parts), both);
    browser.click("#choice input[value=go]");
    assert_eq!(browser.run(parts), json!({"figure": ["ruby"], "li": ["ruby"]}));
    browser.click("#choice input[value=go]");
    assert_eq!(browser.run(parts), both);

    // What stands behind a chart.
    browser.click("#panel-alloc details summary");
    let open = "return document.querySelector('#panel-alloc details table').offsetHeight > 0";
    assert_eq!(browser.run(open), json!(true));

    // Dark as the system says, until the reader says otherwise.
    let paper = "return getComputedStyle(document.body).backgroundColor";
    let light = browser.run(paper);
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.devtools("Emulation.setEmulatedMedia", &dark);
    assert_ne!(browser.run(paper), light);
    // Paper is white, whatever the system says.
    let mut print = dark.clone();
    print["media"] = json!("print");
    browser.devtools("Emulation.setEmulatedMedia", &print);
    assert_eq!(browser.run(paper), json!("rgb(255, 255, 255)"));
    // A button is painted once, so the head that the next page repeats has words without buttons.
    let boxes = "return [...document.querySelectorAll('#tables th button')]\
                 .filter(button => button.getClientRects().length > 0).length";
    assert_eq!(browser.run(boxes), json!(0));
    print["media"] = json!("");
    browser.devtools("Emulation.setEmulatedMedia", &print);
    browser.click("#theme");
    assert_eq!(browser.run(paper), light);

    // Each picture can be told, and each heading has its level.
    let silent = "return [...document.querySelectorAll('svg[role=img]')]\
                  .filter(svg => !svg.getAttribute('aria-label')).length";
    assert_eq!(browser.run(silent), json!(0));
    let levels = "return [...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])";
    let levels = browser.run(levels);
    let levels: Vec<u64> =
        levels.as_array().expect("a list").iter().filter_map(|l| l.as_u64()).collect();
    assert_eq!(levels[0], 1);
    assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");

    // On a phone everything but the tables, which scroll by themselves, fits the width.
    let phone = json!({"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true});
    browser.devtools("Emulation.setDeviceMetricsOverride", &phone);
    for tab in ["#tab-alloc", "#tab-switch", "#tab-feed", "#tab-fetch"] {
        browser.click(tab);
        let width = browser.run("return document.documentElement.scrollWidth");
        assert_eq!(width, json!(360), "{tab}");
        assert_eq!(browser.run(MEET), json!([]), "{tab}");
    }
    // Two figures in a cell stand one above the other, and an option is not broken at its hyphens.
    let rows = "const cell = document.querySelector('#tables td.right'), said = cell.textContent; \
                cell.textContent = '1\\n2'; const range = document.createRange(); \
                range.selectNodeContents(cell); \
                const lines = new Set([...range.getClientRects()].map(box => box.top)).size; \
                cell.textContent = said; return lines";
    assert_eq!(browser.run(rows), json!(2));
    let broken = "const broken = []; \
                  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); \
                  for (let text; text = walk.nextNode();) \
                  for (const word of text.data.matchAll(/--[a-z-]+/g)) { \
                  const range = document.createRange(); range.setStart(text, word.index); \
                  range.setEnd(text, word.index + word[0].length); \
                  if (new Set([...range.getClientRects()].map(box => box.top)).size > 1) \
                  broken.push(word[0]); } return broken";
    for pad in 0..20 {
        browser.run(&format!("document.querySelector('.doubts').style.paddingRight = '{pad}ch'"));
        assert_eq!(browser.run(broken), json!([]), "{pad}");
    }
    fs::write(&page, render_all(&[meals()], Format::Html, false)).expect("written");
    browser.open(&page);
    let said = browser.run("return document.querySelector('#panel-feed').innerText");
    assert!(said.as_str().is_some_and(|text| text.contains("threads overtake from")), "{said}");
    let matrices = "return [...document.querySelectorAll('table')].filter(table => \
                    table.tHead.textContent.includes('Threads Overtake')).length";
    assert_eq!(browser.run(matrices), json!(1));
    // Behind each curve is each of its samples, a dot that begins with its place.
    let dots = "return [...document.querySelectorAll('#panel-feed figure')].map(figure => \
                [...figure.querySelectorAll('path.samples')].map(path => \
                path.getAttribute('d').split('M').length - 1))";
    assert_eq!(browser.run(dots), json!([[], [3, 3, 3, 3, 3, 3]]));
    assert_eq!(browser.run(MEET), json!([]), "on a phone");

    // Servers of all runtimes that had one load stand in one chart, from which one can be left out.
    fs::write(&page, render_all(&[servers()], Format::Html, false)).expect("written");
    browser.open(&page);
    assert_eq!(browser.run("return document.documentElement.scrollWidth"), json!(360));
    let rows = "return [...document.querySelectorAll('#panel-serve figure')].map(figure => \
                [figure.querySelector('figcaption').innerText.match(/plain|backend/)[0], \
                ...[...figure.querySelectorAll('g.row')].filter(row => row.style.display !== 'none')\
                .map(row => row.querySelector('text').textContent)])";
    let all = json!([
        ["backend", "go goroutine", "python thread"],
        ["plain", "go goroutine", "python thread"],
    ]);
    assert_eq!(browser.run(rows), all);
    // They can be ordered by name, too, and by nothing that their bars have not.
    let orders = "return [...document.querySelector('#choice select').options].map(o => o.value)";
    assert_eq!(browser.run(orders), json!(["best", "name"]));
    let sorted = |order: &str| {
        browser.run(&format!("location.hash = '#sort={order}'"));
        browser.run(
            "return new Promise(done => setTimeout(() => done(\
             [...document.querySelectorAll('#panel-serve figure:first-of-type g.row')]\
             .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)\
             .map(row => row.querySelector('text').textContent)), 0))",
        )
    };
    let names = sorted("name");
    assert_eq!(names[0], "go goroutine", "{names}");
    assert_eq!(sorted("ratio"), sorted("best"), "an order that is not offered is none");
    browser.run("document.querySelector('#choice input[value=go]').click()");
    let left = json!([["backend", "python thread"], ["plain", "python thread"]]);
    assert_eq!(browser.run(rows), left);

    // What became of a figure is the last column: it is on the screen, however long versions are.
    let desk = json!({"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": false});
    browser.devtools("Emulation.setDeviceMetricsOverride", &desk);
    let side = |version: &str, factor: f64| mine_of(version, "2026-02-02T12:00:00Z", factor);
    let sides = [side("1.19.8 (golang:bullseye)", 1.0), side("1.26.8 (golang:experimental)", 2.0)];
    let [old, new] = &sides;
    let compared = Comparison::new(std::slice::from_ref(old), std::slice::from_ref(new));
    let compared = comparison(&compared, Format::Html, false).expect("a page");
    fs::write(&page, compared).expect("written");
    browser.open(&page);
    let wide = "return [...document.querySelectorAll('.scroll')]\
                .filter(box => box.scrollWidth > box.clientWidth).length";
    assert_eq!(browser.run(wide), json!(0));

    // On a phone a long label stays in its card.
    browser.devtools("Emulation.setDeviceMetricsOverride", &phone);
    let compared = Comparison::new(&[crowd(1.0)], &[crowd(3.0)]);
    let compared = comparison(&compared, Format::Html, false).expect("a page");
    fs::write(&page, compared).expect("written");
    browser.open(&page);
    let label = "return document.querySelector('svg.ratios').textContent.includes('per unit')";
    assert_eq!(browser.run(label), json!(true));
    let outside = "return [...document.querySelectorAll('svg.ratios text')].filter(text => \
                   text.getBoundingClientRect().right > \
                   text.closest('svg').getBoundingClientRect().right).map(text => text.textContent)";
    assert_eq!(browser.run(outside), json!([]));
    assert_eq!(browser.run(MEET), json!([]));

    assert_eq!(browser.complaints(), json!([]));
}
