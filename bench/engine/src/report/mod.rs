//! Results for people: as tables, as a page with figures, and two of them compared.

pub mod compare;
pub mod page;
mod table;
pub mod text;
