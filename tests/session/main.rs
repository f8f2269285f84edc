//! Background sessions, as users make, change, watch and end them: `trackway session`, `channel`
//! and `event`. Every test has a separate fixture, with a separate window and sessions. The
//! sessions record numbers that `session/emitter.c` counts in memory that the test can read.

mod access;
mod blocking;
mod changes;
mod clock;
mod compact;
mod filter_rules;
mod filters;
mod filters_in_c;
mod guides;
mod jumps;
mod killed;
mod life;
mod live;
mod lttng;
mod manager;
mod many;
mod meanings;
mod memory;
mod record;
mod sandboxed;
mod selection;
mod session_test;
mod shortage;
mod silent_users;
mod snapshots;
mod socket;
mod space;
mod tracefiles;
mod unfinished;
mod unstaged;
mod unwinding;
mod users;
mod users_fixture;
