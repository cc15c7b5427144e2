//! Charts of curves: panels side by side, each with a few curves over the same ticks. SVG by hand, with colours for
//! light and dark pages.
//!
//! Ratios stand on a logarithmic scale, where half and twice are equally far from the line at 1. One legend is for all
//! panels. A peak that needs an explanation has a letter, and a caption below the chart.

use super::frame;

const PANEL_HEIGHT: f64 = 220.0;
const TOP: f64 = 104.0;
/// The room for the names of the ticks, below the points.
const BOTTOM: f64 = 36.0;
const CAPTION_HEIGHT: f64 = 18.0;
/// The room for the numbers left of a panel.
const MARGIN: f64 = 52.0;

const STYLE: &str = "\
    .curve { fill: none; stroke-width: 2 } .first { stroke: #1f7a5c } .second { stroke: #6639ba } .base { stroke: #cf222e }\n\
    .first-dot { fill: #1f7a5c } .second-dot { fill: #6639ba } .base-dot { fill: #cf222e }\n\
    @media (prefers-color-scheme: dark) {\n\
      .first { stroke: #3fb68b } .second { stroke: #b794f6 } .base { stroke: #f85149 }\n\
      .first-dot { fill: #3fb68b } .second-dot { fill: #b794f6 } .base-dot { fill: #f85149 }\n\
    }\n";

/// The colour of a curve and the form of its dots; both differ, for readers who see no colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    First,
    Second,
    /// A figure of redis-server itself.
    Redis,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Tone::First => "first",
            Tone::Second => "second",
            Tone::Redis => "base",
        }
    }

    fn dot(self, x: f64, y: f64) -> String {
        let class = self.class();
        match self {
            Tone::First => format!("<circle class=\"{class}-dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>\n"),
            _ => {
                let (left, top) = (x - 3.5, y - 3.5);
                format!("<rect class=\"{class}-dot\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"7\" height=\"7\"/>\n")
            }
        }
    }
}

#[derive(Debug)]
pub struct Curve {
    pub name: String,
    pub tone: Tone,
    /// One value for each tick.
    pub values: Vec<f64>,
}

/// The scale of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps from zero on.
    Linear,
    /// Powers of two, with a red line at 1.
    Ratio,
}

#[derive(Debug)]
pub struct Panel {
    pub title: String,
    /// The names that stand below the points.
    pub ticks: Vec<String>,
    pub curves: Vec<Curve>,
    pub scale: Scale,
}

/// A peak of a curve and its reason. The caption is shown only while the curve's greatest value is at that tick.
#[derive(Debug)]
pub struct Peak {
    /// The title of the panel, the name of the curve, and the tick.
    pub at: (&'static str, &'static str, &'static str),
    pub caption: &'static str,
}

/// The least ratio of a peak's value to the median of its curve.
const PEAK_MIN: f64 = 2.0;

/// Returns the chart as an SVG file. `one` is the legend of the line at 1, for panels of ratios; the captions of the
/// `peaks` that are there, and `foot`, stand below.
pub fn svg(title: &str, one: Option<&str>, foot: &str, panels: &[Panel], peaks: &[Peak]) -> String {
    let peaks: Vec<(char, &Peak)> =
        ('a'..).zip(peaks.iter().filter(|peak| panels.iter().any(|panel| panel.has(peak)))).collect();
    let below = TOP + PANEL_HEIGHT + BOTTOM;
    let captions = peaks.iter().map(|(letter, peak)| format!("({letter}) {}", peak.caption));
    let captions: Vec<String> = captions.chain((!foot.is_empty()).then(|| foot.to_string())).collect();
    let mut out = frame::begin(title, below + CAPTION_HEIGHT * captions.len() as f64 + 8.0, STYLE);
    out += &legend(one, panels);
    let axis = Axis::of(panels);
    let width = frame::WIDTH / panels.len().max(1) as f64;
    for (number, panel) in panels.iter().enumerate() {
        out += &panel.draw(&axis, width * number as f64 + MARGIN, width - MARGIN - 20.0, &peaks);
    }
    for (number, caption) in captions.iter().enumerate() {
        out += &frame::text("quiet", 10.0, below + 14.0 + CAPTION_HEIGHT * number as f64, caption);
    }
    out + "</svg>\n"
}

/// Returns the names of all curves, each once, and the meaning of the red line.
fn legend(one: Option<&str>, panels: &[Panel]) -> String {
    let mut shown: Vec<&str> = Vec::new();
    let (mut out, mut x) = (String::new(), 10.0);
    for curve in panels.iter().flat_map(|panel| &panel.curves) {
        if !shown.contains(&curve.name.as_str()) {
            shown.push(&curve.name);
            out += &curve.tone.dot(x + 7.0, 50.0);
            out += &frame::text("quiet", x + 20.0, 54.0, &curve.name);
            x += 40.0 + frame::width_of(&curve.name);
        }
    }
    if let Some(one) = one.filter(|_| panels.iter().any(|panel| panel.scale == Scale::Ratio)) {
        out += &frame::line("redis", (x, 50.0), (x + 14.0, 50.0));
        out += &frame::text("quiet", x + 20.0, 54.0, one);
    }
    out
}

impl Panel {
    /// Returns whether a peak is there: the greatest value of its curve, and far above the others.
    fn has(&self, peak: &Peak) -> bool {
        self.point(peak).is_some_and(|(tick, curve)| {
            let mut values = curve.values.clone();
            values.sort_by(f64::total_cmp);
            let median = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
            values.last() == curve.values.get(tick) && curve.values[tick] >= PEAK_MIN * median
        })
    }

