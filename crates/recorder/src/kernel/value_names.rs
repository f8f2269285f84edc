//! Names of numeric values in the kernel's catalogue, as traces declare them.

use std::sync::{Arc, LazyLock};

use trackway_ctf::write::{Meaning, ValueNames};
use trackway_kernel::bpf_program::plan::EventPlan;
use trackway_kernel::catalogue::calls::{
    file_type_names, ioctl_request_names, null_address_name, signal_handler_names, signal_names,
};
use trackway_kernel::catalogue::model::{self, ResultKind, Symbol, Symbols};
use trackway_kernel::catalogue::names;

/// Returns the meaning of each field of an event; `None` if plain text shows the field's values.
pub(crate) fn meanings_of_event(staged: &EventPlan) -> Vec<Option<Meaning>> {
    meanings_of_fields(&staged.meanings)
}

/// Converts the catalogue's meanings of fields to meanings in traces.
pub(crate) fn meanings_of_fields(fields: &[model::Meaning]) -> Vec<Option<Meaning>> {
    fields.iter().map(convert_meaning).collect()
}

fn convert_meaning(of: &model::Meaning) -> Option<Meaning> {
    Some(match of {
        model::Meaning::Symbols(symbols) => Meaning::Names(convert_symbols(symbols)),
        model::Meaning::Request => Meaning::Names(convert_symbols(&ioctl_request_names())),
        model::Meaning::DependentSymbols(symbols) => Meaning::NamesBehind(convert_symbols(symbols)),
        model::Meaning::Octal => Meaning::Octal,
        model::Meaning::Mode => Meaning::Mode(convert_symbols(&file_type_names())),
        model::Meaning::SignalSet => Meaning::Signals(convert_symbols(&signal_names())),
        model::Meaning::WaitStatus => Meaning::Status(convert_symbols(&signal_names())),
        model::Meaning::Address => Meaning::Address(convert_symbols(&null_address_name())),
        model::Meaning::Handler => Meaning::Address(convert_symbols(&signal_handler_names())),
        model::Meaning::Device => Meaning::Device,
        model::Meaning::Folder => Meaning::Folder,
        model::Meaning::Internet => Meaning::Internet,
        model::Meaning::Mac => Meaning::Hardware,
        model::Meaning::Uuid => Meaning::Uuid,
        model::Meaning::Result(returned) => Meaning::Result {
            errors: errno_names(),
            is_address: matches!(returned, ResultKind::Address),
        },
        // Plain text shows these values.
        model::Meaning::Plain
        | model::Meaning::Hexadecimal
        | model::Meaning::Code
        | model::Meaning::KernelText
        | model::Meaning::Descriptor
        | model::Meaning::Process
        | model::Meaning::User
        | model::Meaning::Group => return None,
    })
}

/// Returns the names of a field's values, with the values, as traces declare them.
pub(crate) fn labels_of_meaning(of: &model::Meaning) -> Vec<(String, i64)> {
    let all = |symbols: &Symbols, value: fn(i64) -> Option<i64>| -> Vec<(String, i64)> {
        let symbols = symbols.choices.iter().chain(&symbols.flags);
        let named = |symbol: &Symbol| {
            Some((symbol.name.clone().into_owned(), value(symbol.value.cast_signed())?))
        };
        symbols.filter_map(named).collect()
    };
    let bit = |signal: i64| {
        Some(1_u64.checked_shl(u32::try_from(signal).ok()?.checked_sub(1)?)?.cast_signed())
    };
    match of {
        model::Meaning::Symbols(symbols) => all(symbols, Some),
        model::Meaning::Request => all(&ioctl_request_names(), Some),
        model::Meaning::DependentSymbols(symbols) => {
            all(symbols, |value| Some(value & i64::from(u32::MAX)))
        }
        model::Meaning::Mode => all(&file_type_names(), Some),
        model::Meaning::SignalSet => all(&signal_names(), bit),
        model::Meaning::Address => all(&null_address_name(), Some),
        model::Meaning::Handler => all(&signal_handler_names(), Some),
        model::Meaning::Folder => vec![("AT_FDCWD".to_owned(), libc::AT_FDCWD.into())],
        model::Meaning::Result(_) => {
            let negative =
                |(name, error): (&str, u64)| (name.to_owned(), 0_i64.wrapping_sub_unsigned(error));
            names::error_names().map(negative).collect()
        }
        _ => Vec::new(),
    }
}

fn convert_symbols(symbols: &Symbols) -> Arc<ValueNames> {
    let all = |symbols: &[Symbol]| {
        symbols.iter().map(|symbol| (symbol.name.clone().into_owned(), symbol.value)).collect()
    };
    Arc::new(ValueNames {
        choice_mask: symbols.choice_mask,
        choices: all(&symbols.choices),
        flags: all(&symbols.flags),
        hidden: symbols.hidden,
    })
}

fn errno_names() -> Arc<ValueNames> {
    static ERRORS: LazyLock<Arc<ValueNames>> = LazyLock::new(|| {
        let choices = names::error_names().map(|(name, value)| (name.to_owned(), value));
        let choices = choices.collect();
        Arc::new(ValueNames { choice_mask: u64::MAX, choices, ..ValueNames::default() })
    });
    Arc::clone(&ERRORS)
}
