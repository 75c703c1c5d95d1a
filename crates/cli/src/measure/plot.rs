//! Plots as SVG, drawn so that they can be read on a phone and in print: few ticks, large letters, and lines that
//! differ in lightness too.

use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;

/// Pixels of a plot before it is scaled to its place.
const SIZE: (u32, u32) = (480, 300);
const LETTERS: u32 = 15;
/// One for each contender: a dark blue, an orange, a green, a light blue, a purple, a yellow.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 83, 156),
    RGBColor(213, 94, 0),
    RGBColor(0, 140, 100),
    RGBColor(86, 180, 233),
    RGBColor(150, 70, 140),
    RGBColor(200, 160, 0),
];

/// The colour of the `i`th contender.
pub(crate) fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// As style sheets write it.
pub(crate) fn css(colour: RGBColor) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

/// A line: the contender's number, and its points.
pub(crate) type Line = (usize, Vec<(f64, f64)>);

/// What is told of an axis.
pub(crate) struct Axis<'a> {
    pub(crate) name: &'a str,
    pub(crate) label: fn(&f64) -> String,
    pub(crate) ticks: usize,
}

/// Lines over two axes, from zero up.
pub(crate) fn lines(lines: &[Line], x: &Axis<'_>, y: &Axis<'_>) -> Result<String, String> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let x_range =
        points().map(|point| point.0).fold(f64::INFINITY, f64::min).min(most(|p| p.0))..most(|p| p.0);
    draw(lines, x_range, 0.0..most(|p| p.1) * 1.05, x, y)
}

/// Lines of positive numbers, the second axis logarithmic: it is labelled by powers of ten.
pub(crate) fn logarithmic(lines: &[Line], x: &Axis<'_>, y_name: &str) -> Result<String, String> {
    let logged: Vec<Line> = lines
        .iter()
        .map(|(i, points)| (*i, points.iter().map(|(x, y)| (*x, y.max(0.1).log10())).collect()))
        .collect();
    let points = || logged.iter().flat_map(|(_, points)| points);
    let least = points().map(|point| point.1).fold(f64::INFINITY, f64::min).floor();
    let most = points().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max).ceil();
    let ends = points()
        .map(|point| point.0)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    let power = |log: &f64| match log.round() {
        whole if (whole - log).abs() > 0.01 => String::new(),
        whole if whole >= 3.0 => format!("{}k", 10f64.powf(whole - 3.0)),
        whole => format!("{}", 10f64.powf(whole)),
    };
    let y = Axis { name: y_name, label: power, ticks: (most - least) as usize + 1 };
    draw(&logged, ends.0..ends.1, least..most.max(least + 1.0), x, &y)
}

fn draw(
    lines: &[Line],
    x_range: Range<f64>,
    y_range: Range<f64>,
    x: &Axis<'_>,
    y: &Axis<'_>,
) -> Result<String, String> {
    let mut svg = String::new();
    draw_on(&mut svg, lines, x_range, y_range, x, y).map_err(|error| format!("draw a plot: {error}"))?;
    Ok(svg)
}

fn draw_on(
    svg: &mut String,
    lines: &[Line],
    x_range: Range<f64>,
    y_range: Range<f64>,
    x: &Axis<'_>,
    y: &Axis<'_>,
) -> Result<(), Box<dyn std::error::Error>>
where
    RangedCoordf64: ValueFormatter<f64>,
{
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .x_label_area_size(44)
        .y_label_area_size(62)
        .build_cartesian_2d(x_range, y_range)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(RGBColor(215, 215, 215))
        .light_line_style(TRANSPARENT)
        .axis_style(RGBColor(120, 120, 120))
        .label_style(("sans-serif", LETTERS))
        .axis_desc_style(("sans-serif", LETTERS))
        .x_desc(x.name)
        .y_desc(y.name)
        .x_labels(x.ticks)
        .y_labels(y.ticks)
        .x_label_formatter(&x.label)
        .y_label_formatter(&y.label)
        .draw()?;
    for (i, points) in lines {
        chart.draw_series(LineSeries::new(points.iter().copied(), colour(*i).stroke_width(2)))?;
    }
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_are_whole_pictures_with_their_axes_named() {
        let line: Line = (0, vec![(0.0, 1.0), (1.0, 2000.0)]);
        let axis = Axis { name: "seconds", label: |n| format!("{n}"), ticks: 3 };
        let svg = logarithmic(&[line], &axis, "latency").unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for word in ["seconds", "latency", "1k", "100", "polyline"] {
            assert!(svg.contains(word), "{word} is not in {svg}");
        }
    }
}
