//! What other processes may ask an open store: a socket in its first tier's directory, for the store's owner alone.
//!
//! A question is a line, the answer is text until the connection ends; one connection at a time, each bounded in bytes
//! and time, served by one thread that only reads. The socket is made in a directory that nobody else may enter and
//! moved to its name with mode 0600, so there is no moment at which others could connect. A store whose directory can
//! have no socket (a path past 100 bytes, a file system without them) works without.
//!
//! | question | answer |
//! |---|---|
//! | `stats` | [`crate::Stats`] |
//! | `top` | what happened each second since the last `top`, then the same |
//! | `explain KEYSPACE KEY` | [`crate::Explanation`]; both in hexadecimal, `-` for the default keyspace |

use crate::engine::Engine;
use crate::engine::stats::Stats;
use crate::error::{Error, ErrorKind, Result};
use crate::key::KeyspaceId;
use cuesta_sched::atomic::{AtomicBool, Ordering};
use cuesta_sched::{Priority, Thread};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SOCKET_NAME: &str = "live.sock";
/// Where it is made.
const PRIVATE_NAME: &str = "live.new";
/// Longest question: a key in hexadecimal, and a keyspace's name.
const QUESTION_BYTES_MAX: u64 = 256 << 10;
/// How long a client may take, all in all.
const PATIENCE: Duration = Duration::from_secs(1);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The store in numbers.
    Stats,
    /// The same, after what happened each second since this was asked last.
    Top,
    /// What a read of a key would meet.
    Explain {
        /// `None` for the default one.
        keyspace: Option<String>,
        /// The key.
        key: Vec<u8>,
    },
}

