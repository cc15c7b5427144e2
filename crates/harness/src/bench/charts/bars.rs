//! The chart of the ratios: horizontal bars, shorter is better, a tick at each row's target, a line where Redis is. SVG
//! by hand, with colours for light and dark pages.

const WIDTH: f64 = 860.0;
const LABEL_WIDTH: f64 = 360.0;
const ROW_HEIGHT: f64 = 30.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 34.0;

/// The colours of all charts.
pub(super) const STYLE: &str = "\
    text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328 }\n\
    .title { font-weight: 600; font-size: 15px } .quiet { fill: #59636e; font-size: 12px }\n\
    .bar { fill: #1f7a5c } .missed { fill: #b35900 } .grid { stroke: #d1d9e0 } .redis { stroke: #cf222e; stroke-width: 1.5 }\n\
    .target { stroke: #1f2328; stroke-width: 2 }\n\
    @media (prefers-color-scheme: dark) {\n\
      text { fill: #f0f6fc } .quiet { fill: #9198a1 } .bar { fill: #3fb68b } .missed { fill: #e8912d }\n\
      .grid { stroke: #3d444d } .redis { stroke: #f85149 } .target { stroke: #f0f6fc }\n\
    }\n";

/// A bar of the chart.
pub struct Bar {
    pub label: String,
    pub ratio: f64,
    pub target: f64,
}

/// The chart as an SVG file.
pub fn svg(bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.ratio.max(bar.target)).fold(1.0, f64::max);
    let scale = (WIDTH - LABEL_WIDTH - 60.0) / longest;
    let x = |ratio: f64| LABEL_WIDTH + ratio * scale;
    let height = TOP + ROW_HEIGHT * bars.len() as f64 + BOTTOM;
    let foot = TOP + ROW_HEIGHT * bars.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>CPU time per request, Redis = 1</title>\n<style>\n{STYLE}</style>\n\
         <text class=\"title\" x=\"10\" y=\"24\">CPU time per request, Redis = 1 (shorter is better)</text>\n"
    );
    let mut ratio = 0.0;
    while ratio <= longest {
        let class = if ratio == 1.0 { "redis" } else { "grid" };
        let at = x(ratio);
        out += &format!(
            "<line class=\"{class}\" x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{foot:.1}\"/>\n",
            TOP - 8.0
        );
        out += &format!(
            "<text class=\"quiet\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{ratio:.1}</text>\n",
            TOP - 14.0
        );
        ratio += 0.5;
    }
    for (number, bar) in bars.iter().enumerate() {
        let top = TOP + ROW_HEIGHT * number as f64;
        let (middle, class) = (top + ROW_HEIGHT / 2.0 + 4.5, if bar.ratio > bar.target { "missed" } else { "bar" });
        let (width, end, target) = (bar.ratio * scale, x(bar.ratio) + 6.0, x(bar.target));
        out += &format!("<text x=\"10\" y=\"{middle:.1}\">{}</text>\n", bar.label);
        out += &format!(
            "<rect class=\"{class}\" x=\"{LABEL_WIDTH}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"16\" rx=\"2\"/>\n",
            top + 7.0
        );
        out += &format!(
            "<line class=\"target\" x1=\"{target:.1}\" y1=\"{:.1}\" x2=\"{target:.1}\" y2=\"{:.1}\"/>\n",
            top + 4.0,
            top + 26.0
        );
        out += &format!("<text x=\"{end:.1}\" y=\"{middle:.1}\">{:.2}</text>\n", bar.ratio);
    }
    out + &format!(
        "<text class=\"quiet\" x=\"10\" y=\"{:.1}\">The mark on a bar is its target.</text>\n</svg>\n",
        height - 10.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_its_ratio_and_its_target() {
        let bars = [
            Bar { label: "one".to_string(), ratio: 0.5, target: 0.75 },
            Bar { label: "two".to_string(), ratio: 2.0, target: 1.0 },
        ];
        let svg = svg(&bars);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("<rect").count(), 2);
        assert_eq!(svg.matches("class=\"target\"").count(), 2);
        assert_eq!(svg.matches("<rect class=\"missed\"").count(), 1);
        for tag in ["<text", "<style"] {
            assert_eq!(svg.matches(tag).count(), svg.matches(&tag.replace('<', "</")).count(), "{tag} is closed");
        }
    }
}
