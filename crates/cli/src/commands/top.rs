//! `cuesta top`

use crate::failure::{Outcome, Result};
use crate::output::print;
use crate::store::StoreArgs;
use cuesta::{Question, ask};
use std::io::IsTerminal;
use std::time::Duration;

/// Watch a store that is open in another process.
///
/// What it does each second, and what it holds. Asks through a socket in the fast tier's directory, which only the
/// owner of the store may use. Ends with Ctrl-C, or after --times looks.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Look so often, then end [default: for ever on a terminal, else twice]
    #[arg(long, value_name = "N")]
    times: Option<u64>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Clears a terminal and goes to its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("from 0.1 to 3600 seconds".to_owned()) }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let is_terminal = std::io::stdout().is_terminal();
    let times = args.times.unwrap_or(if is_terminal { u64::MAX } else { 2 });
    for look in 0..times {
        if look > 0 {
            std::thread::sleep(Duration::from_secs_f64(args.interval));
        }
        let screen = ask(&args.store.fast_dir(), &Question::Top)?;
        if is_terminal {
            print(CLEAR.as_bytes())?;
        }
        print(screen.as_bytes())?;
    }
    Ok(Outcome::Done)
}
