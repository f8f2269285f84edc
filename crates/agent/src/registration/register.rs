//! Registration of a module's events when the module is loaded.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use trackway_abi::window::EVENTS_MAX;
use trackway_schema::{ENCODED_BYTES_MAX, EncodeError, Encoder, Heading, Scalar, Shape};
use trackway_window::{SessionLayout, Window};

use crate::abi::{AskingEvent, Event, Field, VERSION};
use crate::emit::fast_path;
use crate::emit::prefilter::LIBRARY;
use crate::state::environment::print_reason;
use crate::state::event_archive;
use crate::state::process::PROCESS;
use crate::state::window_map::MappedWindow;

/// Registers the events in `[begin, end)`: `trackway_abi_register` of include/trackway/abi/abi.h.
///
/// # Safety
/// The range holds pointers to events of a loaded module, or nulls.
pub unsafe fn register_events(begin: *const *mut Event, end: *const *mut Event) {
    if !PROCESS.has_started() {
        return;
    }
    /// Maximum number of tries; each fails because the process moved meanwhile.
    const MOVES_MAX: usize = 4;
    for _ in 0..MOVES_MAX {
        let moves = PROCESS.moves();
        let mapped = PROCESS.current_window();
        let mut at = begin;
        while at < end {
            // SAFETY: the place is in the caller's array.
            let event = unsafe { *at };
            if !event.is_null() {
                // SAFETY: the caller's array points to events of a loaded module.
                unsafe { register_event(mapped, event, moves) };
            }
            at = at.wrapping_add(1);
        }
        // If the count differs, another thread moved the process to another window, and may have
        // missed these events.
        if PROCESS.moves() == moves {
            return;
        }
    }
}

/// Registers one event.
///
/// # Safety
/// `event` is an event of a loaded module.
unsafe fn register_event(mapped: Option<&'static MappedWindow>, event: *mut Event, moves: u64) {
    // SAFETY: the caller's event; version and size show which fields exist.
    let event = unsafe {
        if (*event).version != VERSION || usize::from((*event).size) < size_of::<Event>() {
            report_version((*event).version.into());
            return;
        }
        &mut *event
    };
    // SAFETY: a module's event has valid names and fields.
    let (provider, name, fields) = unsafe {
        (
            c_string_bytes(event.provider),
            c_string_bytes(event.name),
            fields_of(event.fields, event.field_count),
        )
    };
    let word = |encoded: &[u8]| {
        let word = find_or_intern_word(mapped, encoded)?;
        let known = event_archive::find_number_by_word(word)
            .filter(|&number| event_archive::has_description(number, encoded));
        Some((word, known))
    };
    // SAFETY: a module's event has valid names and fields.
    let word = unsafe { with_encoding(provider, name, event.level, fields, word) };
    let Ok(Some((word, known))) = word else { return };
    // The number stays valid for that window, unless the thread read it from the zeros that replace
    // the window after a move.
    if PROCESS.moves() != moves {
        return;
    }
    event.index = mapped
        .and_then(MappedWindow::window)
        .map_or(0, |window| Window::event_at(window.base(), word) as u32);
    // SAFETY: the caller's event. Sites may use it meanwhile, because a module may register again.
    unsafe { fast_path::set_emit_function(event, false) };
    if usize::from(event.size) >= size_of::<AskingEvent>() {
        // SAFETY: the event's size shows that it has these fields.
        let event = unsafe { &*core::ptr::from_mut(event).cast::<AskingEvent>() };
        event.known.store(known.map_or(0, |known| known as u32 + 1), Ordering::Relaxed);
        event.library.store((&raw const LIBRARY).cast_mut(), Ordering::Relaxed);
    }
    // SAFETY: `enabled` is a pointer in the module that sites only read.
    let enabled = unsafe { AtomicPtr::from_ptr((&raw mut event.enabled).cast::<*mut AtomicU32>()) };
    // ORDERING: SeqCst: a site that finds the word (by address dependency) finds `emit`; and the
    // thread that sets it reads the process's window afterwards (see `Process::move_to`).
    enabled.store(core::ptr::from_ref(word).cast_mut(), Ordering::SeqCst);
}

