//! The events that programs of this user have registered.

use std::collections::BTreeMap;

use trackway_abi::window::EVENTS_MAX;
use trackway_recorder::WindowHandle;
use trackway_schema::{EventDescription, Scalar};
use trackway_window::Window;

/// Returns the descriptions of all registered events, even if their programs have ended.
///
/// # Errors
///
/// If a window exists that cannot be opened.
pub(crate) fn read_registered_events() -> anyhow::Result<Vec<EventDescription>> {
    Ok(WindowHandle::inspect(|window| iter_descriptions(window).collect())?.unwrap_or_default())
}

fn iter_descriptions(window: &Window) -> impl Iterator<Item = EventDescription> {
    (0..EVENTS_MAX).filter_map(|index| {
        let bytes = window.description(index)?;
        EventDescription::decode(bytes.as_slice()).ok()
    })
}

/// Returns the variants of each event in the window (one name, different fields), by full name.
pub(crate) fn group_variants_by_name(window: &Window) -> BTreeMap<String, Vec<EventDescription>> {
    let mut events: BTreeMap<String, Vec<EventDescription>> = BTreeMap::new();
    for event in iter_descriptions(window) {
        let variants = events.entry(event.full_name()).or_default();
        if !variants.contains(&event) {
            variants.push(event);
        }
    }
    events
}

/// Returns a type's name in the C header.
pub(crate) const fn scalar_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::I8 => "i8",
        Scalar::I16 => "i16",
        Scalar::I32 => "i32",
        Scalar::I64 => "i64",
        Scalar::U8 => "u8",
        Scalar::U16 => "u16",
        Scalar::U32 => "u32",
        Scalar::U64 => "u64",
        Scalar::X8 => "x8",
        Scalar::X16 => "x16",
        Scalar::X32 => "x32",
        Scalar::X64 => "x64",
        Scalar::F32 => "f32",
        Scalar::F64 => "f64",
        Scalar::Bool => "bool",
    }
}
