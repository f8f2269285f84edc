//! The values of options `--buffer-size` and `--sub-buffers`.

use trackway_abi::region::{SUB_COUNT_MAX, SUB_SHIFT_MAX, SUB_SHIFT_MIN};

/// Default buffer bytes for each CPU.
const SIZE_DEFAULT: u64 = 4 << 20;
/// Default number of sub-buffers in a region.
const COUNT_DEFAULT: u64 = 64;
/// Initial memory of all sequence regions, in bytes, if the user requested no size. A burst can
/// fill a buffer before the recorder drains it, so on machines with few CPUs regions begin with all
/// their memory.
const INITIAL_BYTES: u64 = 16 << 20;
/// Initial memory of all regions of a background session, which is often idle, in bytes.
const THRIFTY_BYTES: u64 = 2 << 20;
/// Number of CPUs whose claim regions take the first records of all other CPUs, if not every CPU
/// has initial memory.
const SPARE_CPUS: u64 = 8;
/// Divisor of a CPU's buffer size that gives the size of each claim region beside a sequence
/// region.
const CLAIM_PART: u64 = 4;
/// Divisor of a CPU's buffer size that gives the size of each claim region if all writers use
/// claims.
const CLAIM_ONLY_PART: u64 = 2;
const SUB_MIN: u64 = 1 << SUB_SHIFT_MIN;

/// The buffer sizes that the user requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BufferOptions {
    /// Buffer bytes for each CPU; `None`: the default size, with memory that grows on demand.
    pub size_bytes: Option<u64>,
    /// Number of sub-buffers for each CPU.
    pub sub_buffers: Option<u64>,
    /// True for a flight recorder.
    pub overwrite: bool,
}

/// The writer path: the way in which writers reserve exclusive space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reserve {
    /// By restartable sequence where that works, else by claim.
    #[default]
    Rseq,
    /// By claim only.
    Claim,
    /// By reserve and commit, like LTTng: the algorithm of the 2012 paper.
    Lockless,
}

/// Sizes of the regions of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferPlan {
    /// Sub-buffer size of sequence regions, as a power of two.
    pub sub_shift: u32,
    /// Sub-buffer size of claim regions, as a power of two.
    pub claim_sub_shift: u32,
    /// Sub-buffers of every region, as a power of two.
    pub count_shift: u32,
    /// True if all regions have all their memory before recording starts.
    pub whole: bool,
    /// The writer path, which decides which regions are written.
    pub reserve: Reserve,
}

/// The initial memory of a session's regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitialMemory {
    /// Sub-buffers with memory in each CPU's sequence region or lockless buffer.
    pub subs: u64,
    /// Sub-buffers with memory in each claim region.
    pub claim_subs: u64,
    /// Number of online CPUs whose claim regions have memory, while no other region has; 0: all
    /// regions of all CPUs have memory.
    pub spare_cpus: u64,
}

/// The error that a session cannot have the requested sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuffersError {
    /// The number of sub-buffers is not a power of two from 2 to 256.
    Count(u64),
    /// The size is too small for the number of sub-buffers. The value is the least size in bytes.
    TooSmall(u64),
    /// The size is too large. The value is the largest size in bytes.
    TooLarge(u64),
}

impl core::fmt::Display for BuffersError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Count(_) => {
                write!(formatter, "the number of sub-buffers is a power of two, 2 to 256")
            }
            Self::TooSmall(least) => {
                write!(formatter, "the buffer size must be at least {}", crate::ByteCount(*least))
            }
            Self::TooLarge(most) => {
                write!(formatter, "the buffer size may be at most {}", crate::ByteCount(*most))
            }
        }
    }
}

impl core::error::Error for BuffersError {}

impl BufferOptions {
    /// Returns the sizes for these options. Rounds up a size that is not a power of two.
    pub fn plan(&self) -> Result<BufferPlan, BuffersError> {
        const SIZE_MAX: u64 = (SUB_COUNT_MAX as u64) << SUB_SHIFT_MAX;
        let size = self.size_bytes.unwrap_or(SIZE_DEFAULT);
        let size = size.checked_next_power_of_two().ok_or(BuffersError::TooLarge(SIZE_MAX))?;
        let count = match self.sub_buffers {
            Some(count)
                if count.is_power_of_two() && (2..=SUB_COUNT_MAX as u64).contains(&count) =>
            {
                count
            }
            Some(count) => return Err(BuffersError::Count(count)),
            // Small buffers have fewer sub-buffers instead of tiny ones.
            None => (size / SUB_MIN).clamp(2, COUNT_DEFAULT),
        };
        if size < count * SUB_MIN {
            return Err(BuffersError::TooSmall(count * SUB_MIN));
        }
        let most = count << SUB_SHIFT_MAX;
        if size > most {
            return Err(BuffersError::TooLarge(most));
        }
        let sub_shift = size.ilog2() - count.ilog2();
        let claim_sub_shift = shift_of_part(sub_shift, CLAIM_PART);
        let (count_shift, whole) = (count.ilog2(), self.size_bytes.is_some());
        Ok(BufferPlan { sub_shift, claim_sub_shift, count_shift, whole, reserve: Reserve::Rseq })
    }
}

