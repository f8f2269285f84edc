//! The CPU on which a packet's events were recorded, from the packet's context.

use super::decode::Sink;
use crate::model::types::{Enumeration, Integer, Member};

/// Name of the member with the CPU's number, as in LTTng's traces.
const CPU_ID: &str = "cpu_id";

/// Sink that passes the member `cpu_id` of a packet's context, with its type, to `F`. It ignores
/// all other members.
#[derive(Debug, Clone, Copy)]
pub struct CpuId<F> {
    found: F,
    /// Number of structures that are open.
    depth: u32,
    /// True if the next value is the CPU's number.
    is_next: bool,
}

impl<F: FnMut(&Integer, u64)> CpuId<F> {
    /// Creates a sink that passes the CPU's number to `found`.
    pub const fn new(found: F) -> Self {
        Self { found, depth: 0, is_next: false }
    }
}

impl<F: FnMut(&Integer, u64)> Sink for CpuId<F> {
    fn integer(&mut self, kind: &Integer, value: u64) {
        if std::mem::take(&mut self.is_next) {
            (self.found)(kind, value);
        }
    }

    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        self.integer(kind.integer(), value);
    }

    fn member(&mut self, member: &Member) {
        self.is_next = self.depth == 1 && member.name() == CPU_ID;
    }

    fn begin_struct(&mut self) {
        self.depth += 1;
    }

    fn end_struct(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn begin_array(&mut self) {
        self.is_next = false;
    }

    // Floats and texts are never a CPU's number.
    fn float(&mut self, _: f64) {}
    fn text(&mut self, _: &[u8]) {}
}
