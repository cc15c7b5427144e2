//! Charts of curves: panels side by side, each with a few curves over the same places, a line at one where that is Redis,
//! a legend. SVG by hand, with the colours of the bars for light and dark pages.

use super::bars::STYLE;

const WIDTH: f64 = 860.0;
const PANEL_HEIGHT: f64 = 220.0;
const TOP: f64 = 96.0;
const BOTTOM: f64 = 62.0;
/// For the numbers left of a panel.
const MARGIN: f64 = 52.0;

const CURVES_STYLE: &str = "\
    .curve { fill: none; stroke-width: 2 } .first { stroke: #1f7a5c } .second { stroke: #6639ba } .base { stroke: #cf222e }\n\
    .first-dot { fill: #1f7a5c } .second-dot { fill: #6639ba } .base-dot { fill: #cf222e }\n\
    @media (prefers-color-scheme: dark) {\n\
      .first { stroke: #3fb68b } .second { stroke: #b794f6 } .base { stroke: #f85149 }\n\
      .first-dot { fill: #3fb68b } .second-dot { fill: #b794f6 } .base-dot { fill: #f85149 }\n\
    }\n";

/// The colour of a curve and the form of its dots, which differ too, for those who see no colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    First,
    Second,
    /// What is measured of redis-server itself.
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
    /// One for each place.
    pub values: Vec<f64>,
}

#[derive(Debug)]
pub struct Panel {
    pub title: String,
    /// What stands below the points.
    pub places: Vec<String>,
    pub curves: Vec<Curve>,
    /// A line at one, which is redis-server (or what the title says).
    pub redis_is_one: bool,
}

/// The chart as an SVG file; `foot` is a sentence below it.
pub fn svg(title: &str, foot: &str, panels: &[Panel]) -> String {
    let height = TOP + PANEL_HEIGHT + BOTTOM;
    let (title, foot) = (escaped(title), escaped(foot));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{CURVES_STYLE}</style>\n\
         <text class=\"title\" x=\"10\" y=\"24\">{title}</text>\n"
    );
    let width = WIDTH / panels.len().max(1) as f64;
    for (number, panel) in panels.iter().enumerate() {
        out += &panel.draw(width * number as f64 + MARGIN, width - MARGIN - 20.0);
    }
    out + &format!("<text class=\"quiet\" x=\"10\" y=\"{:.1}\">{foot}</text>\n</svg>\n", height - 10.0)
}

impl Panel {
    fn draw(&self, left: f64, width: f64) -> String {
        let values = self.curves.iter().flat_map(|curve| &curve.values).copied().filter(|value| value.is_finite());
        let greatest = values.fold(if self.redis_is_one { 1.0 } else { 0.0 }, f64::max);
        let step = step(greatest);
        let steps = (greatest / step).ceil().max(1.0);
        let (foot, right) = (TOP + PANEL_HEIGHT, left + width);
        let y = |value: f64| foot - value / (steps * step) * PANEL_HEIGHT;
        // Points have half a place to each side.
        let x = |place: usize| left + (place as f64 + 0.5) * width / self.places.len().max(1) as f64;
        let mut out = format!("<text x=\"{left:.1}\" y=\"52\">{}</text>\n", escaped(&self.title));
        let mut at = left;
        for curve in &self.curves {
            out += &curve.tone.dot(at + 4.0, 70.0);
            out += &format!("<text class=\"quiet\" x=\"{:.1}\" y=\"74\">{}</text>\n", at + 14.0, escaped(&curve.name));
            at += 34.0 + 7.0 * curve.name.len() as f64;
        }
        for number in 0..=steps as u32 {
            let value = f64::from(number) * step;
            let height = y(value);
            out += &line("grid", left, right, height);
            let (end, middle, decimals) = (left - 6.0, height + 4.0, decimals(step));
            out += &format!(
                "<text class=\"quiet\" x=\"{end:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{value:.decimals$}</text>\n"
            );
        }
        if self.redis_is_one {
            out += &line("redis", left, right, y(1.0));
        }
        for (place, name) in self.places.iter().enumerate() {
            let (middle, below) = (x(place), foot + 18.0);
            let name = escaped(name);
            out += &format!(
                "<text class=\"quiet\" x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{name}</text>\n"
            );
        }
        for curve in &self.curves {
            // What could not be measured has no point.
            let points = curve.values.iter().enumerate().filter(|(_, value)| value.is_finite());
            let points: Vec<(f64, f64)> = points.map(|(place, value)| (x(place), y(*value))).collect();
            let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            out += &format!("<polyline class=\"curve {}\" points=\"{}\"/>\n", curve.tone.class(), list.join(" "));
            out.extend(points.iter().map(|(x, y)| curve.tone.dot(*x, *y)));
        }
        out
    }
}