/// Asks the store that is open in this or another process and has its first tier at `fast`.
///
/// # Errors
/// `NotFound` when none answers there; what the store says.
pub fn ask(fast: &Path, question: &Question) -> Result<String> {
    let path = fast.join(SOCKET_NAME);
    let none = |_| {
        let message = format!("no open store answers at {}", path.display());
        Error::new(ErrorKind::NotFound, message)
    };
    let mut stream = UnixStream::connect(&path).map_err(none)?;
    let mut talk = || -> io::Result<String> {
        stream.set_read_timeout(Some(10 * PATIENCE))?;
        stream.write_all(question.line().as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(|source| Error::io(format!("ask {}", path.display()), source))?;
    match (answer.strip_prefix("ok\n"), answer.strip_prefix("error\n")) {
        (Some(answer), _) => Ok(answer.to_owned()),
        (_, Some(why)) => Err(Error::invalid(why.trim_end())),
        _ => Err(Error::new(ErrorKind::NotFound, format!("the store at {} is closing", path.display()))),
    }
}

impl Question {
    fn line(&self) -> String {
        match self {
            Self::Stats => "stats\n".to_owned(),
            Self::Top => "top\n".to_owned(),
            Self::Explain { keyspace, key } => {
                let keyspace = keyspace.as_ref().map_or("-".to_owned(), |name| to_hex(name.as_bytes()));
                format!("explain {keyspace} {}\n", to_hex(key))
            }
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let question = match words.next()? {
            "stats" => Self::Stats,
            "top" => Self::Top,
            "explain" => {
                let keyspace = match words.next()? {
                    "-" => None,
                    name => Some(String::from_utf8(from_hex(name)?).ok()?),
                };
                Self::Explain { keyspace, key: from_hex(words.next()?)? }
            }
            _ => return None,
        };
        words.next().is_none().then_some(question)
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The thread that answers; dropping this ends it and removes the socket.
#[derive(Debug)]
pub(crate) struct Live {
    path: PathBuf,
    stopping: Arc<AtomicBool>,
    /// The socket that it listens at.
    listening: UnixStream,
    thread: Option<Thread>,
}

impl Live {
    /// Answers for `engine` in its first tier's directory, which the caller has locked; `None` where no socket can be.
    pub(crate) fn start(engine: &Arc<Engine>, fast: &Path) -> Option<Self> {
        let (path, listener) = bind(fast).ok()?;
        let listening = OwnedFd::from(listener.try_clone().ok()?).into();
        let stopping = Arc::new(AtomicBool::new(false));
        let (engine, stop) = (engine.clone(), stopping.clone());
        let sched = engine.sched.clone();
        let body = move || serve(&engine, &listener, &stop);
        let thread = sched.spawn("cuesta-live", Priority::Normal, body).ok();
        Some(Self { path, stopping, listening, thread })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes it without a descriptor and a name, which may lack. It has the engine, and so has to be gone.
        drop(self.listening.shutdown(Shutdown::Both));
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
        // What cannot be removed is replaced by the next open.
        drop(fs::remove_file(&self.path));
    }
}

fn bind(fast: &Path) -> io::Result<(PathBuf, UnixListener)> {
    let (private, path) = (fast.join(PRIVATE_NAME), fast.join(SOCKET_NAME));
    // What a killed process left.
    drop(fs::remove_dir_all(&private));
    fs::DirBuilder::new().mode(0o700).create(&private)?;
    let made = private.join("s");
    let bound = UnixListener::bind(&made).and_then(|listener| {
        fs::set_permissions(&made, fs::Permissions::from_mode(0o600))?;
        fs::rename(&made, &path)?;
        Ok(listener)
    });
    drop(fs::remove_dir_all(&private));
    Ok((path, bound?))
}

fn serve(engine: &Engine, listener: &UnixListener, stopping: &AtomicBool) {
    let mut last = None;
    for stream in listener.incoming() {
        if stopping.load(Ordering::Acquire) {
            return;
        }
        match stream {
            // A client that goes away, or sends no question in time, is not missed.
            Ok(stream) => drop(answer(engine, &stream, &mut last)),
            // The process has no descriptor left, say: it may have one soon.
            Err(_) => engine.sched.sleep(PATIENCE / 10),
        }
    }
}

/// A connection, until a moment.
struct Patient<'a> {
    stream: &'a UnixStream,
    engine: &'a Engine,
    until: Duration,
}

impl Patient<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_sub(self.engine.sched.now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn answer(engine: &Engine, stream: &UnixStream, last: &mut Option<(Duration, Stats)>) -> io::Result<()> {
    let mut patient = Patient { stream, engine, until: engine.sched.now() + PATIENCE };
    let mut line = String::new();
    BufReader::new((&mut patient).take(QUESTION_BYTES_MAX)).read_line(&mut line)?;
    let answer = match Question::parse(line.strip_suffix('\n').unwrap_or(&line)) {
        None => Err(Error::invalid("the question is not understood")),
        Some(Question::Stats) => Ok(engine.stats().to_string()),
        Some(Question::Top) => {
            let now = (engine.sched.now(), engine.stats());
            let rates = last.as_ref().map(|last| now.1.since(&last.1, now.0.saturating_sub(last.0)));
            let answer = format!("{}{}", rates.unwrap_or_default(), now.1);
            *last = Some(now);
            Ok(answer)
        }
        Some(Question::Explain { keyspace, key }) => explain(engine, keyspace.as_deref(), &key),
    };
    let answer = match answer {
        Ok(answer) => format!("ok\n{answer}"),
        Err(error) => format!("error\n{error}\n"),
    };
    patient.write_all(answer.as_bytes())
}

fn explain(engine: &Engine, keyspace: Option<&str>, key: &[u8]) -> Result<String> {
    let id = match keyspace {
        None => KeyspaceId::DEFAULT,
        Some(name) => {
            let found = engine.catalog.lock().keyspaces.get(name).map(|state| state.id);
            found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}")))?
        }
    };
    Ok(engine.explain(&id.key(key))?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_back() {
        let explain = |keyspace: Option<&str>, key: &[u8]| Question::Explain {
            keyspace: keyspace.map(str::to_owned),
            key: key.to_vec(),
        };
        for question in [Question::Stats, Question::Top, explain(None, b"a \n\xff"), explain(Some("ü"), b"")]
        {
            assert_eq!(Question::parse(question.line().trim_end_matches('\n')), Some(question));
        }
        for nonsense in ["", "stat", "stats now", "explain", "explain - 0", "explain - 0g", "explain ff 00"] {
            assert_eq!(Question::parse(nonsense), None, "{nonsense}");
        }
    }
}
