//! Row 2: every scenario, cut at each of its operations, in every way that the cut can turn out.

use crate::scenarios::{self, ALL};

/// Each scenario's points are dealt out to so many cases.
const SLICES: u64 = 48;
/// One image in so many is cut again while it is opened.
const SECOND_CUT_ONE_IN: u64 = 4;

pub(super) fn cases() -> u64 {
    ALL.len() as u64 * SLICES
}

pub(super) fn case(number: u64) -> Result<u64, String> {
    let (scenario, slice) = (&ALL[(number / SLICES) as usize], number % SLICES);
    let mut images = 0;
    for point in (slice..).step_by(SLICES as usize) {
        match scenarios::cut_at(scenario, point, SECOND_CUT_ONE_IN)? {
            Some(more) => images += more,
            None => return Ok(images),
        }
    }
    Ok(images)
}