    /// Returns the tick and the curve that a peak names, if they are in this panel.
    fn point(&self, peak: &Peak) -> Option<(usize, &Curve)> {
        let (title, name, tick) = peak.at;
        let curve = self.curves.iter().find(|curve| self.title == title && curve.name == name)?;
        Some((self.ticks.iter().position(|other| other == tick)?, curve))
    }

    fn draw(&self, axis: &Axis, left: f64, width: f64, peaks: &[(char, &Peak)]) -> String {
        let (foot, right) = (TOP + PANEL_HEIGHT, left + width);
        let y = |value: f64| foot - axis.share(value) * PANEL_HEIGHT;
        // Points have half a tick to each side.
        let x = |tick: usize| left + (tick as f64 + 0.5) * width / self.ticks.len().max(1) as f64;
        let mut out = frame::text("", left, 84.0, &self.title);
        for (value, name) in axis.ticks() {
            out += &frame::line("grid", (left, y(value)), (right, y(value)));
            out += &frame::text("quiet end", left - 6.0, y(value) + 4.0, &name);
        }
        if self.scale == Scale::Ratio {
            out += &frame::line("redis", (left, y(1.0)), (right, y(1.0)));
        }
        for (tick, name) in self.ticks.iter().enumerate() {
            out += &frame::text("quiet middle", x(tick), foot + 18.0, name);
        }
        for curve in &self.curves {
            // A value that could not be measured has no point.
            let points = curve.values.iter().enumerate().filter(|(_, value)| value.is_finite());
            let points: Vec<(f64, f64)> = points.map(|(tick, value)| (x(tick), y(*value))).collect();
            let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            out += &format!("<polyline class=\"curve {}\" points=\"{}\"/>\n", curve.tone.class(), list.join(" "));
            out.extend(points.iter().map(|(x, y)| curve.tone.dot(*x, *y)));
        }
        for (letter, peak) in peaks {
            if let Some((tick, curve)) = self.point(peak) {
                let value = curve.values[tick];
                out += &frame::text("middle over", x(tick), y(value) - 9.0, &format!("{value:.2} ({letter})"));
            }
        }
        out
    }
}

/// The range of all panels' values, so that heights compare across them.
struct Axis {
    scale: Scale,
    /// The values at the foot and at the top.
    from: f64,
    to: f64,
    /// The distance of ticks: added, or, for ratios, multiplied with.
    step: f64,
}

impl Axis {
    fn of(panels: &[Panel]) -> Axis {
        let scale = panels.first().map_or(Scale::Linear, |panel| panel.scale);
        let values = || {
            let curves = panels.iter().flat_map(|panel| &panel.curves);
            curves.flat_map(|curve| &curve.values).copied().filter(|value| value.is_finite())
        };
        match scale {
            Scale::Linear => {
                let greatest = values().fold(0.0, f64::max);
                let step = frame::step(greatest);
                Axis { scale, from: 0.0, to: (greatest / step).ceil().max(1.0) * step, step }
            }
            Scale::Ratio => {
                // The factor leaves room above the greatest value for the figure of a peak.
                let power = |value: f64| 2f64.powf(value);
                let (least, greatest) = (values().fold(1.0, f64::min), values().fold(1.0, f64::max) * 1.3);
                let (from, to) = (power(least.max(0.01).log2().floor()), power(greatest.log2().ceil()));
                Axis { scale, from, to, step: 2.0 }
            }
        }
    }

