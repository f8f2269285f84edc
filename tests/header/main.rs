//! The headers for C and C++: what compilers accept and refuse, and what is recorded.
//!
//! The sources are beside this file. A fake agent stands in for `libtrackway.so`.

mod c;
mod cxx;
mod support;
