//! The parts that all charts share: the frame with title and style, lines, texts, and round steps for scales.

pub const WIDTH: f64 = 860.0;

const STYLE: &str = "\
    text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328 }\n\
    .title { font-weight: 600; font-size: 15px } .quiet { fill: #59636e; font-size: 12px }\n\
    .middle { text-anchor: middle } .end { text-anchor: end }\n\
    .over { paint-order: stroke; stroke: #ffffff; stroke-width: 4 }\n\
    .ground { fill: #ffffff } .grid { stroke: #d1d9e0 } .redis { stroke: #cf222e; stroke-width: 1.5 }\n\
    @media (prefers-color-scheme: dark) {\n\
      text { fill: #f0f6fc } .quiet { fill: #9198a1 }\n\
      .over { stroke: #0d1117 } .ground { fill: #0d1117 } .grid { stroke: #3d444d } .redis { stroke: #f85149 }\n\
    }\n";

/// Returns the beginning of an SVG file, through its title; `style` are the chart's own rules.
pub fn begin(title: &str, height: f64, style: &str) -> String {
    let escaped = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>{escaped}</title>\n<style>\n{STYLE}{style}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n{}",
        text("title", 10.0, 24.0, title)
    )
}

/// Returns a text whose left end (or middle, or right end, by its classes) is at `x`, on the base line `y`.
pub fn text(classes: &str, x: f64, y: f64, text: &str) -> String {
    let class = if classes.is_empty() { String::new() } else { format!(" class=\"{classes}\"") };
    format!("<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n", escaped(text))
}

pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n")
}

/// Returns an upper bound of a text's width, in the fonts that browsers have.
pub fn width_of(text: &str) -> f64 {
    7.4 * text.chars().count() as f64
}

/// Returns the distance of grid lines: 1, 2 or 5 times a power of ten, at most eight of them up to `greatest`.
pub fn step(greatest: f64) -> f64 {
    if greatest <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((greatest / 8.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| greatest / step <= 8.0).unwrap_or(power)
}

/// Returns how many digits behind the point a step needs.
pub fn decimals(step: f64) -> usize {
    (-step.log10().floor()).max(0.0) as usize
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The places of what a chart shows, for the tests of all charts.
#[cfg(test)]
pub mod testing {
    use super::{WIDTH, width_of};
    use roxmltree::{Document, Node};

    /// The part of a chart that something takes.
    #[derive(Clone, Copy, Debug)]
    struct Place {
        left: f64,
        right: f64,
        top: f64,
        bottom: f64,
    }

    impl Place {
        fn meets(self, other: Place) -> bool {
            let is_beside = self.right < other.left || self.left > other.right;
            let is_above = self.bottom < other.top || self.top > other.bottom;
            !is_beside && !is_above
        }
    }

    /// Checks that no line, curve, dot or bar meets a text, that no two texts meet, and that each is inside the chart.
    /// A text of the class `over` hides the lines of the scale below it.
    #[track_caller]
    pub fn no_text_is_met(svg: &str) {
        let document = Document::parse(svg).expect("the chart is well-formed");
        let shown = || document.descendants().filter(|node| node.attribute("class") != Some("ground"));
        let texts: Vec<(Node, Place)> =
            shown().filter(|node| node.has_tag_name("text")).map(|node| (node, text(node))).collect();
        assert!(texts.len() > 3, "a chart says what it shows");
        for (at, (node, place)) in texts.iter().enumerate() {
            let said = node.text().unwrap_or_default();
            assert!(place.left >= 0.0 && place.right <= WIDTH, "{said:?} is not inside: {place:?}");
            let other = texts[..at].iter().find(|(_, other)| place.meets(*other));
            assert!(other.is_none(), "{said:?} meets {:?}", other.and_then(|(other, _)| other.text()));
            let hides_lines = node.attribute("class").is_some_and(|class| class.contains("over"));
            for shape in shown().filter(|shape| !(hides_lines && shape.has_tag_name("line"))) {
                let met = parts(shape).into_iter().find(|part| part.meets(*place));
                assert!(met.is_none(), "{shape:?} meets {said:?}: {met:?}, {place:?}");
            }
        }
    }

    fn number(node: Node, name: &str) -> f64 {
        node.attribute(name).and_then(|value| value.parse().ok()).expect("a number")
    }

    fn text(node: Node) -> Place {
        let (x, y) = (number(node, "x"), number(node, "y"));
        let width = width_of(node.text().unwrap_or_default());
        let class = node.attribute("class").unwrap_or_default();
        let before = if class.contains("end") {
            width
        } else if class.contains("middle") {
            width / 2.0
        } else {
            0.0
        };
        Place { left: x - before, right: x - before + width, top: y - 11.0, bottom: y + 3.0 }
    }

    /// Returns the parts of a line, a curve, a dot or a bar, none for anything else.
    fn parts(node: Node) -> Vec<Place> {
        match node.tag_name().name() {
            "line" => {
                let ends = ["x1", "y1", "x2", "y2"].map(|name| number(node, name));
                along((ends[0], ends[1]), (ends[2], ends[3]))
            }
            "polyline" => {
                let pair = |point: &str| {
                    let (x, y) = point.split_once(',').expect("a pair");
                    (x.parse().expect("a number"), y.parse().expect("a number"))
                };
                let points = node.attribute("points").unwrap_or_default();
                let points: Vec<(f64, f64)> = points.split_whitespace().map(pair).collect();
                points.windows(2).flat_map(|ends| along(ends[0], ends[1])).collect()
            }
            "circle" => {
                let (x, y, r) = (number(node, "cx"), number(node, "cy"), number(node, "r"));
                vec![Place { left: x - r, right: x + r, top: y - r, bottom: y + r }]
            }
            "rect" => {
                let (left, top) = (number(node, "x"), number(node, "y"));
                vec![Place { left, right: left + number(node, "width"), top, bottom: top + number(node, "height") }]
            }
            _ => Vec::new(),
        }
    }

    /// Returns places along a straight line, each half a unit or less from the next.
    fn along(from: (f64, f64), to: (f64, f64)) -> Vec<Place> {
        let count = (2.0 * (to.0 - from.0).hypot(to.1 - from.1)).ceil().max(1.0);
        let at = |step: u32| {
            let share = f64::from(step) / count;
            let (x, y) = (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1));
            Place { left: x, right: x, top: y, bottom: y }
        };
        (0..=count as u32).map(at).collect()
    }

    #[test]
    #[should_panic(expected = "meets \"below\"")]
    fn a_line_through_a_text_is_noticed() {
        let texts = [("one", 30.0), ("two", 60.0), ("three", 90.0), ("below", 120.0)];
        let texts: String = texts.iter().map(|(said, y)| super::text("", 10.0, *y, said)).collect();
        no_text_is_met(&format!("<svg>{texts}<polyline points=\"5,100 60,140\"/></svg>"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_round_steps() {
        for (greatest, expected, digits) in
            [(1.0, 0.2, 1), (2.5, 0.5, 1), (0.05, 0.01, 2), (130.0, 20.0, 0), (14.0, 2.0, 0)]
        {
            let step = step(greatest);
            assert!((step / expected - 1.0).abs() < 1e-9, "{greatest}: {step}");
            assert_eq!(decimals(expected), digits, "{greatest}");
        }
    }
}
