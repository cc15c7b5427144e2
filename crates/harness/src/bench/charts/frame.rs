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
