//! What devices cost, and how long they last.

use crate::Spec;

/// Years for which a drive may be written over so often a day: the usual warranty.
const WARRANTY_YEARS: f64 = 5.0;
const GIGABYTE: f64 = 1e9;

/// Dollars for each gigabyte of tiers of these bytes.
pub fn dollars_per_gigabyte(tiers: &[(&Spec, u64)]) -> f64 {
    let bytes: f64 = tiers.iter().map(|(_, bytes)| *bytes as f64).sum();
    let dollars: f64 =
        tiers.iter().map(|(spec, bytes)| spec.dollars_per_gigabyte * *bytes as f64 / GIGABYTE).sum();
    dollars / (bytes / GIGABYTE).max(f64::MIN_POSITIVE)
}

/// Years until a device of `bytes` is worn out by so many bytes written a day: the time in which it takes what its
/// warranty grants it in all (as PrismDB, §7.2, reckons). Infinite when nothing is written.
pub fn lifetime_years(spec: &Spec, bytes: u64, written_per_day: f64) -> f64 {
    spec.drive_writes_per_day * bytes as f64 * WARRANTY_YEARS / written_per_day
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabyte_costs_what_its_tiers_cost_together() {
        let (fast, capacity) = (Spec::preset("optane").unwrap(), Spec::preset("qlc").unwrap());
        let tiers = [(&fast, 10_000_000_000), (&capacity, 90_000_000_000)];
        assert!((dollars_per_gigabyte(&tiers) - (0.1 * 2.5 + 0.9 * 0.1)).abs() < 1e-9);
    }

    #[test]
    fn a_device_lasts_as_long_as_its_writes_allow() {
        let spec = Spec { drive_writes_per_day: 0.1, ..Spec::preset("qlc").unwrap() };
        // A tenth of it a day is what it is made for.
        assert!((lifetime_years(&spec, 600_000_000_000, 60e9) - 5.0).abs() < 1e-9);
        assert!((lifetime_years(&spec, 600_000_000_000, 120e9) - 2.5).abs() < 1e-9);
        assert!(lifetime_years(&spec, 1, 0.0).is_infinite());
    }
}