fn line(class: &str, left: f64, right: f64, y: f64) -> String {
    format!("<line class=\"{class}\" x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\"/>\n")
}

/// The distance of grid lines: 1, 2 or 5 of some power of ten, at most six of them up to `greatest`.
fn step(greatest: f64) -> f64 {
    if greatest <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((greatest / 6.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| greatest / step <= 6.0).unwrap_or(power)
}

/// Digits behind the point that a step needs.
fn decimals(step: f64) -> usize {
    (-step.log10().floor()).max(0.0) as usize
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(values: [&[f64]; 2]) -> Panel {
        let [first, second] = values.map(<[f64]>::to_vec);
        Panel {
            title: "A & B <c>".to_string(),
            places: ["128 B", "1 KB", "100 KB"].map(str::to_string).to_vec(),
            curves: vec![
                Curve { name: "GET".to_string(), tone: Tone::First, values: first },
                Curve { name: "SET".to_string(), tone: Tone::Second, values: second },
            ],
            redis_is_one: true,
        }
    }

    #[test]
    fn every_value_has_a_point_inside_its_panel() {
        let panels = [panel([&[0.5, 1.0, 2.5], &[0.7, f64::NAN, 0.2]]), panel([&[0.1, 0.1, 0.1], &[0.0, 0.0, 0.0]])];
        let svg = svg("Costs <of> A & B", "Less is better.", &panels);
        let document = roxmltree::Document::parse(&svg).expect("the chart is well-formed");
        let of_class = |class: &str| {
            document.descendants().filter(|node| node.attribute("class") == Some(class)).collect::<Vec<_>>()
        };
        assert_eq!(of_class("redis").len(), panels.len());
        // One more dot for each curve in the legend; none for what is not a number.
        assert_eq!(of_class("first-dot").len(), panels.len() + 3 + 3);
        assert_eq!(of_class("second-dot").len(), panels.len() + 2 + 3);
        let curves: Vec<_> = document.descendants().filter(|node| node.has_tag_name("polyline")).collect();
        assert_eq!(curves.len(), 4);
        for point in curves.iter().filter_map(|node| node.attribute("points")).flat_map(|list| list.split(' ')) {
            let (x, y) = point.split_once(',').expect("a pair");
            let (x, y): (f64, f64) = (x.parse().expect("a number"), y.parse().expect("a number"));
            assert!((MARGIN..WIDTH).contains(&x) && (TOP..=TOP + PANEL_HEIGHT).contains(&y), "{point}");
        }
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        assert!(texts.contains(&"A & B <c>") && texts.contains(&"Costs <of> A & B") && texts.contains(&"100 KB"));
    }

    #[test]
    fn a_higher_value_is_drawn_higher() {
        let svg = svg("Costs", "", &[panel([&[0.5, 1.0, 2.0], &[1.0, 1.0, 1.0]])]);
        let document = roxmltree::Document::parse(&svg).expect("the chart is well-formed");
        let points = document.descendants().filter_map(|node| node.attribute("points")).collect::<Vec<_>>();
        let heights = |points: &str| {
            let height = |point: &str| point.split_once(',').and_then(|(_, y)| y.parse::<f64>().ok());
            points.split(' ').map(|point| height(point).expect("a pair of numbers")).collect::<Vec<_>>()
        };
        let (first, second) = (heights(points[0]), heights(points[1]));
        assert!(first[0] > first[1] && first[1] > first[2]);
        assert_eq!(first[1], second[1]);
        let redis = document.descendants().find(|node| node.attribute("class") == Some("redis"));
        let redis = redis.and_then(|node| node.attribute("y1")).and_then(|y| y.parse().ok());
        assert_eq!(redis, Some(second[0]));
    }

    #[test]
    fn grids_have_round_steps() {
        for (greatest, expected, digits) in
            [(1.0, 0.2, 1), (2.5, 0.5, 1), (0.05, 0.01, 2), (130.0, 50.0, 0), (6.0, 1.0, 0)]
        {
            let step = step(greatest);
            assert!((step / expected - 1.0).abs() < 1e-9, "{greatest}: {step}");
            assert_eq!(decimals(expected), digits, "{greatest}");
        }
    }
}
