//! What the kernel's catalogue knows of numbers, as traces say it.

use std::sync::{Arc, LazyLock};

use trackway_ctf::write::{Meaning, Names};
use trackway_kernel::catalogue::calls::{addresses, file_types, requests, signals};
use trackway_kernel::catalogue::model::{self, Returned, Symbol, Symbols};
use trackway_kernel::catalogue::names;
use trackway_kernel::record::staging::Staged;

/// What each field of an event stands for, as far as plain text does not show it.
pub(crate) fn of(staged: &Staged) -> Vec<Option<Meaning>> {
    of_fields(&staged.meanings)
}

/// The same, from what the catalogue says of each field.
pub(crate) fn of_fields(fields: &[model::Meaning]) -> Vec<Option<Meaning>> {
    fields.iter().map(meaning).collect()
}

fn meaning(of: &model::Meaning) -> Option<Meaning> {
    Some(match of {
        model::Meaning::Symbols(symbols) => Meaning::Names(table(symbols)),
        model::Meaning::Request => Meaning::Names(table(&requests())),
        model::Meaning::SymbolsBehind(symbols) => Meaning::NamesBehind(table(symbols)),
        model::Meaning::Octal => Meaning::Octal,
        model::Meaning::Mode => Meaning::Mode(table(&file_types())),
        model::Meaning::SignalSet => Meaning::Signals(table(&signals())),
        model::Meaning::WaitStatus => Meaning::Status(table(&signals())),
        model::Meaning::Address => Meaning::Address(table(&addresses(false))),
        model::Meaning::Handler => Meaning::Address(table(&addresses(true))),
        model::Meaning::Device => Meaning::Device,
        model::Meaning::Folder => Meaning::Folder,
        model::Meaning::Internet => Meaning::Internet,
        model::Meaning::Mac => Meaning::Hardware,
        model::Meaning::Uuid => Meaning::Uuid,
        model::Meaning::Result(returned) => {
            Meaning::Result { errors: errors(), is_address: matches!(returned, Returned::Address) }
        }
        // Plain text shows them as what they are.
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
