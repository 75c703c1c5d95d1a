//! Bugs put in on purpose, to see that the tests find bugs.
//!
//! Each is a mistake that somebody could make in the line where it is asked for. In an ordinary build `has` is the
//! constant `false` and nothing of it is left. Built with the feature `planted`, which only the simulation's own
//! command asks for, one of them at a time can be woken for the whole process.

#[cfg(feature = "planted")]
use cuesta_device::planted::LeftOut;

/// A bug; its name in words is [`Bug::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named by what they do")]
pub enum Bug {
    LogSyncDropped = 1,
    SealedLogSyncDropped,
    LogNameSyncDropped,
    ManifestSyncDropped,
    ManifestNameSyncDropped,
    TableDataSyncDropped,
    TableMetaSyncDropped,
    TableNamesSyncDropped,
    CloseSyncDropped,
    SuperblockBeforeManifest,
    AcknowledgedEarly,
    PublishedEarly,
    LogTrimmedEarly,
    LogRetiredBeforeEdit,
    InputsRemovedBeforeEdit,
    OldLogRemovedBeforeEdit,
    TombstoneDroppedEarly,
    SnapshotsForgotten,
    NumbersReused,
    ReadOneTooLow,
    OldestRunOnTop,
    LogChecksumSkipped,
    BlockChecksumSkipped,
    ChecksumsSkipped,
    ChecksumWithoutPlace,
    HoleInReplay,
    ResumedAfterCrash,
    SyncRetried,
    FailureForgotten,
    RefusedRecordLeft,
    EpochNotRaised,
    KeyspaceIdReused,
    KeyspaceBeforeLog,
    FilterForgetsAKey,
    CacheKeyWithoutTable,
    MergeLosesAnEntry,
    ScanHidesErrors,
    OrphansKept,
    CopySyncDropped,
    CopiedFromRemovedBeforeEdit,
    RelocatedKeptForEver,
    RetiredLogsHeld,
    ObjectConfirmedBlindly,
    ObjectOutlivesFlush,
    TombstonesDroppedOnPiles,
    PileMergedPartly,
    SlotChecksumOfAnotherPlace,
    SlabSyncDropped,
    SlotFreedBeforeEdit,
    SlotsFreedAtOnce,
    FreedSlotBelieved,
    StoreTombstoneDropped,
    StoreSnapshotsForgotten,
    DemotionTakesNewer,
    StoreKeepsDemoted,
    StoreBelowTables,
    SlotNeighboursOverwritten,
    DemotionUnannounced,
    PromotionSyncDropped,
    OldImageBelieved,
    SettledUnwritten,
    TombstonesDroppedOnTop,
    FlushedPartly,
    MoveSyncDropped,
    SlotGenerationsIgnored,
    SlotsUnannounced,
    AnnouncedUnsynced,
    HoleInSlots,
    FlushedSlotsBelieved,
    RefusedNumbersForgotten,
    AgesByCount,
    TombstonesDroppedOverRuns,
    GuardBoundsIgnored,
    OlderLayersLeftOut,
    FlushCrossesGuards,
    ReplayCrossesGuards,
    PointerOffByOne,
    MinimumLeftOut,
    FloorLeftOut,
    OlderFloorAnswers,
    FloorChecksumSkipped,
    ReachForgotten,
    CoveredMergedAlone,
    GuardsNotSeparated,
    GuardsNotReady,
    FloorCommittedEarly,
    FenceLeftOut,
    RangeTombstonesUnread,
    ScanSkipsRanges,
    ErasedObjectsKept,
    ErasedUnderSnapshots,
    RangesForgottenEarly,
    ErasedTooHigh,
    RangesLeftOutOfFlush,
    ErasedSlotsKept,
    ErasedObjectsRise,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 96] = [
        Self::LogSyncDropped,
        Self::SealedLogSyncDropped,
        Self::LogNameSyncDropped,
        Self::ManifestSyncDropped,
        Self::ManifestNameSyncDropped,
        Self::TableDataSyncDropped,
        Self::TableMetaSyncDropped,
        Self::TableNamesSyncDropped,
        Self::CloseSyncDropped,
        Self::SuperblockBeforeManifest,
        Self::AcknowledgedEarly,
        Self::PublishedEarly,
        Self::LogTrimmedEarly,
        Self::LogRetiredBeforeEdit,
        Self::InputsRemovedBeforeEdit,
        Self::OldLogRemovedBeforeEdit,
        Self::TombstoneDroppedEarly,
        Self::SnapshotsForgotten,
        Self::NumbersReused,
        Self::ReadOneTooLow,
        Self::OldestRunOnTop,
        Self::LogChecksumSkipped,
        Self::BlockChecksumSkipped,
        Self::ChecksumsSkipped,
        Self::ChecksumWithoutPlace,
        Self::HoleInReplay,
        Self::ResumedAfterCrash,
        Self::SyncRetried,
        Self::FailureForgotten,
        Self::RefusedRecordLeft,
        Self::EpochNotRaised,
        Self::KeyspaceIdReused,
        Self::KeyspaceBeforeLog,
        Self::FilterForgetsAKey,
        Self::CacheKeyWithoutTable,
        Self::MergeLosesAnEntry,
        Self::ScanHidesErrors,
        Self::OrphansKept,
        Self::CopySyncDropped,
        Self::CopiedFromRemovedBeforeEdit,
        Self::RelocatedKeptForEver,
        Self::RetiredLogsHeld,
        Self::ObjectConfirmedBlindly,
        Self::ObjectOutlivesFlush,
        Self::TombstonesDroppedOnPiles,
        Self::PileMergedPartly,
        Self::SlotChecksumOfAnotherPlace,
        Self::SlabSyncDropped,
        Self::SlotFreedBeforeEdit,
        Self::SlotsFreedAtOnce,
        Self::FreedSlotBelieved,
        Self::StoreTombstoneDropped,
        Self::StoreSnapshotsForgotten,
        Self::DemotionTakesNewer,
        Self::StoreKeepsDemoted,
        Self::StoreBelowTables,
        Self::SlotNeighboursOverwritten,
        Self::DemotionUnannounced,
        Self::PromotionSyncDropped,
        Self::OldImageBelieved,
        Self::SettledUnwritten,
        Self::TombstonesDroppedOnTop,
        Self::FlushedPartly,
        Self::MoveSyncDropped,
        Self::SlotGenerationsIgnored,
        Self::SlotsUnannounced,
        Self::AnnouncedUnsynced,
        Self::HoleInSlots,
        Self::FlushedSlotsBelieved,
        Self::RefusedNumbersForgotten,
        Self::AgesByCount,
        Self::TombstonesDroppedOverRuns,
        Self::GuardBoundsIgnored,
        Self::OlderLayersLeftOut,
        Self::FlushCrossesGuards,
        Self::ReplayCrossesGuards,
        Self::PointerOffByOne,
        Self::MinimumLeftOut,
        Self::FloorLeftOut,
        Self::OlderFloorAnswers,
        Self::FloorChecksumSkipped,
        Self::ReachForgotten,
        Self::CoveredMergedAlone,
        Self::GuardsNotSeparated,
        Self::GuardsNotReady,
        Self::FloorCommittedEarly,
        Self::FenceLeftOut,
        Self::RangeTombstonesUnread,
        Self::ScanSkipsRanges,
        Self::ErasedObjectsKept,
        Self::ErasedUnderSnapshots,
        Self::RangesForgottenEarly,
        Self::ErasedTooHigh,
        Self::RangesLeftOutOfFlush,
        Self::ErasedSlotsKept,
        Self::ErasedObjectsRise,
    ];

    /// Whether its line belongs to the store of objects below the memtable.
    pub fn is_in_store(self) -> bool {
        (Self::SlotChecksumOfAnotherPlace as u8..Self::SlotsUnannounced as u8).contains(&(self as u8))
    }

    /// Whether its line belongs to writes that go to that store instead of the log.
    pub fn is_log_free(self) -> bool {
        (Self::SlotsUnannounced as u8..Self::AgesByCount as u8).contains(&(self as u8))
    }

    /// Whether its line belongs to guards, of several runs or in level 0.
    pub fn is_in_guards(self) -> bool {
        (Self::AgesByCount as u8..Self::PointerOffByOne as u8).contains(&(self as u8))
    }

    /// Whether its line belongs to runs that point into one another.
    pub fn is_in_floors(self) -> bool {
        (Self::PointerOffByOne as u8..Self::RangeTombstonesUnread as u8).contains(&(self as u8))
    }

    /// Whether its line belongs to deletes of ranges.
    pub fn is_in_ranges(self) -> bool {
        self as u8 >= Self::RangeTombstonesUnread as u8
    }

    /// Its name in words: `LogSyncDropped` is `log-sync-dropped`.
    pub fn name(self) -> String {
        let mut words = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() && !words.is_empty() {
                words.push('-');
            }
            words.push(letter.to_ascii_lowercase());
        }
        words
    }
}

#[cfg(feature = "planted")]
static AWAKE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Wakes a bug in this process, or puts the one that is awake back to sleep.
#[cfg(feature = "planted")]
pub fn wake(bug: Option<Bug>) {
    AWAKE.store(bug.map_or(0, |bug| bug as u8), std::sync::atomic::Ordering::Relaxed);
    cuesta_device::planted::leave_out(match bug {
        Some(Bug::FenceLeftOut) => Some(LeftOut::Fence),
        Some(Bug::FloorCommittedEarly) => Some(LeftOut::Extents),
        _ => None,
    });
}

/// Whether `bug` is awake.
#[inline(always)]
pub(crate) fn has(bug: Bug) -> bool {
    #[cfg(feature = "planted")]
    return AWAKE.load(std::sync::atomic::Ordering::Relaxed) == bug as u8;
    #[cfg(not(feature = "planted"))]
    {
        _ = bug;
        false
    }
}
