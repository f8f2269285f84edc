//! Sessions in the background, as users make, change, watch and end them: `trackway session`,
//! `channel` and `event`. Every test has a world of its own, and so a window and sessions of its
//! own; what they record are the numbers that `session/emitter.c` counts where the test can see it.

#[path = "session/access.rs"]
mod access;
#[path = "session/blocking.rs"]
mod blocking;
#[path = "session/changes.rs"]
mod changes;
#[path = "session/clock.rs"]
mod clock;
#[path = "session/compact.rs"]
mod compact;
#[path = "session/filter_rules.rs"]
mod filter_rules;
#[path = "session/filters.rs"]
mod filters;
#[path = "session/filters_in_c.rs"]
mod filters_in_c;
#[path = "session/guides.rs"]
mod guides;
#[path = "session/jumps.rs"]
mod jumps;
#[path = "session/killed.rs"]
mod killed;
#[path = "session/life.rs"]
mod life;
#[path = "session/live.rs"]
mod live;
#[path = "session/manager.rs"]
mod manager;
#[path = "session/many.rs"]
mod many;
#[path = "session/meanings.rs"]
mod meanings;
#[path = "session/memory.rs"]
mod memory;
#[path = "session/place.rs"]
mod place;
#[path = "session/record.rs"]
mod record;
#[path = "session/room.rs"]
mod room;
#[path = "session/sandboxed.rs"]
mod sandboxed;
#[path = "session/shortage.rs"]
mod shortage;
#[path = "session/snapshots.rs"]
mod snapshots;
#[path = "session/socket.rs"]
mod socket;
#[path = "session/tracefiles.rs"]
mod tracefiles;
#[path = "session/unfinished.rs"]
mod unfinished;
#[path = "session/unstaged.rs"]
mod unstaged;
#[path = "session/unwinding.rs"]
mod unwinding;
#[path = "session/users.rs"]
mod users;
#[path = "session/which.rs"]
mod which;
