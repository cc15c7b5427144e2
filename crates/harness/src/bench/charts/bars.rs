//! Charts of ratios: horizontal bars in sections, each section with a scale of its own, shorter is better. SVG by hand,
//! with colours for light and dark pages.
//!
//! Figures stand in a column of their own left of the bars, so that no line runs through one.

use super::frame;

const LABEL_LEFT: f64 = 10.0;
/// The right end of all figures.
const FIGURE_RIGHT: f64 = 400.0;
/// The left end of all bars.
const LEFT: f64 = 412.0;
const RIGHT: f64 = frame::WIDTH - 20.0;
const BAR_HEIGHT: f64 = 14.0;
const ROW_HEIGHT: f64 = 22.0;
/// The height of the title and the legend.
const TOP: f64 = 74.0;
/// The height of a section's heading and the numbers of its scale.
const HEAD: f64 = 52.0;
const GAP: f64 = 12.0;

const STYLE: &str = "\
    .ours { fill: #1f7a5c } .missed { fill: #b35900 } .other { fill: #8c959f }\n\
    .target { stroke: #1f2328; stroke-width: 2 } .heading { font-weight: 600 }\n\
    @media (prefers-color-scheme: dark) {\n\
      .ours { fill: #3fb68b } .missed { fill: #e8912d } .other { fill: #6e7681 } .target { stroke: #f0f6fc }\n\
    }\n";

/// A bar of the chart.
#[derive(Debug)]
pub struct Bar {
    pub label: String,
    /// The ratio as it is written.
    pub figure: String,
    pub ratio: f64,
    /// The most that the ratio may be; a bar of another server has no target.
    pub target: Option<f64>,
    pub of: Of,
}

/// The server whose figure a bar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Haypile,
    AnotherServer,
}

impl Bar {
    fn class(&self) -> &'static str {
        match self.of {
            Of::AnotherServer => "other",
            Of::Haypile if self.target.is_some_and(|target| self.ratio > target) => "missed",
            Of::Haypile => "ours",
        }
    }
}

/// Bars under a heading, in groups that stand apart.
#[derive(Debug)]
pub struct Section {
    pub heading: String,
    pub groups: Vec<Vec<Bar>>,
}

impl Section {
    fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flatten()
    }

    fn height(&self) -> f64 {
        HEAD + ROW_HEIGHT * self.bars().count() as f64 + GAP * self.groups.len() as f64
    }
}

/// Returns the chart as an SVG file; `one` is the legend of the line at 1.
pub fn svg(title: &str, one: &str, sections: &[Section]) -> String {
    let height = TOP + sections.iter().map(Section::height).sum::<f64>();
    let mut out = frame::begin(title, height, STYLE);
    out += &legend(one, sections);
    let mut top = TOP;
    for section in sections {
        out += &draw(section, top);
        top += section.height();
    }
    out + "</svg>\n"
}

/// Says what the colours, the ticks and the line mean, as far as they occur.
fn legend(one: &str, sections: &[Section]) -> String {
    let all = || sections.iter().flat_map(Section::bars);
    let mut out = String::new();
    let mut x = LABEL_LEFT;
    let mut add = |shape: &dyn Fn(f64) -> String, text: &str| {
        out += &shape(x);
        out += &frame::text("quiet", x + 20.0, 54.0, text);
        x += 40.0 + frame::width_of(text);
    };
    for (class, text) in [("ours", "Haypile"), ("missed", "Haypile, above its target"), ("other", "other servers")] {
        if all().any(|bar| bar.class() == class) {
            add(&|x| rectangle(class, x, 44.0, 14.0, 10.0), text);
        }
    }
    if all().any(|bar| bar.target.is_some()) {
        add(&|x| frame::line("target", (x + 7.0, 42.0), (x + 7.0, 56.0)), "target");
    }
    add(&|x| frame::line("redis", (x + 7.0, 42.0), (x + 7.0, 56.0)), one);
    out
}

fn draw(section: &Section, top: f64) -> String {
    let longest = section.bars().map(|bar| bar.ratio.max(bar.target.unwrap_or(0.0))).fold(1.0, f64::max);
    let step = frame::step(longest);
    let steps = (longest / step).ceil();
    let x = |ratio: f64| LEFT + ratio / (steps * step) * (RIGHT - LEFT);
    let (first, foot) = (top + HEAD, top + section.height() - GAP);
    let mut out = frame::text("heading", LABEL_LEFT, top + 16.0, &section.heading);
    for number in 0..=steps as u32 {
        let ratio = f64::from(number) * step;
        let (at, decimals) = (x(ratio), frame::decimals(step));
        out += &frame::line("grid", (at, first - 8.0), (at, foot));
        out += &frame::text("quiet middle", at, first - 14.0, &format!("{ratio:.decimals$}"));
    }
    out += &frame::line("redis", (x(1.0), first - 8.0), (x(1.0), foot));
    let mut row = first;
    for group in &section.groups {
        for bar in group {
            let (text, bar_top) = (row + ROW_HEIGHT / 2.0 + 4.5, row + (ROW_HEIGHT - BAR_HEIGHT) / 2.0);
            out += &frame::text("", LABEL_LEFT, text, &bar.label);
            out += &frame::text("end", FIGURE_RIGHT, text, &bar.figure);
            out += &rectangle(bar.class(), LEFT, bar_top, x(bar.ratio) - LEFT, BAR_HEIGHT);
            if let Some(target) = bar.target.map(x) {
                out += &frame::line("target", (target, bar_top - 2.0), (target, bar_top + BAR_HEIGHT + 2.0));
            }
            row += ROW_HEIGHT;
        }
        row += GAP;
    }
    out
}

fn rectangle(class: &str, x: f64, y: f64, width: f64, height: f64) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\"/>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;

    fn bar(label: &str, ratio: f64, target: Option<f64>, of: Of) -> Bar {
        Bar { label: label.to_string(), figure: format!("{ratio:.2}"), ratio, target, of }
    }

    fn chart() -> String {
        let first = vec![
            bar("one & <only>", 0.5, Some(0.75), Of::Haypile),
            bar("two", 2.0, Some(1.0), Of::Haypile),
            bar("three", 1.0, None, Of::AnotherServer),
        ];
        let second = vec![bar("four", 14.0, None, Of::AnotherServer)];
        let section = |heading: &str, bars| Section { heading: heading.to_string(), groups: vec![bars] };
        svg("Ratios", "at 1: Redis", &[section("first", first), section("second", second)])
    }

    #[test]
    fn every_bar_has_its_ratio_and_its_target() {
        let svg = chart();
        let document = Document::parse(&svg).expect("the chart is well-formed");
        let of_class = |class: &str| document.descendants().filter(|n| n.attribute("class") == Some(class)).count();
        // The legend shows one more of each.
        assert_eq!((of_class("ours"), of_class("missed"), of_class("other")), (1 + 1, 1 + 1, 2 + 1));
        assert_eq!(of_class("target"), 2 + 1);
        assert_eq!(of_class("redis"), 2 + 1);
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        for text in ["one & <only>", "0.50", "2.00", "14.00", "at 1: Redis", "first", "second"] {
            assert!(texts.contains(&text), "{text} in {texts:?}");
        }
    }

    #[test]
    fn no_line_and_no_bar_meets_a_text() {
        frame::testing::no_text_is_met(&chart());
    }
}
