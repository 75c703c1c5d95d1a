//! Measuring stores beside each other: contenders in processes of their own, on the same work and the same devices, in
//! turns.
//!
//! [`ours`] is a store of Cuesta's as what is measured; [`process`] is one contender, [`memory_group`] bounds what it
//! takes; [`run`] lets several take turns at each workload; [`summary`] is what their turns say together, [`endurance`]
//! what their devices cost and how long these last; [`report`] shows it in lines, [`page`] on a page, with [`plot`]s.
//! Everything is in a [`run::Record`], which is what `--json` writes (without peers, with `phases` in place of its
//! turns).

pub(crate) mod endurance;
pub(crate) mod memory_group;
pub(crate) mod ours;
pub(crate) mod page;
pub(crate) mod place;
pub(crate) mod plot;
pub(crate) mod process;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod summary;
