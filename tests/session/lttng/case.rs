//! A case of `crates/filter/cases` as an event of LTTng-UST: its fields as a provider declares
//! them, and the C code that emits the event once for each answer.

use std::fmt::Write as _;
use std::path::Path;

/// Field with the number of the emission; no filter uses it.
pub(crate) const TIME_FIELD: &str = "case_time";

/// A case with answers.
#[derive(Debug)]
pub(crate) struct FilterCase {
    /// Name of the case's file, without its ending.
    pub(crate) name: String,
    pub(crate) filter: String,
    pub(crate) answers: Vec<bool>,
    pub(crate) fields: Vec<CaseField>,
    /// True if the case has contexts with prescribed values.
    pub(crate) has_contexts: bool,
}

/// A field, parsed from a line of the file.
#[derive(Debug)]
pub(crate) struct CaseField {
    pub(crate) name: String,
    /// Words of the field's type.
    pub(crate) of: Vec<String>,
    /// A value for each emission; the last value stays.
    values: Vec<String>,
}

/// Returns all cases with answers, in the order of their names.
pub(crate) fn read_cases(folder: &Path) -> Vec<FilterCase> {
    let mut cases: Vec<FilterCase> = std::fs::read_dir(folder)
        .expect("the cases")
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "txt"))
        .filter_map(|entry| {
            let name = entry.path().file_stem()?.to_str()?.to_owned();
            parse_case(name, &std::fs::read_to_string(entry.path()).expect("a case"))
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

fn parse_case(name: String, text: &str) -> Option<FilterCase> {
    let mut case = FilterCase {
        name,
        filter: String::new(),
        answers: Vec::new(),
        fields: Vec::new(),
        has_contexts: false,
    };
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').expect("a word and more");
        match word {
            "filter" => case.filter = rest.to_owned(),
            "answer" => case.answers = rest.split(' ').map(|answer| answer == "true").collect(),
            "field" => case.fields.push(parse_field(rest)),
            "context" | "app" => case.has_contexts = true,
            _ => {}
        }
    }
    (!case.answers.is_empty()).then_some(case)
}

fn parse_field(line: &str) -> CaseField {
    let (declared, values) = line.split_once(" =").expect("a value");
    let mut words = declared.split_whitespace().map(str::to_owned);
    let name = words.next().expect("a name");
    let values = values.split(" | ").map(|value| value.trim().to_owned()).collect();
    CaseField { name, of: words.collect(), values }
}

impl CaseField {
    /// Returns the words of the field's type.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.of.iter().map(String::as_str).collect()
    }

    /// Returns the declaration of the field in a provider, and as the member of the C structure
    /// from which the provider takes the value.
    fn declared(&self, case: &str) -> (String, String) {
        let name = &self.name;
        match self.words()[..] {
            ["string"] => (
                format!("lttng_ust_field_string({name}, v->{name})"),
                format!("const char *{name};"),
            ),
            ["array", count, of] => (
                format!("lttng_ust_field_array({}, {name}, v->{name}, {count})", c_type(of)),
                format!("{} {name}[{count}];", c_type(of)),
            ),
            ["sequence", of] => (
                format!(
                    "lttng_ust_field_sequence({}, {name}, v->{name}, size_t, v->count_of_{name})",
                    c_type(of)
                ),
                format!("{} {name}[16]; size_t count_of_{name};", c_type(of)),
            ),
            ["enum", of, ..] => (
                format!(
                    "lttng_ust_field_enum(cases, {case}_{name}, {}, {name}, v->{name})",
                    c_type(of)
                ),
                format!("{} {name};", c_type(of)),
            ),
            [of @ ("f32" | "f64")] => (
                format!("lttng_ust_field_float({}, {name}, v->{name})", c_type(of)),
                format!("{} {name};", c_type(of)),
            ),
            [of] => (
                format!("lttng_ust_field_integer({}, {name}, v->{name})", c_type(of)),
                format!("{} {name};", c_type(of)),
            ),
            _ => panic!("no field of LTTng's: {self:?}"),
        }
    }

    /// Returns the declaration of the field's labels, if it has any.
    fn labels(&self, case: &str) -> String {
        let ["enum", _, labels @ ..] = &self.words()[..] else { return String::new() };
        let values: String = labels
            .iter()
            .map(|label| {
                let (name, range) = label.split_once('=').expect("NAME=VALUE");
                match range.split_once("..") {
                    Some((first, last)) => {
                        format!("\tlttng_ust_field_enum_range(\"{name}\", {first}, {last})\n")
                    }
                    None => format!("\tlttng_ust_field_enum_value(\"{name}\", {range})\n"),
                }
            })
            .collect();
        format!(
            "LTTNG_UST_TRACEPOINT_ENUM(cases, {case}_{}, LTTNG_UST_TP_ENUM_VALUES(\n{values}))\n",
            self.name
        )
    }

    /// Returns the initializer of the field's member for an emission.
    fn value(&self, time: usize) -> String {
        let text = self.values.get(time).or(self.values.last()).expect("a value");
        let name = &self.name;
        match self.words()[..] {
            ["string"] => format!(".{name} = {}", c_string(text)),
            ["array" | "sequence", .., of] => {
                let values: Vec<String> =
                    text.split_whitespace().map(|value| c_number(of, value)).collect();
                let count = values.len();
                let all = format!(".{name} = {{{}}}", values.join(", "));
                match self.words()[0] {
                    "array" => all,
                    _ if count == 0 => format!(".count_of_{name} = 0"),
                    _ => format!("{all}, .count_of_{name} = {count}"),
                }
            }
            ["enum", of, ..] | [of] => format!(".{name} = {}", c_number(of, text)),
            _ => panic!("no field of LTTng's: {self:?}"),
        }
    }
}