/// Returns the size of a sub-buffer that is `1 / part` of another; both sizes are powers of two.
const fn shift_of_part(sub_shift: u32, part: u64) -> u32 {
    let shift = sub_shift.saturating_sub(part.ilog2());
    if shift < SUB_SHIFT_MIN { SUB_SHIFT_MIN } else { shift }
}

impl BufferPlan {
    /// Returns the plan for this writer path. A lockless buffer has all its memory from the start.
    /// If all writers use claims, claim regions have all the memory.
    #[must_use]
    pub const fn reserved_by(self, reserve: Reserve) -> Self {
        let of_claims = match reserve {
            Reserve::Claim => CLAIM_ONLY_PART,
            Reserve::Rseq | Reserve::Lockless => CLAIM_PART,
        };
        Self {
            whole: self.whole || matches!(reserve, Reserve::Lockless),
            claim_sub_shift: shift_of_part(self.sub_shift, of_claims),
            reserve,
            ..self
        }
    }

    /// Returns the number of sub-buffers of a region.
    pub const fn sub_count(&self) -> u64 {
        1 << self.count_shift
    }

    /// Returns the initial sub-buffers of each sequence region or lockless buffer, on `online`
    /// CPUs.
    pub fn initial_subs(&self, online: u64) -> u64 {
        match self.reserve {
            Reserve::Claim => 0,
            Reserve::Lockless => self.sub_count(),
            Reserve::Rseq => self.initial(INITIAL_BYTES / online.max(1), self.sub_shift),
        }
    }

    /// Returns the initial sub-buffers of each claim region, on `online` CPUs.
    pub fn initial_claim_subs(&self, online: u64) -> u64 {
        match self.reserve {
            Reserve::Claim => {
                let bytes = INITIAL_BYTES / online.max(1) / CLAIM_ONLY_PART;
                self.initial(bytes, self.claim_sub_shift)
            }
            Reserve::Lockless => 0,
            Reserve::Rseq if self.whole => self.sub_count(),
            Reserve::Rseq => 1,
        }
    }

    /// Returns the initial sub-buffers of a region that begins with `bytes` bytes, or with all its
    /// memory if the plan is whole.
    fn initial(&self, bytes: u64, sub_shift: u32) -> u64 {
        let subs = if self.whole { u64::MAX } else { bytes >> sub_shift };
        subs.clamp(2, self.sub_count())
    }

    /// Returns the initial memory of regions on `online` CPUs. A `thrifty` session begins with
    /// little memory, unless the user requested its memory. If two sub-buffers for each CPU are too
    /// much, the claim regions of a few CPUs take the first records of all CPUs.
    pub fn initial_of(&self, online: u64, thrifty: bool) -> InitialMemory {
        let usual = InitialMemory {
            subs: self.initial_subs(online),
            claim_subs: self.initial_claim_subs(online),
            spare_cpus: 0,
        };
        if !thrifty || self.whole || self.reserve != Reserve::Rseq {
            return usual;
        }
        if !self.exceeds_idle_memory(online) {
            // Distributes the available memory evenly over the CPUs.
            let of_claims = 2 << self.claim_sub_shift;
            let subs = (THRIFTY_BYTES / online.max(1) - of_claims) >> self.sub_shift;
            return InitialMemory {
                subs: subs.clamp(2, usual.subs.max(2)),
                claim_subs: 1,
                spare_cpus: 0,
            };
        }
        let spare_cpus = SPARE_CPUS.min(online.max(1));
        let claim_subs = (THRIFTY_BYTES / (2 * spare_cpus)) >> self.claim_sub_shift;
        InitialMemory { subs: 0, claim_subs: claim_subs.clamp(1, self.sub_count()), spare_cpus }
    }

    /// Returns true if the least memory of all regions on `online` CPUs is too much for an idle
    /// session.
    pub const fn exceeds_idle_memory(&self, online: u64) -> bool {
        let least = (2 << self.sub_shift) + (2 << self.claim_sub_shift);
        online * least > THRIFTY_BYTES
    }

