//! The macros, and the assembly code that they generate.

/// Records the event `provider:name`, if a recorder requests it.
///
/// ```
/// # let (path, status) = (String::from("/index.html"), 200_u16);
/// trackway::event!(myapp, request, INFO, path = path, status = status, latency_us = 250_u64);
/// trackway::event!(myapp, idle, DEBUG);
/// ```
///
/// `provider`, `name` and up to 32 fields are identifiers; the level is one of
/// [`level`](crate::level). Values are expressions of any type that implements
/// [`Value`](crate::Value); a field has the type of its value. The macro borrows values. It
/// evaluates them once if the event is on, else never: `return`, `?` and `.await` work in them.
///
/// While the event is off, a call costs two loads and a branch that is not taken. While the event
/// is on, a call does not block, allocate, panic or change errno, unless its value expressions do.
/// It is permitted in any thread, in signal handlers, after fork and vfork. It uses up to 0.5 KiB
/// of stack, and 4.2 KiB if the fields have more than 256 bytes. Payloads have at most 4000 bytes:
/// if strings and slices do not fit, the longest are cut, and cut strings end with "…".
///
/// Calls with equal provider, name and fields are one event, in any place. Fields of other names or
/// types make a separate event; one trace can contain both.
///
/// A program cannot query if an event is on before its values are evaluated. To prepare values only
/// for an event that is on, write a block as the value.
#[macro_export]
macro_rules! event {
    ($provider:ident, $name:ident, $level:ident $(, $field:ident = $value:expr)* $(,)?) => {{
        $crate::__site!($provider, $name, $level, $($field)*);
        let event = __trackway_site();
        if event.is_on() {
            ::core::hint::cold_path();
            $crate::__record!(event, [] $($value,)*);
        }
    }};
}

/// Records `provider:NAME_begin` with these fields. When the returned guard is dropped, records
/// `provider:NAME_end` without fields.
///
/// ```
/// fn load(path: &str) {
///     let _span = trackway::span!(myapp, load, INFO, path = path);
///     // …
/// }
/// ```
///
/// Both events have the calling thread's id as a context, unless the session requests others, and
/// nest like the scopes. The guard cannot leave its thread; for spans that change threads, as in
/// async functions, use the layer for `tracing`.
#[macro_export]
macro_rules! span {
    ($provider:ident, $name:ident, $level:ident $(, $field:ident = $value:expr)* $(,)?) => {{
        {
            $crate::__site!($provider, [$name "_begin"], $level, $($field)*);
            let event = __trackway_site();
            if event.is_on() {
                ::core::hint::cold_path();
                $crate::__record!(event, [] $($value,)*);
            }
        }
        $crate::__site!($provider, [$name "_end"], $level,);
        $crate::Span::__new(__trackway_site())
    }};
}