fn c_type(of: &str) -> &'static str {
    match of {
        "i8" => "int8_t",
        "i16" => "int16_t",
        "i32" => "int32_t",
        "i64" => "int64_t",
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" | "x64" => "uint64_t",
        "f32" => "float",
        "f64" => "double",
        other => panic!("'{other}' is no type that LTTng has"),
    }
}

fn c_number(of: &str, text: &str) -> String {
    match (of, text) {
        (_, "nan" | "NaN") => "__builtin_nan(\"\")".to_owned(),
        (_, "inf") => "__builtin_inf()".to_owned(),
        ("f32" | "f64", _) => text.to_owned(),
        (_, "-9223372036854775808") => "INT64_MIN".to_owned(),
        ("u64" | "x64", _) => format!("UINT64_C({text})"),
        _ => format!("INT64_C({text})"),
    }
}

/// Converts a string of a case to a C string, in which a digit after `\x` would continue the
/// escape.
fn c_string(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).expect("a string");
    let mut quoted = String::from("\"");
    let mut bytes = inner.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'\\' => match bytes.next().expect("an escape") {
                b'n' => b'\n',
                b'x' => {
                    let digits = [bytes.next(), bytes.next()].map(|digit| digit.expect("a digit"));
                    let digits = std::str::from_utf8(&digits).expect("ASCII").to_owned();
                    u8::from_str_radix(&digits, 16).expect("digits")
                }
                other => other,
            },
            byte => byte,
        };
        // Writing to a string cannot fail.
        let _ = write!(quoted, "\\{byte:03o}");
    }
    quoted + "\""
}

/// Returns the provider of these cases' events: one event for each case, with the name of the case.
pub(crate) fn provider_source(cases: &[&FilterCase]) -> String {
    let mut text = String::from(
        "#undef LTTNG_UST_TRACEPOINT_PROVIDER\n#define LTTNG_UST_TRACEPOINT_PROVIDER cases\n\
         #undef LTTNG_UST_TRACEPOINT_INCLUDE\n#define LTTNG_UST_TRACEPOINT_INCLUDE \"./cases.h\"\n\
         #if !defined(CASES_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)\n\
         #define CASES_H\n#include <lttng/tracepoint.h>\n#include <stdint.h>\n\
         #ifndef CASES_STRUCTURES\n#define CASES_STRUCTURES\n",
    );
    for case in cases {
        let members: String =
            case.fields.iter().map(|field| field.declared(&case.name).1 + " ").collect();
        let _ = writeln!(text, "struct case_{} {{ {members}uint32_t {TIME_FIELD}; }};", case.name);
    }
    text += "#endif\n";
    for case in cases {
        let name = &case.name;
        text.extend(case.fields.iter().map(|field| field.labels(name)));
        let fields: String =
            case.fields.iter().map(|field| format!("\t{}\n", field.declared(name).0)).collect();
        let _ = write!(
            text,
            "LTTNG_UST_TRACEPOINT_EVENT(cases, {name},\n\
             \tLTTNG_UST_TP_ARGS(const struct case_{name} *, v),\n\tLTTNG_UST_TP_FIELDS(\n\
             {fields}\tlttng_ust_field_integer(uint32_t, {TIME_FIELD}, v->{TIME_FIELD})))\n"
        );
    }
    text + "#endif\n#include <lttng/tracepoint-event.h>\n"
}

/// Returns the program that emits all these events, once for each answer of their case.
pub(crate) fn program_source(cases: &[&FilterCase]) -> String {
    let mut text = String::from(
        "#define LTTNG_UST_TRACEPOINT_CREATE_PROBES\n#define LTTNG_UST_TRACEPOINT_DEFINE\n\
         #include \"cases.h\"\nint main(void)\n{\n",
    );
    for case in cases {
        let name = &case.name;
        for time in 0..case.answers.len() {
            let values: String = case.fields.iter().map(|field| field.value(time) + ", ").collect();
            let _ = writeln!(
                text,
                "\tlttng_ust_tracepoint(cases, {name},\n\t\t\
                 &(struct case_{name}) {{{values}.{TIME_FIELD} = {time}}});"
            );
        }
    }
    text + "\treturn 0;\n}\n"
}
