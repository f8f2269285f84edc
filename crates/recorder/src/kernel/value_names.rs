//! Names of numbers in the kernel's catalogue, as traces declare them.

use std::sync::{Arc, LazyLock};

use trackway_ctf::write::{Meaning, Names};
use trackway_kernel::bpf_program::plan::EventPlan;
use trackway_kernel::catalogue::calls::{
    file_types, handler_addresses, null_address, requests, signals,
};
use trackway_kernel::catalogue::model::{self, ResultKind, Symbol, Symbols};
use trackway_kernel::catalogue::names;

/// Returns the meaning of each field of an event, if plain text does not show it.
pub(crate) fn of(staged: &EventPlan) -> Vec<Option<Meaning>> {
    of_fields(&staged.meanings)
}

/// Returns the meanings of fields by their meanings in the catalogue.
pub(crate) fn of_fields(fields: &[model::Meaning]) -> Vec<Option<Meaning>> {
    fields.iter().map(meaning).collect()
}

fn meaning(of: &model::Meaning) -> Option<Meaning> {
    Some(match of {
        model::Meaning::Symbols(symbols) => Meaning::Names(table(symbols)),
        model::Meaning::Request => Meaning::Names(table(&requests())),
        model::Meaning::DependentSymbols(symbols) => Meaning::NamesBehind(table(symbols)),
        model::Meaning::Octal => Meaning::Octal,
        model::Meaning::Mode => Meaning::Mode(table(&file_types())),
        model::Meaning::SignalSet => Meaning::Signals(table(&signals())),
        model::Meaning::WaitStatus => Meaning::Status(table(&signals())),
        model::Meaning::Address => Meaning::Address(table(&null_address())),
        model::Meaning::Handler => Meaning::Address(table(&handler_addresses())),
        model::Meaning::Device => Meaning::Device,
        model::Meaning::Folder => Meaning::Folder,
        model::Meaning::Internet => Meaning::Internet,
        model::Meaning::Mac => Meaning::Hardware,
        model::Meaning::Uuid => Meaning::Uuid,
        model::Meaning::Result(returned) => Meaning::Result {
            errors: errors(),
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

/// Returns the names of a field's values, with the values, as in traces.
pub(crate) fn labels(of: &model::Meaning) -> Vec<(String, i64)> {
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
        model::Meaning::Request => all(&requests(), Some),
        model::Meaning::DependentSymbols(symbols) => {
            all(symbols, |value| Some(value & i64::from(u32::MAX)))
        }
        model::Meaning::Mode => all(&file_types(), Some),
        model::Meaning::SignalSet => all(&signals(), bit),
        model::Meaning::Address => all(&null_address(), Some),
        model::Meaning::Handler => all(&handler_addresses(), Some),
        model::Meaning::Folder => vec![("AT_FDCWD".to_owned(), libc::AT_FDCWD.into())],
        model::Meaning::Result(_) => {
            let negative =
                |(name, error): (&str, u64)| (name.to_owned(), 0_i64.wrapping_sub_unsigned(error));
            names::errors().map(negative).collect()
        }
        _ => Vec::new(),
    }
}

fn table(symbols: &Symbols) -> Arc<Names> {
    let all = |symbols: &[Symbol]| {
        symbols.iter().map(|symbol| (symbol.name.clone().into_owned(), symbol.value)).collect()
    };
    Arc::new(Names {
        choice_mask: symbols.choice_mask,
        choices: all(&symbols.choices),
        flags: all(&symbols.flags),
        hidden: symbols.hidden,
    })
}

fn errors() -> Arc<Names> {
    static ERRORS: LazyLock<Arc<Names>> = LazyLock::new(|| {
        let choices = names::errors().map(|(name, value)| (name.to_owned(), value));
        let choices = choices.collect();
        Arc::new(Names { choice_mask: u64::MAX, choices, ..Names::default() })
    });
    Arc::clone(&ERRORS)
}