/// Defines a context of this program, `$app.provider:name`: a [`Context`](crate::Context).
///
/// ```
/// trackway::context! {
///     /// The request that a thread serves.
///     static REQUEST_ID: u64 = myapp, request_id;
/// }
/// trackway::context!(static USER: str = myapp, user);
///
/// fn serve(id: u64, user: &str) {
///     let _request = REQUEST_ID.enter(id);
///     USER.set(user);
///     trackway::event!(myapp, request, INFO, status = 200_u16);
/// }
/// # serve(42, "alice");
/// ```
///
/// The type is an integer, `bool`, `f32`, `f64` or `str`. Events have the context if a session
/// requests it (`--context '$app.myapp:request_id'`), and filters can read it
/// (`$app.myapp:request_id == 42`).
#[macro_export]
macro_rules! context {
    (
        $(#[$attribute:meta])*
        $visibility:vis static $context:ident: $type:ty = $provider:ident, $name:ident $(;)?
    ) => {
        $(#[$attribute])*
        $visibility static $context: $crate::Context<$type> = $crate::Context::__new(
            ::core::concat!(::core::stringify!($provider), "\0"),
            ::core::concat!(::core::stringify!($name), "\0"),
        );
    };
}

/// Defines an enumeration whose values are recorded with the names of its variants.
///
/// ```
/// trackway::enumeration! {
///     /// What the loader does.
///     #[derive(Debug)]
///     pub enum Phase: u8 {
///         /// Nothing.
///         Idle,
///         /// It reads.
///         Loading = 3,
///     }
/// }
/// trackway::event!(myapp, phase_changed, INFO, to = Phase::Loading);
/// ```
///
/// The integer may be `i8` to `i64` or `u8` to `u64`. An enumeration has 1 to 64 variants. It is
/// `Copy` and `Clone`, and is represented by that integer.
#[macro_export]
macro_rules! enumeration {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident: $integer:ident {
            $($(#[$of_variant:meta])* $variant:ident $(= $value:expr)?),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        #[repr($integer)]
        $visibility enum $name {
            $($(#[$of_variant])* $variant $(= $value)?),+
        }

        const _: () = {
            const NAMES: &[&str] = &[$(::core::stringify!($variant)),+];
            const NUMBERS: &[i64] = &[$($name::$variant as $integer as i64),+];
            const LABELS: u64 = $crate::__private::hash_labels(NAMES, NUMBERS);

            // SAFETY: `kind` defines the symbol in all code that uses it; in other code, the symbol
            // is null.
            unsafe impl $crate::__private::Enumeration for $name {
                type Integer = $integer;
                const LABELS: u64 = LABELS;
                const COUNT: u16 = NAMES.len() as u16;

                #[inline(always)]
                fn number(self) -> $integer {
                    self as $integer
                }
            }

            // SAFETY: the kind contains no pointers.
            unsafe impl $crate::Value for $name {
                type Kind = $crate::__private::Enumerated<$name>;

                #[inline(always)]
                fn kind(&self) -> Self::Kind {
                    $crate::__labels!(LABELS, $($name::$variant, $variant),+);
                    $crate::__private::Enumerated::new(*self)
                }
            }
        };
    };
}

/// Writes an enumeration's labels once into the data of the calling module. All operands are
/// positional, because variants may have any name.
#[doc(hidden)]
#[macro_export]
macro_rules! __labels {
    ($number:expr, $($path:path, $variant:ident),+) => {
        #[cfg(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
            target_pointer_width = "64",
        ))]
        // SAFETY: the assembly contains no code, only data of its own.
        unsafe {
            ::core::arch::asm!(
                ".ifndef trackway.labels.{}",
                ".pushsection .data.rel.ro.trackway.labels,\"awG\",@progbits,\
                    trackway.labels.{0},comdat",
                ".balign 8",
                ".hidden trackway.labels.{0}",
                ".weak trackway.labels.{0}",
                "trackway.labels.{0}:",
                $(
                    ::core::concat!(
                        ".quad {}\n",
                        ".quad {}\n",
                        ".quad 776f\n",
                        ".pushsection .rodata.trackway,\"a\",@progbits\n",
                        "776: .asciz \"", ::core::stringify!($variant), "\"\n",
                        ".popsection\n",
                    ),
                )+
                ".popsection",
                ".endif",
                const $number,
                $(const $path as i64, const $path as i64,)+
                options(nomem, nostack, preserves_flags),
            );
        }
    };
}

/// Borrows one value after the other, and records all of them while they are borrowed: the data of
/// a kind must stay, whatever the next value's expression does. Each step has a separate binding,
/// though all have the same spelling.
#[doc(hidden)]
#[macro_export]
macro_rules! __record {
    ($event:ident, [$($bound:ident)*]) => {
        __trackway_record($event $(, $crate::__private::Value::kind($bound))*)
    };
    ($event:ident, [$($bound:ident)*] $value:expr, $($rest:expr,)*) => {
        match &$value {
            __trackway_value => {
                $crate::__record!($event, [$($bound)* __trackway_value] $($rest,)*)
            }
        }
    };
}

/// Builds the nested list of these identifiers: types, or values.
#[doc(hidden)]
#[macro_export]
macro_rules! __list {
    () => { () };
    ($first:ident $($rest:ident)*) => { ($first, $crate::__list!($($rest)*)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    ($provider:ident, $name:ident, $level:ident, $($field:ident)*) => {
        $crate::__site!($provider, [$name ""], $level, $($field)*);
    };
    ($provider:ident, [$name:ident $suffix:literal], $level:ident, $($field:ident)*) => {
        const _: () = {
            $crate::__private::check_name(::core::stringify!($provider));
            $crate::__private::check_name(::core::concat!(::core::stringify!($name), $suffix));
            $($crate::__private::check_name(::core::stringify!($field));)*
        };

        #[allow(non_camel_case_types, reason = "kinds are named as the fields are")]
        #[allow(clippy::builtin_type_shadow, reason = "so a field may be called u8")]
        #[inline(always)]
        fn __trackway_site<$($field: $crate::__private::Kind),*>(
        ) -> $crate::__private::Site<$crate::__list!($($field)*)> {
            let event: *const $crate::__private::Event;
            #[cfg(all(
                target_os = "linux",
                any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
                target_pointer_width = "64",
            ))]
            // SAFETY: the assembly writes a descriptor of these fields, and returns its address.
            unsafe {
                ::core::arch::asm!(
                    $crate::__module!(),
                    ".pushsection .data.rel.trackway,\"aw\",@progbits",
                    ".balign 8",
                    "771:",
                    ".quad 771b + 16, 0",
                    ".long 0, 0",
                    ".short 1, 56",
                    ".byte {}, {}",
                    ".short 0",
                    ".quad 772f, 773f, 774f",
                    ".popsection",
                    ".pushsection .rodata.trackway,\"a\",@progbits",
                    ::core::concat!("772: .asciz \"", ::core::stringify!($provider), "\""),
                    ::core::concat!("773: .asciz \"", ::core::stringify!($name), $suffix, "\""),
                    ".popsection",
                    ".pushsection .data.rel.ro.trackway,\"aw\",@progbits",
                    ".balign 8",
                    "774:",
                    ".popsection",
                    $(
                        ::core::concat!(
                            ".pushsection .rodata.trackway,\"a\",@progbits\n",
                            "775: .asciz \"", ::core::stringify!($field), "\"\n",
                            ".popsection\n",
                            ".pushsection .data.rel.ro.trackway,\"aw\",@progbits\n",
                            ".quad 775b\n",
                            // Weak, because only the value's code has the labels (`__labels!`). The
                            // compiler removes that code if it knows that the expression diverges.
                            // Then the event never happens, and the library refuses it.
                            ".if {}\n",
                            ".hidden trackway.labels.{}\n",
                            ".weak trackway.labels.{}\n",
                            ".quad trackway.labels.{}\n",
                            ".else\n",
                            ".quad 0\n",
                            ".endif\n",
                            ".byte {}, {}\n",
                            ".short {}\n",
                            ".long 0\n",
                            ".popsection\n",
                        ),
                    )*
                    ".pushsection trackway_events,\"awR\",@progbits",
                    ".balign 8",
                    ".quad 771b",
                    ".popsection",
                    $crate::__address!(),
                    const $crate::level::$level,
                    const <$crate::__list!($($field)*) as $crate::__private::Fields>::COUNT,
                    $(
                        const <$field as $crate::__private::Kind>::HAS_LABELS,
                        const <$field as $crate::__private::Kind>::LABELS,
                        const <$field as $crate::__private::Kind>::LABELS,
                        const <$field as $crate::__private::Kind>::LABELS,
                        const <$field as $crate::__private::Kind>::SCALAR,
                        const <$field as $crate::__private::Kind>::SHAPE,
                        const <$field as $crate::__private::Kind>::LENGTH,
                    )*
                    event = out(reg) event,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            #[cfg(not(all(
                target_os = "linux",
                any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
                target_pointer_width = "64",
            )))]
            {
                event = $crate::__private::NEVER.event();
            }
            // SAFETY: the address is that of a descriptor with these fields.
            unsafe { $crate::__private::Site::new(event) }
        }

        #[allow(non_camel_case_types, reason = "kinds are named as the fields are")]
        #[allow(clippy::builtin_type_shadow, reason = "so a field may be called u8")]
        #[allow(clippy::too_many_arguments, reason = "in registers, as a C function has them")]
        #[inline(never)]
        fn __trackway_record<$($field: $crate::__private::Kind),*>(
            event: $crate::__private::Site<$crate::__list!($($field)*)>,
            $($field: $field),*
        ) {
            // SAFETY: the caller has borrowed the data of the values.
            unsafe { event.record($crate::__list!($($field)*)) };
        }
    };
}

