//! Installation and texts for users: documents, help, messages, terminals, `trackway doctor`.

mod doctor;
mod documents;
mod help;
mod messages;
mod terminal;
