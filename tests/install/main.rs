//! What a user installs and reads: documents, help, messages, terminals, `trackway doctor`.

mod doctor;
mod documents;
mod help;
mod messages;
mod terminal;
