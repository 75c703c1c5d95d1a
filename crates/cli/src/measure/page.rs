//! What was measured, on one page that needs nothing else: no network, no script.

use super::endurance;
use super::plot::{self, Axis, Line, colour, css};
use super::report::{memory_kept, middle, short, unchecked};
use super::run::{Record, Turn};
use super::summary::{Numbers, Quartiles, Ratio, memory_apart, turns, workloads};
use crate::failure::{Failure, Result};
use crate::model::TIERS;
use cuesta_bench::{Operation, SLICE, Workload};
use cuesta_model::Tier;
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light}\
body{font:16px/1.45 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:72rem;margin:0 auto;padding:1rem}\
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.25rem;margin:2.2rem 0 .4rem;border-top:2px solid #1a1a1a;padding-top:.5rem}\
h3{font-size:1rem;margin:1rem 0 .3rem}\
p{margin:.4rem 0;max-width:46rem}.scroll{overflow-x:auto}\
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}\
th,td{padding:.22rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}th{white-space:normal}th+th{min-width:5.5rem}\
th:first-child,td:first-child{text-align:left}th{font-weight:600;vertical-align:bottom}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:.8rem}\
figure{margin:0;max-width:40rem;break-inside:avoid}figcaption{font-size:.9rem;font-weight:600}svg{width:100%;height:auto;display:block}\
.key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 .9em;vertical-align:-.05em}\
.bad{color:#a40000;font-weight:600}.bar{display:inline-block;height:.7em;background:#00539c;vertical-align:middle}\
.track{position:relative;width:11rem;height:1.1em;background:#f0f0f0;display:inline-block;vertical-align:middle}\
.track i{position:absolute;top:0;bottom:0;background:#00539c}.track b{position:absolute;top:-2px;bottom:-2px;width:2px;background:#111}\
.track s{position:absolute;top:0;bottom:0;width:1px;background:#888}\
code{font-size:.85em;overflow-wrap:anywhere}\
@media print{*{print-color-adjust:exact;-webkit-print-color-adjust:exact}th+th{min-width:0}body{max-width:none;font-size:10pt}.scroll{overflow:visible}h2{break-before:auto}}";

/// The page.
pub(crate) fn page(record: &Record) -> Result<String> {
    let mut html = String::new();
    let built = build(&mut html, record);
    built.map_err(|error| Failure::Input(format!("write the page: {error}")))??;
    Ok(html)
}

fn text(raw: &str) -> String {
    raw.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

type Written = std::result::Result<Result<()>, std::fmt::Error>;

fn build(html: &mut String, record: &Record) -> Written {
    write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>cuesta bench</title><style>{STYLE}</style></head><body>\
         <h1>cuesta bench</h1><p>{}</p><p><code>{}</code>, version {}</p>",
        text(&record.title),
        text(&record.command.join(" ")),
        text(&record.version)
    )?;
    contenders(html, record)?;
    if let Some(price) = record.dollars_per_gigabyte {
        write!(html, "<p>Both tiers together cost {price:.2} $/GB.</p>")?;
    }
    if !record.ratios.is_empty() {
        ratios(html, &record.contenders[0].name, &record.ratios)?;
    }
    for workload in workloads(record) {
        if let Err(failure) = section(html, record, workload)? {
            return Ok(Err(failure));
        }
    }
    html.push_str("</body></html>\n");
    Ok(Ok(()))
}

fn key(i: usize) -> String {
    format!("<span class=\"key\" style=\"background:{}\"></span>", css(colour(i)))
}

fn contenders(html: &mut String, record: &Record) -> std::fmt::Result {
    html.push_str("<p>");
    for (i, contender) in record.contenders.iter().enumerate() {
        write!(html, "{}{}", key(i), text(&contender.name))?;
    }
    html.push_str("</p>");
    if let Some(kept) = memory_kept(record) {
        write!(html, "<p>Contenders were {}.</p>", text(&kept))?;
    }
    for contender in &record.contenders {
        let settings: std::collections::BTreeSet<&String> = contender.settings.values().collect();
        let settings: Vec<String> = settings.into_iter().map(|settings| text(settings)).collect();
        write!(html, "<p><b>{}</b>: {}", text(&contender.name), settings.join("; "))?;
        if let Some(why) = &contender.invalid {
            write!(html, "; <span class=\"bad\">invalid: {}</span>", text(why))?;
        }
        if let Some(why) = unchecked(contender) {
            write!(html, "; {why}")?;
        }
        if let Some(times) = memory_apart(record, &contender.name) {
            let first = text(&record.contenders[0].name);
            write!(html, "; <span class=\"bad\">held {times:.2} times as much memory as {first}</span>")?;
        }
        html.push_str("</p>");
    }
    Ok(())
}

/// Ratios reach so far on the page.
const RATIO_MAX: f64 = 3.0;

/// Where a ratio is on its track, in percent: one is in the middle, a half as far from it as a double.
fn place(ratio: f64) -> f64 {
    50.0 + 50.0 * (ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX).ln() / RATIO_MAX.ln())
}

fn track(of: &Quartiles) -> String {
    let (low, high) = (place(of.lower), place(of.upper));
    format!(
        "<span class=\"track\"><s style=\"left:50%\"></s><i style=\"left:{low:.1}%;width:{:.1}%\"></i><b style=\"left:{:.1}%\">\
         </b></span>",
        (high - low).max(0.5),
        place(of.median)
    )
}

fn ratios(html: &mut String, first: &str, ratios: &[Ratio]) -> std::fmt::Result {
    write!(
        html,
        "<h2>Ratios</h2><p>{} over the other, turn by turn: the median, and the quartiles in brackets. The line in the middle \
         of a bar is one; it ends at a third and at three times as much. More operations are better, less of the others.</p>\
         <div class=\"scroll\"><table><tr><th>workload</th><th>beside</th><th>operations/s</th><th></th><th>slowest p99</th><th>CPU an \
         operation</th><th>capacity written per byte, its own and the other's</th></tr>",
        text(first)
    )?;
    for ratio in ratios {
        let cell = |of: &Quartiles| format!("{:.2} ({:.2} to {:.2})", of.median, of.lower, of.upper);
        write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            ratio.workload.name(),
            text(&ratio.peer),
            cell(&ratio.throughput),
            track(&ratio.throughput),
            cell(&ratio.p99) + &ratio.p99_by_kind().map_or(String::new(), |kinds| format!("<br>{kinds}")),
            ratio.cpu.as_ref().map_or_else(String::new, cell),
            ratio.capacity_written.map_or_else(String::new, |[a, b]| format!(
                "{} and {}",
                short(a),
                short(b)
            ))
        )?;
    }
    html.push_str("</table></div>");
    Ok(())
}

fn section(html: &mut String, record: &Record, workload: Workload) -> Written {
    write!(html, "<h2>{}</h2>", workload.name())?;
    medians(html, record, workload)?;
    if let Some(best) = record.best.get(workload.name()) {
        let ceiling = best.ceiling.map(|rate| format!(": at most {} reads/s by these clients", short(rate)));
        write!(
            html,
            "<p>The best placement fixed in advance would send {} of the reads to the capacity tier{}.</p>",
            short(best.below),
            ceiling.unwrap_or_default()
        )?;
    }
    let lifetimes = record.lifetimes.get(workload.name());
    for line in endurance::lines(lifetimes.map_or(&[], Vec::as_slice)) {
        write!(html, "<p>{}.</p>", text(&line).replacen("years", "Years", 1))?;
    }
    html.push_str("<div class=\"plots\">");
    let drawn = match plots(record, workload) {
        Ok(drawn) => drawn,
        Err(why) => return Ok(Err(Failure::Input(why))),
    };
    for (caption, svg) in drawn {
        write!(html, "<figure><figcaption>{caption}</figcaption>{svg}</figure>")?;
    }
    html.push_str("</div>");
    counters(html, record, workload)?;
    Ok(Ok(()))
}

fn medians(html: &mut String, record: &Record, workload: Workload) -> std::fmt::Result {
    html.push_str(
        "<div class=\"scroll\"><table><tr><th>medians</th><th>operations/s</th><th>slowest p99, µs</th><th>CPU, µs/op</th>\
         <th>device calls/op</th><th>written per byte:<br>fast</th><th><br>capacity</th><th>lookups per read:<br>fast</th>\
         <th><br>capacity</th><th>memory peak, MB</th></tr>",
    );
    for (i, contender) in record.contenders.iter().enumerate() {
        let all: Vec<&Turn> = turns(record, workload, &contender.name).collect();
        if all.is_empty() {
            continue;
        }
        let numbers: Vec<Numbers> = all.iter().map(|turn| Numbers::of(turn)).collect();
        let peak = all.iter().map(|turn| turn.ran.usage.anonymous_bytes_peak).max().unwrap_or(0);
        write!(html, "<tr><td>{}{}</td>", key(i), text(&contender.name))?;
        let of: [fn(&Numbers) -> Option<f64>; 8] = [
            |n| Some(n.operations_per_second),
            |n| Some(n.p99_us),
            |n| Some(n.cpu_us),
            |n| n.device_calls,
            |n| n.written[0],
            |n| n.written[1],
            |n| n.reads[0],
            |n| n.reads[1],
        ];
        for of in of {
            write!(html, "<td>{}</td>", middle(&numbers, of).map_or_else(|| "–".to_owned(), short))?;
        }
        write!(html, "<td>{}</td></tr>", short(peak as f64 / 1e6))?;
    }
    html.push_str("</table></div>");
    Ok(())
}

/// A percentile as a place on an axis: 90, 99, 99.9 and 99.99 % are as far from each other.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).log10()
}

fn plots(record: &Record, workload: Workload) -> std::result::Result<Vec<(String, String)>, String> {
    let mut drawn = Vec::new();
    let rate = |turn: &Turn| turn.ran.result.measured.timeline.clone();
    let over_time = |(i, contender): (usize, &super::run::Contender)| -> Line {
        let rates = turns(record, workload, &contender.name).flat_map(rate);
        (i, rates.enumerate().map(|(n, rate)| (n as f64 * SLICE, rate)).collect())
    };
    let lines: Vec<Line> = record.contenders.iter().enumerate().map(over_time).collect();
    if lines.iter().any(|(_, points)| points.len() > 1) {
        let x = Axis { name: "seconds, all turns", label: |n| format!("{n:.0}"), ticks: 6 };
        let y = Axis { name: "operations/s", label: |n| format!("{:.0}k", n / 1000.0), ticks: 5 };
        drawn.push(("Throughput over time".to_owned(), plot::lines(&lines, &x, &y)?));
    }
    for operation in Operation::ALL {
        let quantiles = |(i, contender): (usize, &super::run::Contender)| -> Option<Line> {
            let all: Vec<_> = turns(record, workload, &contender.name)
                .flat_map(|turn| &turn.ran.result.measured.operations)
                .filter(|of| of.operation == operation)
                .map(|of| &of.quantiles)
                .collect();
            let points = all.first()?.iter().enumerate().filter_map(|(n, [percent, _])| {
                let of_turns = all.iter().filter_map(|quantiles| quantiles.get(n)).map(|[_, us]| *us);
                Some((nines(*percent), Quartiles::of(of_turns)?.median))
            });
            Some((i, points.collect()))
        };
        let lines: Vec<Line> = record.contenders.iter().enumerate().filter_map(quantiles).collect();
        if !lines.is_empty() {
            let label = |nines: &f64| match nines.round() {
                whole if (whole - nines).abs() > 0.01 => String::new(),
                whole => format!("{} %", 100.0 - 10f64.powf(2.0 - whole)),
            };
            let x = Axis { name: "so many of the operations took at most", label, ticks: 5 };
            let svg = plot::logarithmic(&lines, &x, "µs")?;
            drawn.push((format!("Latency of {}", operation.name()), svg));
        }
    }
    Ok(drawn)
}

/// What stores counted themselves: lookups by the container that answered them, blocks by whether they were cached, and
/// bytes by tier and cause.
fn counters(html: &mut String, record: &Record, workload: Workload) -> std::fmt::Result {
    for contender in &record.contenders {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for turn in turns(record, workload, &contender.name) {
            for (name, count) in &turn.ran.usage.counters {
                *sums.entry(name.as_str()).or_default() += count;
            }
        }
        let devices = device_bytes(record, workload, &contender.name);
        let devices: Vec<(&str, u64)> = devices.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        let megabytes = |count| short(count as f64 / 1e6);
        bars(
            html,
            &format!("{}: bytes by tier, as its devices saw them", contender.name),
            "MB",
            &devices,
            &megabytes,
        )?;
        let of = |kind: &'static str| {
            let named = sums.iter().filter_map(move |(name, count)| Some((name.strip_prefix(kind)?, *count)));
            named.filter(|(_, count)| *count > 0).collect::<Vec<(&str, u64)>>()
        };
        let found = of("found:");
        bars(html, &format!("{}: which containers answered", contender.name), "lookups", &found, &|count| {
            short(count as f64)
        })?;
        let blocks = of("blocks:");
        bars(
            html,
            &format!("{}: blocks, by whether its cache had them", contender.name),
            "blocks",
            &blocks,
            &|count| short(count as f64),
        )?;
        let bytes: Vec<(String, u64)> = [("read:", "read"), ("written:", "written")]
            .into_iter()
            .flat_map(|(kind, word)| {
                of(kind)
                    .into_iter()
                    .map(move |(name, count)| (format!("{word}, {}", name.replace(':', ", ")), count))
            })
            .collect();
        let bytes: Vec<(&str, u64)> = bytes.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        bars(
            html,
            &format!("{}: bytes by cause, and tier where it is known", contender.name),
            "MB",
            &bytes,
            &megabytes,
        )?;
    }
    Ok(())
}

