//! Gauges of a Prometheus page.

/// The gauge under the first of these names that is there, summed over its labels.
pub(crate) fn gauge(metrics: &str, names: &[&str]) -> Option<f64> {
    names.iter().find_map(|wanted| {
        let lines = metrics.lines().filter_map(|line| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let value = line.rsplit(' ').next()?.parse::<f64>().ok()?;
            (name == *wanted).then_some(value)
        });
        lines.reduce(|sum, value| sum + value)
    })
}