/// Returns the enable word of the event with this description, in a window or outside of windows.
pub(crate) fn find_or_intern_word(
    mapped: Option<&'static MappedWindow>,
    encoded: &[u8],
) -> Option<&'static AtomicU32> {
    let Some(mapped) = mapped else { return event_archive::word_without_window(encoded) };
    let window = &mapped.window()?;
    let index = intern_description(mapped, encoded)? as usize % EVENTS_MAX;
    mapped.event_numbers.add_event(index, encoded);
    Some(&window.event(index).enabled)
}

/// Prints once that events of another header version stay disabled.
fn report_version(version: u32) {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if IS_REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    // A size that is too small means an older header, too.
    print_reason(if version > u32::from(VERSION) {
        c"trackway: events declared by a newer header than this library's: they stay off\n"
    } else {
        c"trackway: events declared by an older header than this library's: they stay off\n"
    });
}

/// Interns a description in a window, and enables the event in the sessions that select it. Returns
/// the event's number.
///
/// Skips sessions for other processes: those processes enable the event when they register it, and
/// the recorder enables it after a change of process rules.
fn intern_description(mapped: &MappedWindow, encoded: &[u8]) -> Option<u32> {
    let heading = Heading::read(encoded)?;
    let index = mapped.window()?.intern_event(encoded)?;
    // Read after the event was interned: the control lines of a session that begins meanwhile may
    // lie beyond the mapped bytes.
    let window = &mapped.extended_window()?;
    for session in window.active_sessions() {
        let layout = SessionLayout::read(window, session);
        if let Some(layout) = layout.filter(|layout| PROCESS.participates(window, layout)) {
            window.enable_if_selected(&layout, index as usize, &heading);
        }
    }
    Some(index)
}

/// Interns all archived descriptions of this process in a window that it is about to enter.
pub(crate) fn intern_archived_descriptions(mapped: &MappedWindow) {
    for (number, encoded) in event_archive::archived_descriptions() {
        if let Some(index) = intern_description(mapped, encoded) {
            mapped.event_numbers.note(index as usize, number);
        }
    }
}

/// Returns an event's fields.
///
/// # Safety
/// `fields` has `count` elements that live as long as their module, or is null.
unsafe fn fields_of<'a>(fields: *const Field, count: u8) -> &'a [Field] {
    if fields.is_null() {
        return &[];
    }
    // SAFETY: the caller upholds the contract.
    unsafe { core::slice::from_raw_parts(fields, usize::from(count)) }
}

/// Encodes a description and calls `user` with the bytes. Only a long description takes much stack.
///
/// # Safety
/// The contract of [`encode_description`] applies.
pub(crate) unsafe fn with_encoding<Result>(
    provider: &[u8],
    name: &[u8],
    level: u8,
    fields: &[Field],
    user: impl Fn(&[u8]) -> Result,
) -> core::result::Result<Result, EncodeError> {
    /// Encoded bytes that suffice for nearly all descriptions.
    const SHORT_BYTES: usize = 1024;
    // SAFETY: the caller upholds the same contract.
    unsafe {
        match with_encoding_in_buffer::<SHORT_BYTES, _>(provider, name, level, fields, &user) {
            Err(EncodeError::Full) => with_encoding_in_buffer::<ENCODED_BYTES_MAX, _>(
                provider, name, level, fields, &user,
            ),
            result => result,
        }
    }
}

/// Encodes a description in `BYTES` bytes of stack, and calls `user` with the encoded bytes.
///
/// # Safety
/// The contract of [`encode_description`] applies.
#[inline(never)] // one stack frame for each length
unsafe fn with_encoding_in_buffer<const BYTES: usize, Result>(
    provider: &[u8],
    name: &[u8],
    level: u8,
    fields: &[Field],
    user: &impl Fn(&[u8]) -> Result,
) -> core::result::Result<Result, EncodeError> {
    let mut buffer = [0; BYTES];
    // SAFETY: the caller upholds the same contract.
    unsafe { encode_description(&mut buffer, provider, name, level, fields) }.map(user)
}

