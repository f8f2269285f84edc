//! Contexts of tracefs records, with LTTng's names: the values of the common fields (`common_…`).
//!
//! The common fields contain neither the thread's process nor its name. The tables of tracefs
//! (`saved_tgids`, `saved_cmdlines`) have the last process and name of a thread id, not those at
//! the event's time.

use trackway_schema::{Field, FieldKind, Scalar};

use crate::catalogue::model;

/// Bits of `common_flags` (include/linux/trace_events.h).
mod flag {
    pub(super) const INTERRUPTS_OFF: u8 = 0x01;
    pub(super) const NEED_RESCHEDULE: u8 = 0x04;
    /// In a hard or soft interrupt or an NMI; or with soft interrupts disabled.
    pub(super) const IN_INTERRUPT: u8 = 0x08 | 0x10 | 0x40 | 0x80;
}
/// The half of `common_preempt_count` that counts disabled preemption. (Since Linux 5.14, the other
/// half counts disabled migration.)
const PREEMPTION: u8 = 0x0f;

/// A context of tracefs records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// The id of the running thread.
    Tid,
    /// The CPU, for filters only: in traces, packets have the CPU.
    Cpu,
    /// 1 if another thread could preempt the running thread, ignoring interrupts; else 0.
    Preemptible,
    /// 1 if another thread is about to preempt the running thread; else 0.
    NeedReschedule,
    /// 1 if interrupts are enabled; else 0.
    Interruptible,
}

impl Context {
    /// All contexts with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("tid", Self::Tid),
        ("cpu_id", Self::Cpu),
        ("preemptible", Self::Preemptible),
        ("need_reschedule", Self::NeedReschedule),
        ("interruptible", Self::Interruptible),
    ];

    /// Returns the context with this name.
    pub fn find_by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|&(_, context)| context)
    }

    /// Returns the context's type, which is LTTng's.
    pub const fn scalar(self) -> Scalar {
        match self {
            Self::Tid => Scalar::I32,
            Self::Cpu => Scalar::U32,
            Self::Preemptible | Self::NeedReschedule => Scalar::U8,
            Self::Interruptible => Scalar::I8,
        }
    }

    /// Returns the context's field description in traces.
    pub(super) fn field(self) -> Field {
        let named = Self::ALL.iter().find(|(_, context)| *context == self);
        let name = named.map_or("", |(name, _)| name).to_owned();
        Field { name, kind: FieldKind::Scalar(self.scalar()) }
    }

    /// Returns the context's value in the form of a filter's slot.
    pub(super) fn value(self, common_fields: &CommonFields, cpu: u32) -> u64 {
        let CommonFields { tid, flags, preempt_count } = *common_fields;
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

    /// Appends the context's value to a record.
    pub(super) fn write(self, common_fields: &CommonFields, into: &mut Vec<u8>) {
        let value = self.value(common_fields, 0).to_le_bytes();
        into.extend_from_slice(&value[..self.scalar().size_bytes()]);
    }
}

/// The common fields of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommonFields {
    /// The thread's id.
    pub tid: i32,
    /// The value of `common_flags`.
    pub flags: u8,
    /// The value of `common_preempt_count`.
    pub preempt_count: u8,
}

/// The layout of the common fields (`common_…` in formats).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommonLayout {
    /// Offset of the event's number, a u16.
    pub(super) id: usize,
    /// Offset of the thread's id, an i32.
    tid: usize,
    /// Offsets of `common_flags` and `common_preempt_count`, one byte each.
    flags: Option<(usize, usize)>,
}

impl CommonLayout {
    /// Finds the common fields of a format. `None`: the fields are unexpected.
    pub fn find(fields: &[model::Field]) -> Option<Self> {
        let at = |name: &str, size: u32| {
            let field = fields.iter().find(|field| field.name == name && field.size == size)?;
            Some(field.offset as usize)
        };
        let flags = at("common_flags", 1).zip(at("common_preempt_count", 1));
        Some(Self { id: at("common_type", 2)?, tid: at("common_pid", 4)?, flags })
    }

    /// Returns true if records have this context.
    pub const fn has(&self, context: Context) -> bool {
        matches!(context, Context::Tid | Context::Cpu) || self.flags.is_some()
    }

    /// Returns a record's common fields; `None`: the record is too short.
    pub(super) fn read(&self, record: &[u8]) -> Option<CommonFields> {
        let tid = record.get(self.tid..self.tid.checked_add(4)?)?;
        let (flags, preempt_count) = match self.flags {
            Some((flags, count)) => (*record.get(flags)?, *record.get(count)?),
            None => (0, 0),
        };
        Some(CommonFields { tid: i32::from_ne_bytes(tid.try_into().ok()?), flags, preempt_count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_the_kernel_was_doing() {
        let values = |flags, preempt_count| {
            let of = CommonFields { tid: -1, flags, preempt_count };
            let all = [Context::Preemptible, Context::NeedReschedule, Context::Interruptible];
            all.map(|context| context.value(&of, 3))
        };
        assert_eq!(values(0, 0), [1, 0, 1]);
        assert_eq!(values(flag::INTERRUPTS_OFF | flag::NEED_RESCHEDULE, 1), [0, 1, 0]);
        // Disabled soft interrupts are counted with preemption; disabled migration is not.
        assert_eq!(values(0x80, 0), [0, 0, 1]);
        assert_eq!(values(0, 0x10), [1, 0, 1]);
        let of = CommonFields { tid: -2, ..CommonFields::default() };
        assert_eq!(Context::Tid.value(&of, 3), u64::MAX - 1);
        assert_eq!(Context::Cpu.value(&of, 3), 3);
        let mut into = Vec::new();
        Context::Tid.write(&of, &mut into);
        Context::Interruptible.write(&of, &mut into);
        assert_eq!(into, [0xfe, 0xff, 0xff, 0xff, 1]);
        assert_eq!(Context::find_by_name("procname"), None);
    }
}