    /// Returns how far up a value stands, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value / self.to,
            Scale::Ratio => (value.max(self.from) / self.from).log2() / (self.to / self.from).log2(),
        }
    }

    /// Returns the values of grid lines, and their names.
    fn ticks(&self) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        let mut number = 0;
        loop {
            let (value, decimals) = match self.scale {
                Scale::Linear => (f64::from(number) * self.step, frame::decimals(self.step)),
                Scale::Ratio => (self.from * 2f64.powi(number), 0),
            };
            if value > self.to * 1.0001 {
                return ticks;
            }
            let name = if self.scale == Scale::Ratio { value.to_string() } else { format!("{value:.decimals$}") };
            ticks.push((value, name));
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;

    const PEAK: Peak = Peak { at: ("A & B <c>", "GET", "100 KB"), caption: "far too <much>" };

    fn panel(values: [&[f64]; 2]) -> Panel {
        let [first, second] = values.map(<[f64]>::to_vec);
        Panel {
            title: "A & B <c>".to_string(),
            ticks: ["128 B", "1 KB", "100 KB"].map(str::to_string).to_vec(),
            curves: vec![
                Curve { name: "GET".to_string(), tone: Tone::First, values: first },
                Curve { name: "SET".to_string(), tone: Tone::Second, values: second },
            ],
            scale: Scale::Ratio,
        }
    }

    /// Returns the points of all curves, as pairs of numbers.
    fn curves(document: &Document) -> Vec<Vec<(f64, f64)>> {
        let pair = |point: &str| {
            let (x, y) = point.split_once(',').expect("a pair");
            (x.parse().expect("a number"), y.parse().expect("a number"))
        };
        let lists = document.descendants().filter_map(|node| node.attribute("points"));
        lists.map(|list| list.split(' ').map(pair).collect()).collect()
    }

    #[test]
    fn every_value_has_a_point_inside_its_panel() {
        let panels = [panel([&[0.5, 1.0, 2.5], &[0.7, f64::NAN, 0.2]]), panel([&[0.1, 0.1, 0.1], &[0.3, 9.0, 1.0]])];
        let svg = svg("Costs <of> A & B", Some("at 1: Redis"), "Less is better.", &panels, &[]);
        let document = Document::parse(&svg).expect("the chart is well-formed");
        let count = |class: &str| document.descendants().filter(|n| n.attribute("class") == Some(class)).count();
        // The legend shows one more of each; a value that is not a number has no dot.
        assert_eq!(count("redis"), panels.len() + 1);
        assert_eq!(count("first-dot"), 3 + 3 + 1);
        assert_eq!(count("second-dot"), 2 + 3 + 1);
        assert_eq!(curves(&document).len(), 4);
        for (x, y) in curves(&document).concat() {
            assert!((MARGIN..frame::WIDTH).contains(&x) && (TOP..=TOP + PANEL_HEIGHT).contains(&y), "{x},{y}");
        }
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        for text in ["A & B <c>", "Costs <of> A & B", "100 KB", "at 1: Redis"] {
            assert!(texts.contains(&text), "{text}");
        }
    }

    #[test]
    fn no_line_no_dot_and_no_curve_meets_a_text() {
        let ratios = [panel([&[0.5, 1.0, 9.0], &[0.7, f64::NAN, 0.2]]), panel([&[0.1, 0.1, 0.1], &[0.3, 9.0, 1.0]])];
        frame::testing::no_text_is_met(&svg("Costs", Some("at 1: Redis"), "Less is better.", &ratios, &[PEAK]));
        for greatest in [0.05, 1.0, 7.9, 130.0, 12_000.0] {
            let mut times = [panel([&[0.0, 0.1, greatest], &[greatest, greatest / 3.0, 0.0]])];
            times[0].scale = Scale::Linear;
            frame::testing::no_text_is_met(&svg("Times", None, "Percentiles.", &times, &[]));
        }
    }

    #[test]
    fn half_and_twice_are_equally_far_from_one() {
        let svg = svg("Costs", Some("1"), "", &[panel([&[0.5, 1.0, 2.0], &[1.0, 1.0, 1.0]])], &[]);
        let document = Document::parse(&svg).expect("the chart is well-formed");
        let (first, second) = (&curves(&document)[0], &curves(&document)[1]);
        assert!(((first[0].1 - first[1].1) - (first[1].1 - first[2].1)).abs() < 0.11, "{first:?}");
        assert!(first[0].1 > first[1].1);
        assert_eq!(first[1].1, second[1].1);
        let redis = document.descendants().rfind(|node| node.attribute("class") == Some("redis"));
        let redis = redis.and_then(|node| node.attribute("y1")).and_then(|y| y.parse().ok());
        assert_eq!(redis, Some(second[0].1));
    }

    #[test]
    fn a_peak_has_its_figure_and_its_caption_only_while_it_is_one() {
        let drawn = |values: [f64; 5]| {
            let mut panel = panel([&values, &[1.0; 5]]);
            panel.ticks = ["128 B", "1 KB", "10 KB", "32 KB", "100 KB"].map(str::to_string).to_vec();
            svg("Costs", None, "", &[panel], &[PEAK])
        };
        let peak = drawn([0.5, 1.0, 1.0, 1.0, 7.5]);
        assert!(peak.contains("7.50 (a)") && peak.contains("(a) far too &lt;much&gt;"), "{peak}");
        // A value not far above the others, and one that is not the greatest, are no peaks.
        for gone in [[0.5, 1.0, 1.0, 1.0, 1.5], [0.5, 9.0, 1.0, 1.0, 7.5]] {
            assert!(!drawn(gone).contains("(a)"), "{gone:?}");
        }
    }
}