/// The parts that each module contains once: the note by which libtrackway.so finds the module's
/// events, and the constructor that registers them if the module is loaded later. The linker keeps
/// one of each group; the first group equals that of include/trackway/trackway.h.
#[doc(hidden)]
#[macro_export]
macro_rules! __module {
    () => {
        ::core::concat!(
            ".ifndef .Ltrackway_module
        .set .Ltrackway_module, 1
        .ifndef .Ltrackway_note
        .set .Ltrackway_note, 1
        .hidden __start_trackway_events
        .hidden __stop_trackway_events
        .pushsection .note.trackway,\"aG\",@note,trackway.module,comdat
        .balign 4
        .hidden trackway.note
        .weak trackway.note
        trackway.note:
        .long 9, 12, 1
        .asciz \"Trackway\"
        .balign 4
        .long 1
        .long __start_trackway_events - .
        .long __stop_trackway_events - .
        .popsection
        .pushsection trackway_events,\"awG\",@progbits,trackway.module,comdat
        .balign 8
        .quad 0
        .popsection
        .endif
        .weak trackway_abi_register
        .pushsection .text.trackway,\"axG\",@progbits,trackway.rust,comdat
        .balign 16
        770:
",
            $crate::__announce!(),
            "
        .popsection
        .pushsection .init_array.00101,\"awG\",@init_array,trackway.rust,comdat
        .balign 8
        .quad 770b
        .popsection
        .endif"
        )
    };
}

