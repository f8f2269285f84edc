//! JSON that several commands write.

use trackway_recorder::diagnosis::{ProcessName, Reason};

/// Formats a reason as JSON: its code, the sentence and the hint for users, and the processes.
pub(crate) fn reason_to_json(reason: &Reason) -> serde_json::Value {
    let process = |process: &ProcessName| {
        let ProcessName { pid, name } = process;
        serde_json::json!({ "pid": pid, "name": name })
    };
    let processes: Vec<_> = reason.processes().iter().map(process).collect();
    serde_json::json!({
        "reason": reason.code(),
        "message": reason.to_string(),
        "hint": reason.hint(),
        "processes": processes,
    })
}

/// Quotes a JSON string (RFC 8259, section 7).
pub(crate) fn quote_json_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if u32::from(c) < 0x20 => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
