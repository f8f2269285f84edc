//! Possible mistakes: some history among the usual ones must catch each of them.

/// A rule of the recorder, of writers or of the machine that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    // The recorder.
    /// When an event moves, the old bit is cleared first, then the new one set.
    MovedInTwoSteps,
    /// The old slot names no successor.
    NoSuccessor,
    /// It names it after the bits have moved.
    SuccessorLate,
    /// Events get no id in the successor before its bit is set.
    NoIdInSuccessor,
    /// Nor where rules select them.
    BitBeforeId,
    /// No visit to every CPU: sequences of before go on.
    NoVisit,
    /// Claims are not waited for.
    ClaimsNotWaitedFor,
    /// Memory is given back while a writer has a claim.
    ClaimedMemoryGivenBack,
    /// A claim is taken from a thread that lives.
    ClaimOfTheLivingFreed,
    /// The generation is raised before what it is raised for.
    GenerationBeforeState,
    /// Rules for processes change without a generation.
    ProcessesWithoutGeneration,
    /// A channel in the place of another one has none of its filters.
    FiltersForgotten,
    /// Records in memory are appended to whatever the file has.
    AppendedAnywhere,
    /// Records that a full disk did not take count as written.
    FullDiskForgotten,
    /// A session that is stopped records after it was cleared.
    ClearStarts,
    /// A snapshot believes what may have been written over.
    SnapshotTrustsAll,
    /// A snapshot counts as progress.
    SnapshotMovesProgress,
    // Writers.
    /// The generation is not checked within a sequence.
    GenerationUnchecked,
    /// Nor after a claim.
    ClaimUnchecked,
    /// Nor before a record that finds no room is counted.
    DiscardUnchecked,
    /// A constructor does not look again after it has set a bit.
    RulesNotLookedAtAgain,
    /// It does not look for a successor.
    SuccessorUnseen,
    /// It sets the successor's bit beside the old one.
    OldBitLeft,
    /// It takes a bit back that it has set: a recorder may rely on it by now.
    BitTakenBack,
    /// It moves a bit to the successor: it may be another's by now.
    BitMovedByOthers,
    /// It leaves a wrong bit, and does not tell the recorder.
    WrongBitUntold,
    /// The recorder does not look at what it is told of.
    NewsUnseen,
    /// The successor's bit is set beside one of its predecessor's that a library has set late.
    LateBitLeft,
    /// It sets a bit in whatever the word is by then.
    BitSetBlindly,
    // The machine, as if it did so: what it says and is told is changed on the way.
    /// It takes what failed as done.
    RefusedIsApplied,
    /// It takes what was done as failed.
    DoneIsRefused,
    /// It answers twice.
    AnsweredTwice,
    /// It forgets an answer.
    Unanswered,
    /// It answers another client.
    OtherAnswered,
    /// It gives a class of streams twice.
    ClassTwice,
    /// It goes on after the end.
    GoesOnAfterExit,
}

/// All of them.
pub(crate) const ALL: [Mistake; 36] = {
    use Mistake::*;
    [
        MovedInTwoSteps,
        NoSuccessor,
        SuccessorLate,
        NoIdInSuccessor,
        BitBeforeId,
        NoVisit,
        ClaimsNotWaitedFor,
        ClaimedMemoryGivenBack,
        ClaimOfTheLivingFreed,
        GenerationBeforeState,
        ProcessesWithoutGeneration,
        FiltersForgotten,
        AppendedAnywhere,
        FullDiskForgotten,
        ClearStarts,
        SnapshotTrustsAll,
        SnapshotMovesProgress,
        GenerationUnchecked,
        ClaimUnchecked,
        DiscardUnchecked,
        RulesNotLookedAtAgain,
        SuccessorUnseen,
        OldBitLeft,
        BitTakenBack,
        BitMovedByOthers,
        WrongBitUntold,
        NewsUnseen,
        LateBitLeft,
        BitSetBlindly,
        RefusedIsApplied,
        DoneIsRefused,
        AnsweredTwice,
        Unanswered,
        OtherAnswered,
        ClassTwice,
        GoesOnAfterExit,
    ]
};
