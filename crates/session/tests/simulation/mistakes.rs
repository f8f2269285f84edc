//! Possible mistakes: some history among the usual ones must detect each mistake.

/// A broken rule of the recorder, of writers or of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    // Mistakes of the recorder.
    /// When an event moves, the recorder clears the old bit before it sets the new one.
    MovedInTwoSteps,
    /// The old slot has no successor.
    NoSuccessor,
    /// The old slot gets its successor after the bits have moved.
    SuccessorLate,
    /// Events get no id in the successor before the successor's bit is set.
    NoIdInSuccessor,
    /// Selected events get their bit before their id.
    BitBeforeId,
    /// The recorder does not visit every CPU: old sequences continue.
    NoVisit,
    /// The recorder does not wait for claims.
    ClaimsNotWaitedFor,
    /// The recorder gives memory back while a writer has a claim.
    ClaimedMemoryGivenBack,
    /// The recorder takes a claim from a live thread.
    ClaimOfTheLivingFreed,
    /// The recorder changes the generation before the state that the generation announces.
    GenerationBeforeState,
    /// The rules for processes change, but not the generation.
    ProcessesWithoutGeneration,
    /// A replacement channel has none of the old channel's filters.
    FiltersForgotten,
    /// The recorder appends records from memory to any contents of the file.
    AppendedAnywhere,
    /// Records that a full disk rejected count as written.
    FullDiskForgotten,
    /// A stopped session records after it was cleared.
    ClearStarts,
    /// A snapshot contains records that may have been overwritten.
    SnapshotTrustsAll,
    /// A snapshot counts as progress of the stream.
    SnapshotMovesProgress,
    // Mistakes of writers.
    /// A writer does not check the generation within a sequence.
    GenerationUnchecked,
    /// A writer does not check the generation after a claim.
    ClaimUnchecked,
    /// A writer does not check the generation before it counts a discarded record.
    DiscardUnchecked,
    /// A constructor does not read the rules again after it has set a bit.
    RulesNotLookedAtAgain,
    /// A constructor ignores successors.
    SuccessorUnseen,
    /// A constructor sets the successor's bit beside the old one.
    OldBitLeft,
    /// A constructor clears a bit that it has set: a recorder may rely on the bit by now.
    BitTakenBack,
    /// A constructor moves a bit to the successor: the bit may have another owner by now.
    BitMovedByOthers,
    /// A constructor leaves a wrong bit, and does not notify the recorder.
    WrongBitUntold,
    /// The recorder ignores notifications about bits.
    NewsUnseen,
    /// The recorder sets the successor's bit beside a predecessor's bit that a library has set
    /// late.
    LateBitLeft,
    /// A constructor sets a bit without checking that the word is unchanged.
    BitSetBlindly,
    // Mistakes of the machine, simulated by changes of its inputs and outputs.
    /// The machine handles a failed effect like a successful one.
    RefusedIsApplied,
    /// The machine handles a successful effect like a failed one.
    DoneIsRefused,
    /// The machine answers a request twice.
    AnsweredTwice,
    /// The machine omits an answer.
    Unanswered,
    /// The machine answers another client.
    OtherAnswered,
    /// The machine uses a class of streams twice.
    ClassTwice,
    /// The machine continues after the end.
    GoesOnAfterExit,
}

/// All mistakes.
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