/// Bytes that each tier's device read and wrote in all turns of a workload.
fn device_bytes(record: &Record, workload: Workload, contender: &str) -> Vec<(String, u64)> {
    let counts = || turns(record, workload, contender).filter_map(|turn| turn.ran.usage.counts.as_ref());
    let of = |(i, name): (usize, &&str)| {
        let sum = |bytes: fn(&Tier) -> u64| counts().map(|counts| bytes(&counts.tiers[i])).sum();
        [
            (format!("read, {name}"), sum(|tier| tier.read_bytes)),
            (format!("written, {name}"), sum(|tier| tier.written_bytes)),
        ]
    };
    let all = TIERS.iter().enumerate().flat_map(of);
    all.filter(|(_, bytes)| *bytes > 0).collect()
}

fn bars(
    html: &mut String,
    title: &str,
    unit: &str,
    rows: &[(&str, u64)],
    number: &dyn Fn(u64) -> String,
) -> std::fmt::Result {
    let all: u64 = rows.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return Ok(());
    }
    write!(
        html,
        "<h3>{}</h3><div class=\"scroll\"><table><tr><th></th><th>{unit}</th><th>share</th><th></th></tr>",
        text(title)
    )?;
    for (name, count) in rows {
        let share = *count as f64 / all as f64;
        write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{:.1} %</td><td style=\"text-align:left\"><span class=\"bar\" style=\"width:{:.1}rem\">\
             </span></td></tr>",
            text(name),
            number(*count),
            100.0 * share,
            9.0 * share
        )?;
    }
    html.push_str("</table></div>");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_page_and_ratios_lie_evenly() {
        assert_eq!(text("<a href=\"&\">"), "&lt;a href=&quot;&amp;&quot;&gt;");
        assert!((place(1.0) - 50.0).abs() < 1e-9);
        assert!((place(2.0) - 50.0 + (place(0.5) - 50.0)).abs() < 1e-9);
        assert_eq!((place(100.0).round(), place(0.0).round()), (100.0, 0.0));
        assert!((nines(99.9) - 3.0).abs() < 1e-9);
    }
}
