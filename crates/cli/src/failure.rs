//! How a command ends: what it answers to the shell, and what it tells a person.

use cuesta::ErrorKind;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// How a command that could do its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The key has no value.
    NotFound,
    /// Verification found damage.
    Damaged,
    /// An experiment missed a target.
    Missed,
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    Store(cuesta::Error),
    /// Input or output; a closed pipe is the reader's way of saying "enough".
    Io(String, io::Error),
    /// Something about the input, told whole.
    Input(String),
    /// Of a store in these places; what failed names a file at most.
    At(String, Box<Failure>),
}

/// What every command returns.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<cuesta::Error> for Failure {
    fn from(error: cuesta::Error) -> Self {
        Self::Store(error)
    }
}

/// What the library calls its options, and what sets them here.
const FLAGS: [(&str, &str); 8] = [
    // What nothing sets here follows --memory, and is told as it is.
    ("memtable_bytes", "the size of memtables"),
    ("tiers[0].capacity_bytes", "the size of the fast tier (--fast DIR:SIZE)"),
    ("tiers[1].capacity_bytes", "the size of the capacity tier (--capacity DIR:SIZE)"),
    ("tiers[0].sector_bytes", "--sector"),
    ("tiers[1].sector_bytes", "--sector"),
    ("memory_bytes", "--memory"),
    ("table_bytes", "--table-bytes"),
    ("candidate_tables", "--candidate-tables"),
];

fn in_words_of_the_command_line(text: String) -> String {
    FLAGS.iter().fold(text, |text, (option, flag)| text.replace(option, flag))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) if *error.kind() == ErrorKind::Invalid => {
                f.write_str(&in_words_of_the_command_line(error.to_string()))
            }
            Self::Store(error) => write!(f, "{error}"),
            Self::Io(doing, error) => write!(f, "{doing}: {error}"),
            Self::Input(what) => f.write_str(what),
            Self::At(places, failure) => write!(f, "{failure}; the store is in {places}"),
        }
    }
}

impl Failure {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Io(doing, error)
    }

    pub(crate) fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Io(_, error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::At(_, failure) => failure.is_closed_pipe(),
            Self::Store(_) | Self::Input(_) => false,
        }
    }

    /// Whether it is about damage that `repair` may be able to give up.
    fn is_in_table_or_slab(&self) -> bool {
        let Self::Store(error) = self else { return false };
        let ErrorKind::Corrupt { file, .. } = error.kind() else { return false };
        let name = file.rsplit('/').next().unwrap_or_default();
        ["data-", "meta-", "slab-"].iter().any(|kind| name.starts_with(kind))
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => match error.kind() {
                ErrorKind::NotFound => 8,
                ErrorKind::Invalid => 2,
                ErrorKind::Corrupt { .. } => 3,
                ErrorKind::Locked => 4,
                ErrorKind::Full | ErrorKind::ReadOnly | ErrorKind::Io => 5,
                _ => 6,
            },
            Self::Io(..) => 5,
            Self::Input(_) => 6,
            Self::At(_, failure) => failure.exit_code(),
        }
    }

    /// Tells on standard error, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_closed_pipe() {
            return ExitCode::SUCCESS;
        }
        // Nobody is left to tell if this fails.
        drop(writeln!(io::stderr(), "cuesta: {self}"));
        if self.is_in_table_or_slab() {
            let hint = "`cuesta repair` tells what is lost with what is damaged, and can give that up";
            drop(writeln!(io::stderr(), "cuesta: {hint}"));
        }
        ExitCode::from(self.exit_code())
    }
}