/// The code of the module constructor for x86-64: a jump to the library's register function, if it
/// exists. The reference to the note keeps the note in the link.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "x86_64")]
macro_rules! __announce {
    () => {
        "endbr64
        lea rax, [rip + trackway.note]
        mov rax, qword ptr [rip + trackway_abi_register@GOTPCREL]
        test rax, rax
        je 779f
        lea rdi, [rip + __start_trackway_events]
        lea rsi, [rip + __stop_trackway_events]
        jmp rax
        779:
        ret"
    };
}

/// The code of the module constructor for AArch64. (`hint #34` is `bti c`, and a jump by x16 may go
/// to call targets.)
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "aarch64")]
macro_rules! __announce {
    () => {
        "hint #34
        adrp x16, trackway.note
        adrp x16, :got:trackway_abi_register
        ldr x16, [x16, :got_lo12:trackway_abi_register]
        cbz x16, 779f
        adrp x0, __start_trackway_events
        add x0, x0, :lo12:__start_trackway_events
        adrp x1, __stop_trackway_events
        add x1, x1, :lo12:__stop_trackway_events
        br x16
        779:
        ret"
    };
}

/// The code of the module constructor for RISC-V.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "riscv64")]
macro_rules! __announce {
    () => {
        "lla t0, trackway.note
        lga t0, trackway_abi_register
        beqz t0, 779f
        lla a0, __start_trackway_events
        lla a1, __stop_trackway_events
        jr t0
        779:
        ret"
    };
}

/// Loads the address of a site's descriptor, at the previous label 771, into `event`, on x86-64.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "x86_64")]
macro_rules! __address {
    () => {
        "lea {event}, [rip + 771b]"
    };
}

/// Loads the address of a site's descriptor, at the previous label 771, into `event`, on AArch64.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "aarch64")]
macro_rules! __address {
    () => {
        "adrp {event}, 771b\nadd {event}, {event}, :lo12:771b"
    };
}

/// Loads the address of a site's descriptor, at the previous label 771, into `event`, on RISC-V.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "riscv64")]
macro_rules! __address {
    () => {
        "lla {event}, 771b"
    };
}

/// Invalid uses that must not compile, with their messages.
///
/// A level that does not exist:
/// ```compile_fail
/// trackway::event!(myapp, request, INFORMATION);
/// ```
/// A value whose type cannot be recorded:
/// ```compile_fail
/// trackway::event!(myapp, request, INFO, path = Some("/index.html"));
/// ```
/// Names that traces cannot have:
/// ```compile_fail
/// trackway::event!(myapp, request, INFO, r#type = 1_u8);
/// ```
/// ```compile_fail
/// trackway::event!(myapp, größe, INFO);
/// ```
/// An array that is too long, or payloads that are too large:
/// ```compile_fail
/// trackway::event!(myapp, request, INFO, numbers = [0_u8; 1025]);
/// ```
/// ```compile_fail
/// trackway::event!(myapp, request, INFO, a = [0_u64; 500], b = 1_u8);
/// ```
/// A value that the next value's expression moves, or changes:
/// ```compile_fail
/// let path = String::from("/index.html");
/// trackway::event!(myapp, request, INFO, path = path, length = { drop(path); 1_u8 });
/// ```
/// ```compile_fail
/// let mut list = vec![1_u8];
/// trackway::event!(myapp, request, INFO, list = list, length = { list.push(2); 1_u8 });
/// ```
/// A span guard that moves to another thread:
/// ```compile_fail
/// let span = trackway::span!(myapp, work, INFO);
/// std::thread::spawn(move || drop(span));
/// ```
#[cfg(doctest)]
pub struct Misuse;
