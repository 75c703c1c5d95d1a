//! The oracle: what the store may hold.

use std::collections::BTreeMap;

/// Pairs by keyspace; the default one has the empty name.
pub type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Every state since the last one that is known to be durable, in the order of commits.
///
/// After a crash the store must hold one of them: not an older one than `durable` says, and nothing in between two of
/// them, since a batch is one step.
#[derive(Clone, Debug)]
pub struct Model {
    states: Vec<Contents>,
    /// The oldest state that a crash may go back to.
    durable: usize,
    /// The oldest state that a kill may go back to, if that was the last thing to happen.
    kept: usize,
    /// The power was cut since the last look.
    was_cut: bool,
}

impl Default for Model {
    fn default() -> Self {
        let contents = Contents::from([(String::new(), BTreeMap::new())]);
        Self { states: vec![contents], durable: 0, kept: 0, was_cut: false }
    }
}

impl Model {
    /// The state after everything that was begun.
    pub fn now(&self) -> &Contents {
        &self.states[self.states.len() - 1]
    }

    /// A step: acknowledged, or begun and interrupted.
    pub fn step(&mut self, change: impl FnOnce(&mut Contents)) {
        let mut next = self.now().clone();
        change(&mut next);
        self.states.push(next);
    }

    /// Takes the last step back: it was refused, so it has no effect, now or later.
    pub fn refused(&mut self) {
        debug_assert!(self.durable + 1 < self.states.len());
        self.states.pop();
    }

    /// Everything so far is durable.
    pub fn synced(&mut self) {
        self.durable = self.states.len() - 1;
    }

    /// The process was killed and the kernel lives on: everything is there but, perhaps, the last step, which may have
    /// been interrupted.
    pub fn killed(&mut self) {
        // Not after a power cut that nobody has looked at yet: what that took is gone.
        if !self.was_cut {
            self.kept = self.states.len().saturating_sub(2);
        }
    }

    /// The power was cut, after a kill too: what was not durable may be gone.
    pub fn cut(&mut self) {
        self.kept = 0;
        self.was_cut = true;
    }

    /// Goes on from `found` after a crash, if that is a state the store may be in.
    ///
    /// # Errors
    /// How `found` differs from the nearest allowed state.
    pub fn rebase(&mut self, found: Contents) -> Result<(), String> {
        let allowed = &self.states[self.durable.max(self.kept)..];
        match allowed.contains(&found) {
            true => {
                *self = Self { states: vec![found], durable: 0, kept: 0, was_cut: false };
                Ok(())
            }
            false => Err(format!(
                "none of the {} states that the crash may leave; against the newest: {}; against the oldest: {}",
                allowed.len(),
                difference(self.now(), &found),
                difference(&allowed[0], &found)
            )),
        }
    }
}

/// The first few differences, for people.
fn difference(expected: &Contents, found: &Contents) -> String {
    let mut out = Vec::new();
    for name in expected.keys().chain(found.keys().filter(|name| !expected.contains_key(*name))) {
        let (Some(a), Some(b)) = (expected.get(name), found.get(name)) else {
            out.push(format!(
                "keyspace {name:?} is {}",
                if found.contains_key(name) { "there" } else { "missing" }
            ));
            continue;
        };
        for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
            if a.get(key) != b.get(key) {
                let show = |v: Option<&Vec<u8>>| {
                    v.map_or("nothing".to_owned(), |v| v[..v.len().min(12)].escape_ascii().to_string())
                };
                let (a, b) = (show(a.get(key)), show(b.get(key)));
                out.push(format!("{name:?}/{}: expected {a}, found {b}", key.escape_ascii()));
            }
        }
    }
    let n = out.len();
    out.truncate(4);
    if out.is_empty() { "equal".to_owned() } else { format!("{n} differences: {}", out.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(model: &mut Model, key: &str) {
        model.step(|c| drop(c.get_mut("").unwrap().insert(key.into(), b"v".to_vec())));
    }

    #[test]
    fn a_crash_may_lose_what_was_not_synced_and_nothing_else() {
        let mut model = Model::default();
        put(&mut model, "a");
        model.synced();
        put(&mut model, "b");
        put(&mut model, "c");
        let state = |keys: &[&str]| {
            let pairs = keys.iter().map(|key| (key.as_bytes().to_vec(), b"v".to_vec())).collect();
            Contents::from([(String::new(), pairs)])
        };
        for allowed in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
            model.clone().rebase(state(allowed)).unwrap();
        }
        for refused in [&[][..], &["b"], &["a", "c"], &["a", "b", "c", "d"]] {
            assert!(model.clone().rebase(state(refused)).is_err(), "{refused:?}");
        }
    }
}
