//! libtrackway.so: the C interface over the agent.
