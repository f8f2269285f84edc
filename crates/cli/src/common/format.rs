//! Values of options that several commands have.

use clap::ValueEnum;

/// Form of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Values of `--kernel-via`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelWay {
    /// Programs that the kernel runs (BPF), into buffers of ours
    Bpf,
    /// A private instance of tracefs, converted
    Tracefs,
}

impl From<KernelWay> for trackway_recorder::KernelVia {
    fn from(way: KernelWay) -> Self {
        match way {
            KernelWay::Bpf => Self::Bpf,
            KernelWay::Tracefs => Self::Tracefs,
        }
    }
}
