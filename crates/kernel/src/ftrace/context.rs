//! What records of tracefs say besides their event's fields, as contexts with LTTng's names: all
//! that is in the fields that each record begins with (`common_…`), and no more.
//!
//! Who a thread's process is, and what it is called, is in none of them. tracefs has tables of both
//! (`saved_tgids`, `saved_cmdlines`), which say what was last seen of a number, not what was so
//! when the event happened.

use trackway_schema::{Field, FieldKind, Scalar};

use crate::catalogue::model;

/// Bits of `common_flags` (include/linux/trace_events.h).
mod flag {
    pub(super) const INTERRUPTS_OFF: u8 = 0x01;
    pub(super) const NEED_RESCHEDULE: u8 = 0x04;
    /// In an interrupt of either kind, or of none that can be masked; or with soft ones held off.
    pub(super) const IN_INTERRUPT: u8 = 0x08 | 0x10 | 0x40 | 0x80;
}
/// The half of `common_preempt_count` that counts how often preemption was switched off. (The other
/// one, since Linux 5.14, is of migration.)
const PREEMPTION: u8 = 0x0f;

/// A context that records of tracefs give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// The thread that runs.
    Tid,
    /// The CPU: of filters alone, because packets say it.
    Cpu,
    /// Whether another thread could take its place, interrupts or not: 1 or 0.
    Preemptible,
    /// Whether another one is about to.
    NeedReschedule,
    /// Whether interrupts are let through.
    Interruptible,
}

impl Context {
    /// All that there are, by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("tid", Self::Tid),
        ("cpu_id", Self::Cpu),
        ("preemptible", Self::Preemptible),
        ("need_reschedule", Self::NeedReschedule),
        ("interruptible", Self::Interruptible),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|&(_, context)| context)
    }

    /// Its type, LTTng's.
    pub const fn scalar(self) -> Scalar {
        match self {
            Self::Tid => Scalar::I32,
            Self::Cpu => Scalar::U32,
            Self::Preemptible | Self::NeedReschedule => Scalar::U8,
            Self::Interruptible => Scalar::I8,
        }
    }

    /// As traces describe it.
    pub(super) fn field(self) -> Field {
        let named = Self::ALL.iter().find(|(_, context)| *context == self);
        let name = named.map_or("", |(name, _)| name).to_owned();
        Field { name, kind: FieldKind::Scalar(self.scalar()) }
    }

    /// Its value, as a slot of a filter has it.
    pub(super) fn value(self, circumstances: &Circumstances, cpu: u32) -> u64 {
        let Circumstances { tid, flags, preempt_count } = *circumstances;
        match self {
            Self::Tid => i64::from(tid).cast_unsigned(),
            Self::Cpu => cpu.into(),
            Self::Preemptible => {
                let is = preempt_count & PREEMPTION == 0 && flags & flag::IN_INTERRUPT == 0;
                is.into()
            }
            Self::NeedReschedule => (flags & flag::NEED_RESCHEDULE != 0).into(),
            Self::Interruptible => (flags & flag::INTERRUPTS_OFF == 0).into(),
        }
    }

    /// Adds it to a record.
    pub(super) fn write(self, circumstances: &Circumstances, into: &mut Vec<u8>) {
        let value = self.value(circumstances, 0).to_le_bytes();
        into.extend_from_slice(&value[..self.scalar().size_bytes()]);
    }
}

/// In which circumstances an event has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Circumstances {
    /// The thread.
    pub tid: i32,
    /// `common_flags`.
    pub flags: u8,
    /// `common_preempt_count`.
    pub preempt_count: u8,
}

/// Where all records have what (`common_…` in formats).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Common {
    /// Offset of the event's number, a u16.
    pub(super) id: usize,
    /// Offset of the thread's number, an i32.
    tid: usize,
    /// Of flags and count, a byte each.
    flags: Option<(usize, usize)>,
}

impl Common {
    /// By a format's common fields. `None`: they are not as expected.
    pub fn of(fields: &[model::Field]) -> Option<Self> {
        let at = |name: &str, size: u32| {
            let field = fields.iter().find(|field| field.name == name && field.size == size)?;
            Some(field.offset as usize)
        };
        let flags = at("common_flags", 1).zip(at("common_preempt_count", 1));
        Some(Self { id: at("common_type", 2)?, tid: at("common_pid", 4)?, flags })
    }

    /// Whether records say this.
    pub const fn has(&self, context: Context) -> bool {
        matches!(context, Context::Tid | Context::Cpu) || self.flags.is_some()
    }

    /// What a record says; `None`: it is cut short.
    pub(super) fn circumstances(&self, record: &[u8]) -> Option<Circumstances> {
        let tid = record.get(self.tid..self.tid.checked_add(4)?)?;
        let (flags, preempt_count) = match self.flags {
            Some((flags, count)) => (*record.get(flags)?, *record.get(count)?),
            None => (0, 0),
        };
        Some(Circumstances { tid: i32::from_ne_bytes(tid.try_into().ok()?), flags, preempt_count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_the_kernel_was_doing() {
        let values = |flags, preempt_count| {
            let of = Circumstances { tid: -1, flags, preempt_count };
            let all = [Context::Preemptible, Context::NeedReschedule, Context::Interruptible];
            all.map(|context| context.value(&of, 3))
        };
        assert_eq!(values(0, 0), [1, 0, 1]);
        assert_eq!(values(flag::INTERRUPTS_OFF | flag::NEED_RESCHEDULE, 1), [0, 1, 0]);
        // Soft interrupts held off are counted with preemption; migration is not.
        assert_eq!(values(0x80, 0), [0, 0, 1]);
        assert_eq!(values(0, 0x10), [1, 0, 1]);
        let of = Circumstances { tid: -2, ..Circumstances::default() };
        assert_eq!(Context::Tid.value(&of, 3), u64::MAX - 1);
        assert_eq!(Context::Cpu.value(&of, 3), 3);
        let mut into = Vec::new();
        Context::Tid.write(&of, &mut into);
        Context::Interruptible.write(&of, &mut into);
        assert_eq!(into, [0xfe, 0xff, 0xff, 0xff, 1]);
        assert_eq!(Context::named("procname"), None);
    }
}