    /// Returns the initial memory of each of `online` CPUs, in bytes.
    pub fn initial_bytes_per_cpu(&self, online: u64) -> u64 {
        // The consumer of the lockless algorithm needs a sub-buffer of its own.
        let own = u64::from(self.reserve == Reserve::Lockless);
        ((self.initial_subs(online) + own) << self.sub_shift)
            + 2 * (self.initial_claim_subs(online) << self.claim_sub_shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan_buffers(size: Option<u64>, count: Option<u64>) -> Result<BufferPlan, BuffersError> {
        BufferOptions { size_bytes: size, sub_buffers: count, overwrite: false }.plan()
    }

    #[test]
    fn the_default_is_four_mebibytes_backed_as_far_as_cpus_are_few() {
        let plan = plan_buffers(None, None).unwrap();
        assert_eq!((plan.sub_shift, plan.count_shift, plan.claim_sub_shift), (16, 6, 14));
        assert_eq!((plan.initial_subs(2), plan.initial_claim_subs(2)), (64, 1));
        assert_eq!(plan.initial_subs(16), 16);
        assert_eq!(plan.initial_subs(1024), 2);
    }

    #[test]
    fn each_way_of_writing_has_the_memory() {
        let plan = plan_buffers(None, None).unwrap();
        let claim = plan.reserved_by(Reserve::Claim);
        assert_eq!((claim.sub_shift, claim.claim_sub_shift, claim.count_shift), (16, 15, 6));
        assert_eq!((claim.initial_subs(2), claim.initial_claim_subs(2)), (0, 64));
        assert_eq!((claim.initial_claim_subs(16), claim.initial_claim_subs(1024)), (16, 2));
        assert_eq!(claim.initial_bytes_per_cpu(2), SIZE_DEFAULT);
        assert_eq!(claim.reserved_by(Reserve::Rseq), plan);
        let lockless = plan.reserved_by(Reserve::Lockless);
        assert_eq!((lockless.initial_subs(2), lockless.initial_claim_subs(2)), (64, 0));
        assert_eq!(lockless.initial_bytes_per_cpu(2), SIZE_DEFAULT + (1 << 16));
    }

    #[test]
    fn a_thrifty_session_begins_with_little_on_any_machine() {
        let plan = plan_buffers(None, None).unwrap();
        assert_eq!(plan.initial_of(2, false).subs, 64);
        for (online, expected) in [
            (1, InitialMemory { subs: 31, claim_subs: 1, spare_cpus: 0 }),
            (2, InitialMemory { subs: 15, claim_subs: 1, spare_cpus: 0 }),
            (12, InitialMemory { subs: 2, claim_subs: 1, spare_cpus: 0 }),
            (16, InitialMemory { subs: 0, claim_subs: 8, spare_cpus: 8 }),
            (256, InitialMemory { subs: 0, claim_subs: 8, spare_cpus: 8 }),
        ] {
            assert_eq!(plan.initial_of(online, true), expected, "{online} CPUs");
        }
        let asked = BufferOptions { size_bytes: Some(1 << 20), ..BufferOptions::default() };
        let asked = asked.plan().unwrap();
        assert_eq!(asked.initial_of(256, true), asked.initial_of(256, false), "it was asked for");
    }

    #[test]
    fn options_are_taken_at_their_word() {
        let plan_of = |size, count| plan_buffers(size, count).map(|p| (p.sub_shift, p.count_shift));
        assert_eq!(plan_of(Some(64 << 10), Some(4)), Ok((14, 2)));
        assert_eq!(plan_of(Some(64 << 10), None), Ok((12, 4)));
        assert_eq!(plan_of(Some(8 << 10), None), Ok((12, 1)));
        assert_eq!(plan_of(Some(12 << 10), None), Ok((12, 2)));
        assert_eq!(plan_of(Some(1 << 20), Some(3)), Err(BuffersError::Count(3)));
        assert_eq!(plan_of(Some(4096), None), Err(BuffersError::TooSmall(8192)));
        assert_eq!(plan_of(Some(64 << 10), Some(256)), Err(BuffersError::TooSmall(1 << 20)));
        assert!(matches!(plan_of(Some(u64::MAX), None), Err(BuffersError::TooLarge(_))));
    }

    proptest! {
        #[test]
        fn every_plan_is_a_geometry(size: u64, count in prop::option::of(0_u64..300)) {
            let size = size >> (size % 64);
            if let Ok(plan) = plan_buffers(Some(size), count) {
                prop_assert!((SUB_SHIFT_MIN..=SUB_SHIFT_MAX).contains(&plan.sub_shift));
                prop_assert!((SUB_SHIFT_MIN..=plan.sub_shift).contains(&plan.claim_sub_shift));
                prop_assert!((1..=8).contains(&plan.count_shift));
                let ring = 1_u64 << (plan.sub_shift + plan.count_shift);
                prop_assert!(ring >= size && ring / 2 < size.max(1));
            }
        }
    }
}
