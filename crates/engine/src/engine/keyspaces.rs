//! Making and dropping keyspaces: edits of the manifest, durable when the call returns.
//!
//! Many creations at once share two syncs, one of the log and one of the manifest: who gets the root's turn makes
//! all keyspaces that were asked for by then, and the others find theirs made when their turn comes.
//!
//! The log is synced first, for a creation and for a drop: the edit is durable at once, and it must not outlive
//! writes that were acknowledged before it, or a power cut would leave a state that never was.

use super::Engine;
use super::commit::Root;
use crate::error::{Error, ErrorKind, Result};
use crate::planted::{self, Bug};
use crate::version::Edit;
use cuesta_sched::{Mutex, Sched};
use std::collections::BTreeMap;

/// Keyspaces asked for and not yet made; as many as callers wait.
#[derive(Debug)]
pub(crate) struct Creations {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    asked: Vec<(Request, String)>,
    answers: BTreeMap<Request, Result<u32>>,
    next: Request,
}

/// Which call asked.
type Request = u64;

impl Creations {
    pub(crate) fn new(sched: &Sched) -> Self {
        Self { waiting: Mutex::new(sched, Waiting::default()) }
    }
}

impl Engine {
    /// Makes a keyspace; its id.
    ///
    /// # Errors
    /// `Exists`, and what [`Engine::commit`] says.
    pub(crate) fn create_keyspace(&self, name: &str) -> Result<u32> {
        let mine = {
            let mut waiting = self.creations.waiting.lock();
            let mine = waiting.next;
            waiting.next += 1;
            waiting.asked.push((mine, name.to_owned()));
            mine
        };
        let mut root = self.root.take();
        let asked = {
            let mut waiting = self.creations.waiting.lock();
            if let Some(answer) = waiting.answers.remove(&mine) {
                return answer;
            }
            std::mem::take(&mut waiting.asked)
        };
        let names: Vec<&str> = asked.iter().map(|(_, name)| name.as_str()).collect();
        let answers = self.create_all(&mut root, &names);
        let mut waiting = self.creations.waiting.lock();
        waiting.answers.extend(asked.iter().map(|(request, _)| *request).zip(answers));
        let lost = || Err(Error::internal("a keyspace's creation was not answered"));
        waiting.answers.remove(&mine).unwrap_or_else(lost)
    }

    /// Makes keyspaces in one edit; an answer for each name.
    fn create_all(&self, root: &mut Root, names: &[&str]) -> Vec<Result<u32>> {
        if !planted::has(Bug::KeyspaceBeforeLog)
            && let Err(error) = self.sync_log()
        {
            return vec![Err(error); names.len()];
        }
        // With the root in hand, nobody else can take a name or an id meanwhile.
        let mut created: Vec<(u32, String)> = Vec::new();
        let answers: Vec<Result<u32>> = {
            let catalog = self.catalog.lock();
            let mut next = catalog.next_keyspace;
            let mut take = |name: &&str| {
                if catalog.keyspaces.contains_key(*name) || created.iter().any(|(_, other)| other == name) {
                    let message = format!("there is a keyspace {name:?} already");
                    return Err(Error::new(ErrorKind::Exists, message));
                }
                let id = next;
                next = id.checked_add(1).ok_or_else(|| Error::internal("keyspace ids are used up"))?;
                created.push((id, (*name).to_owned()));
                Ok(id)
            };
            names.iter().map(&mut take).collect()
        };
        let Some((last, _)) = created.last() else { return answers };
        let next_keyspace = (!planted::has(Bug::KeyspaceIdReused)).then_some(last + 1);
        let edit = Edit { next_keyspace, created, ..Edit::default() };
        match self.commit(root, edit, |_| {}) {
            Ok(()) => answers,
            Err(error) => answers.into_iter().map(|answer| answer.and(Err(error.clone()))).collect(),
        }
    }

    /// Drops a keyspace.
    ///
    /// # Errors
    /// `NotFound`, and what [`Engine::commit`] says.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        let mut root = self.root.take();
        self.sync_log()?;
        let state = self.catalog.lock().keyspaces.get(name).cloned();
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}"));
        let dropped = vec![state.ok_or_else(missing)?.id.0];
        self.commit(&mut root, Edit { dropped, ..Edit::default() }, |_| {})
    }
}