/// Encodes a description.
///
/// # Safety
/// The fields have valid names. Enumerations have `length` labels, or null: such a description is
/// refused. (A Rust site whose value can never exist has no labels.)
unsafe fn encode_description<'buffer>(
    buffer: &'buffer mut [u8],
    provider: &[u8],
    name: &[u8],
    level: u8,
    fields: &[Field],
) -> Result<&'buffer [u8], EncodeError> {
    let mut encoder = Encoder::new(buffer, provider, name, level)?;
    for field in fields {
        let shape = Shape::from_code(field.shape).ok_or(EncodeError::Limit)?;
        let scalar = Scalar::from_code(field.scalar);
        let (length, labels) = match shape {
            Shape::Array => (field.length, 0),
            Shape::Enumeration => (0, usize::from(field.length)),
            _ => (0, 0),
        };
        // SAFETY: names of fields are C strings.
        encoder.add_field(unsafe { c_string_bytes(field.name) }, shape, scalar, length, labels)?;
        for label in 0..labels {
            if field.labels.is_null() {
                return Err(EncodeError::Limit);
            }
            // SAFETY: an enumeration has `length` labels, whose names are C strings.
            let (name, first, last) = unsafe {
                let label = &*field.labels.add(label);
                (c_string_bytes(label.name), label.first, label.last)
            };
            encoder.add_label(name, first, last)?;
        }
    }
    Ok(encoder.finish())
}

/// Returns the bytes of a C string; none for null.
///
/// # Safety
/// `text` is null or a C string that lives as long as its module.
pub(crate) unsafe fn c_string_bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: the caller upholds the contract.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// Registers the events of all loaded modules. Each module has an ELF note of the owner "Trackway",
/// type 1, with the range of its array of events.
pub(crate) fn register_loaded_modules() {
    // SAFETY: the callback only reads the loader's data.
    unsafe { libc::dl_iterate_phdr(Some(visit_module), core::ptr::null_mut()) };
}

unsafe extern "C" fn visit_module(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the loader gives a valid structure with `dlpi_phnum` headers.
    let (base, headers) = unsafe {
        let info = &*info;
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        (
            info.dlpi_addr as usize,
            core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
        )
    };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        let start = (base + header.p_vaddr as usize) as *const u8;
        // SAFETY: a PT_NOTE segment of a loaded module is mapped (it lies in a PT_LOAD).
        unsafe { visit_notes(start, header.p_memsz as usize, header.p_align as usize) };
    }
    0
}

/// Registers the events of the notes in a segment.
///
/// # Safety
/// `start` has `length` readable bytes.
unsafe fn visit_notes(start: *const u8, length: usize, align: usize) {
    const HEADER: usize = 12;
    const OWNER: &[u8; 9] = b"Trackway\0";
    let align = if align == 8 { 8 } else { 4 };
    let mut at = 0;
    while at + HEADER <= length {
        // SAFETY: bounded by the loop's condition.
        let word = |offset: usize| unsafe {
            start.add(at + offset).cast::<u32>().read_unaligned() as usize
        };
        let (name_bytes, description_bytes, kind) = (word(0), word(4), word(8));
        let name_at = at + HEADER;
        let description_at = (name_at + name_bytes).next_multiple_of(align);
        let end = description_at + description_bytes;
        if end > length {
            return;
        }
        if kind == 1 && name_bytes == OWNER.len() && description_bytes >= 12 {
            // SAFETY: name and description lie within the segment.
            unsafe {
                let name = core::slice::from_raw_parts(start.add(name_at), name_bytes);
                if name == OWNER {
                    visit_note(start.add(description_at));
                }
            }
        }
        at = end.next_multiple_of(align);
    }
}

/// Registers the events of a module's note.
///
/// # Safety
/// `description` points to the data of a module's note: version, then two offsets relative to
/// themselves.
unsafe fn visit_note(description: *const u8) {
    // SAFETY: the caller upholds the contract; the module's own header made the note.
    unsafe {
        let version = description.cast::<u32>().read_unaligned();
        if version != u32::from(VERSION) {
            return report_version(version);
        }
        let target = |at: usize| {
            let field = description.add(at);
            field.wrapping_offset(field.cast::<i32>().read_unaligned() as isize)
        };
        register_events(target(4).cast(), target(8).cast());
    }
}
