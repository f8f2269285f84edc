//! A new clock epoch: every used region begins a new sub-buffer, so that no packet spans two
//! epochs.

use trackway_ring::claim::Claim;
use trackway_ring::rseq::{AVAILABLE, Area, Bytes, Gate, commit};
use trackway_ring::{Plan, Region};
use trackway_sys::clock::monotonic_ns;
use trackway_sys::thread::{current_tid, rseq_area};
use trackway_window::{MappedMemory, SessionLayout, WriterPath};

use crate::window::cpus;
use crate::window::handle::WindowHandle;
use crate::window::slot::Slot;

/// Most attempts to switch a region on a CPU whose writers keep committing.
const SWITCH_TRIES_MAX: usize = 100;
/// Size of the sub-buffer header that a switch copies in whole words.
const SWITCH_BYTES: usize = trackway_abi::region::SUB_HEADER_BYTES;

/// Opens a sub-buffer of `epoch` in every used region. If a region has no space, the next
/// sub-buffer that a writer opens belongs to the new epoch.
pub(crate) fn switch_regions(
    handle: &WindowHandle,
    slot: &Slot,
    layout: &SessionLayout,
    epoch: u64,
) {
    let window = *handle.window();
    // The recorder registers as a process, so that its death here can be proved like any claimer's.
    let me = window.enter_process(&trackway_sys::process::current_identity());
    cpus::visit_all_with(|cpu| {
        if let Some(region) = layout.region(&window, cpu, WriterPath::Sequence) {
            switch_sequence_region(handle, slot, region, cpu, epoch);
        }
        for which in [WriterPath::Claim(0), WriterPath::Claim(1)] {
            let Some(region) = layout.region(&window, cpu, which) else { continue };
            let owner = me.owner_word(current_tid());
            let Some(claim) = Claim::take(region, owner) else { continue };
            if let Some((plan, header)) = plan_region_switch(handle, region, epoch) {
                // SAFETY: the header has space for whole words; `plan` bounded its place.
                unsafe {
                    claim.commit(&plan, &MappedMemory(window), header.as_ptr(), SWITCH_BYTES);
                }
            }
        }
    });
}

fn switch_sequence_region(
    handle: &WindowHandle,
    slot: &Slot,
    region: Region<'static>,
    cpu: u32,
    epoch: u64,
) {
    let pointer = rseq_area();
    if !AVAILABLE || pointer.is_null() {
        return;
    }
    // SAFETY: glibc registered this thread's area, and only this thread uses it here.
    let area = unsafe { Area::new(pointer) };
    let generation = &slot.session().generation;
    let gate = Gate {
        generation: generation.as_ptr(),
        expected: generation.load(std::sync::atomic::Ordering::Relaxed),
    };
    for _ in 0..SWITCH_TRIES_MAX {
        let Some((plan, header)) = plan_region_switch(handle, region, epoch) else { return };
        let target = handle.window().base().wrapping_add(plan.at as usize);
        let bytes = Bytes { target, source: header.as_ptr(), count: SWITCH_BYTES };
        // SAFETY: the header has space for whole words; `plan` bounded the place; the generation is
        // mapped.
        if unsafe { commit(area, cpu, &gate, region, &plan, bytes) } {
            return;
        }
    }
}

/// Plans the switch of a used region, at a position with memory.
fn plan_region_switch(
    handle: &WindowHandle,
    region: Region<'static>,
    epoch: u64,
) -> Option<(Plan, trackway_ring::SubHeader)> {
    let expected = region.expected();
    if expected >> 1 == 0 {
        return None;
    }
    let (plan, header) = region.plan_switch(expected, monotonic_ns(), epoch).ok()?;
    let end = plan.at.checked_add(header.len() as u64)?;
    (end <= handle.window().usable_bytes()).then_some((plan, header))
}
