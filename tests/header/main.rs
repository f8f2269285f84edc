//! The headers for C and C++: accepted and refused uses, and recorded events.
//!
//! The C sources are in the same folder. A fake agent stands in for `libtrackway.so`.

mod c;
mod cxx;
mod support;
