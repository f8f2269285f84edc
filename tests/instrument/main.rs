//! What a program is instrumented with: the library's symbols and versions, how it is linked, the
//! crate `trackway`, the preload helpers. The headers are tested by `tests/header`.

mod abi;
mod linking;
mod preload;
mod rust;
