//! Results for people: tables, a page with figures, and a comparison of two reports.

pub mod compare;
pub mod page;
mod table;
pub mod text;
