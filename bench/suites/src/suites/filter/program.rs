//! Programs that emit the events of traced filters: one for each tracer, from the same questions,
//! with the same values.
//!
//! Main invariants: predicate n of a question tests field n of the event, whose value is in memory
//! that is opaque to the compiler. All predicates are true for a loop's first event, number 0. So a
//! filter that drops all other events leaves one event, which shows that a session was recording.

use std::fmt::Write as _;

use trackway_schema::Scalar;

use super::chains::{Chain, FilterTracer, Operands, TRACED_PREDICATES};
use super::questions::{Question, scalar_of_field};

/// Number of fields of each event, without its number.
const FIELD_COUNT: usize = TRACED_PREDICATES[TRACED_PREDICATES.len() - 1];
/// File name of LTTng's provider, which includes itself.
pub(super) const PROVIDER_FILE: &str = "filter-provider.h";

/// Returns the name of the loop whose events match the truths of a chain; without a chain, all
/// predicates are true.
pub(super) fn loop_name(operands: Operands, chain: Option<Chain>, predicates: usize) -> String {
    let at = match chain {
        Some(Chain::AndFalseFirst) => Some(0),
        Some(Chain::AndFalseLast) => predicates.checked_sub(1),
        _ => None,
    };
    let which = at.map_or("all".to_owned(), |at| at.to_string());
    format!("{}_{which}", operands.name())
}

/// Returns the names of all loops with these operands, and the false field of each loop.
fn list_loops(operands: Operands) -> Vec<(String, Option<usize>)> {
    let mut all = vec![(loop_name(operands, None, 0), None)];
    for predicates in TRACED_PREDICATES {
        let name = loop_name(operands, Some(Chain::AndFalseLast), predicates);
        all.push((name, Some(predicates - 1)));
    }
    all
}

/// Returns the C code of LTTng's provider.
pub(super) fn lttng_provider_source() -> String {
    let mut text = format!(
        "#undef LTTNG_UST_TRACEPOINT_PROVIDER\n#define LTTNG_UST_TRACEPOINT_PROVIDER lab\n\
         #undef LTTNG_UST_TRACEPOINT_INCLUDE\n\
         #define LTTNG_UST_TRACEPOINT_INCLUDE \"{PROVIDER_FILE}\"\n\
         #if !defined(LAB_FILTER_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)\n\
         #define LAB_FILTER_PROVIDER_H\n#include <lttng/tracepoint.h>\n"
    );
    for operands in Operands::ALL {
        let name = operands.name();
        let field = |number| match operands {
            Operands::Integers => {
                let of = c_type(operands, number);
                format!("\t\tlttng_ust_field_integer({of}, f{number}, v->f{number})\n")
            }
            Operands::Strings => format!("\t\tlttng_ust_field_string(f{number}, v->f{number})\n"),
        };
        let fields: String = (0..FIELD_COUNT).map(field).collect();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "LTTNG_UST_TRACEPOINT_EVENT(lab, {name},\n\
             \tLTTNG_UST_TP_ARGS(const struct lab_{name} *, v, uint64_t, number),\n\
             \tLTTNG_UST_TP_FIELDS(\n{fields}\
             \t\tlttng_ust_field_integer(uint64_t, number, number)))\n"
        );
    }
    text + "#endif\n#include <lttng/tracepoint-event.h>\n"
}

/// Returns the C code of a tracer's program.
pub(super) fn program_source(tracer: FilterTracer) -> String {
    let mut text = String::from("#include \"harness.h\"\n");
    for operands in Operands::ALL {
        let _ = writeln!(text, "struct lab_{} {{", operands.name());
        for number in 0..FIELD_COUNT {
            let _ = writeln!(text, "\t{} f{number};", c_type(operands, number));
        }
        text += "};\n";
    }
    text += match tracer {
        FilterTracer::Lttng => {
            "#define LTTNG_UST_TRACEPOINT_CREATE_PROBES\n#define LTTNG_UST_TRACEPOINT_DEFINE\n\
             #include \"filter-provider.h\"\n"
        }
        FilterTracer::Trackway => "#include <trackway/trackway.h>\n",
        FilterTracer::C => {
            "static uint32_t wanted, *wanted_at = &wanted;\nstatic uint64_t passed;\n"
        }
    };
    for operands in Operands::ALL {
        if tracer == FilterTracer::Trackway {
            text += &trackway_declaration(operands);
        }
        for (work, is_false) in list_loops(operands) {
            text += &values_declaration(operands, &work, is_false);
            text += &loop_source(tracer, operands, &work, is_false);
        }
    }
    text += "static const struct lab_work works[] = {\n";
    for (work, _) in Operands::ALL.into_iter().flat_map(list_loops) {
        let _ = writeln!(text, "\t{{\"{work}\", {work}}},");
    }
    text += "\t{NULL, NULL},\n};\nint main(int argc, char **argv)\n{\n";
    text += match tracer {
        FilterTracer::C => {
            "\twanted = argc > 2 && strstr(argv[2], \"_all\") == NULL;\n\
             \tconst int status = lab_main(argc, argv, works);\n\
             \tfprintf(stderr, \"passed %llu\\n\", (unsigned long long)passed);\n\
             \treturn status;\n}\n"
        }
        _ => "\treturn lab_main(argc, argv, works);\n}\n",
    };
    text
}

fn c_type(operands: Operands, number: usize) -> &'static str {
    match (operands, scalar_of_field(number)) {
        (Operands::Strings, _) => "const char *",
        (_, Scalar::I32) => "int32_t",
        (_, Scalar::U32) => "uint32_t",
        (_, Scalar::I64) => "int64_t",
        _ => "uint64_t",
    }
}

/// Returns Trackway's declaration of an event.
fn trackway_declaration(operands: Operands) -> String {
    let of = |number| match (operands, scalar_of_field(number)) {
        (Operands::Strings, _) => "str",
        (_, Scalar::I32) => "i32",
        (_, Scalar::U32) => "u32",
        (_, Scalar::I64) => "i64",
        _ => "u64",
    };
    let fields: Vec<String> =
        (0..FIELD_COUNT).map(|number| format!("({}, f{number})", of(number))).collect();
    let (name, fields) = (operands.name(), fields.join(", "));
    format!("TRACKWAY_EVENT(lab, {name}, TRACKWAY_INFO,\n\t{fields}, (u64, number));\n")
}

/// Returns the C declaration of the values of a loop's events.
fn values_declaration(operands: Operands, work: &str, is_false: Option<usize>) -> String {
    let question = Question::of(operands, Chain::AndTrue, FIELD_COUNT);
    let truths: Vec<bool> = (0..FIELD_COUNT).map(|number| Some(number) != is_false).collect();
    let event = question.event(&truths);
    let value = |number: usize| match operands {
        Operands::Integers => event.slots[number].to_string(),
        Operands::Strings => format!("\"{}\"", event.string(number)),
    };
    let values: Vec<String> = (0..FIELD_COUNT).map(value).collect();
    let (name, values) = (operands.name(), values.join(", "));
    format!("static struct lab_{name} {work}_values = {{{values}}};\n")
}

/// Returns the C condition of the filter that fails at the field `is_false`.
fn filter_condition(operands: Operands, is_false: Option<usize>) -> String {
    let (Operands::Integers, Some(last)) = (operands, is_false) else { return "1".to_owned() };
    // The text of a filter is C code, except for the location of fields.
    Question::of(operands, Chain::AndTrue, last + 1).text().replace('f', "v->f")
}

fn loop_source(
    tracer: FilterTracer,
    operands: Operands,
    work: &str,
    is_false: Option<usize>,
) -> String {
    let name = operands.name();
    let emit = match tracer {
        FilterTracer::Lttng => format!("lttng_ust_tracepoint(lab, {name}, v, i)"),
        FilterTracer::Trackway => {
            let fields: String = (0..FIELD_COUNT).map(|number| format!("v->f{number}, ")).collect();
            format!("trackway(lab, {name}, {fields}i)")
        }
        // A site loads the address of the word, then the word; the branch is unlikely.
        FilterTracer::C => {
            let load = |of: &str| format!("__atomic_load_n({of}, __ATOMIC_RELAXED)");
            let wanted = load(&load("&wanted_at"));
            let test = filter_condition(operands, is_false);
            format!(
                "{{\n\t\t\tif (__builtin_expect({wanted} != 0, 0) && {test})\n\
                 \t\t\t\tpassed++;\n\t\t\t__asm__ volatile(\"\" : : : \"memory\");\n\t\t}}"
            )
        }
    };
    let all = self::loop_name(operands, None, 0);
    format!(
        "static void {work}(uint64_t first, uint64_t count)\n{{\n\
         \tconst struct lab_{name} *v = &{all}_values;\n\
         \tuint64_t i = first;\n\
         \tconst uint64_t end = first + count;\n\
         \t__asm__ volatile(\"\" : \"+r\"(v) : : \"memory\");\n\
         \tif (i == 0) {{\n\t\t{emit};\n\t\ti++;\n\t}}\n\
         \tv = &{work}_values;\n\
         \t__asm__ volatile(\"\" : \"+r\"(v) : : \"memory\");\n\
         \tfor (; i < end; i++)\n\t\t{emit};\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_named_after_what_is_false_in_them() {
        assert_eq!(loop_name(Operands::Strings, None, 0), "strings_all");
        assert_eq!(loop_name(Operands::Strings, Some(Chain::AndTrue), 5), "strings_all");
        assert_eq!(loop_name(Operands::Integers, Some(Chain::AndFalseFirst), 9), "integers_0");
        assert_eq!(loop_name(Operands::Integers, Some(Chain::AndFalseLast), 9), "integers_8");
        for tracer in FilterTracer::ALL {
            let text = program_source(tracer);
            for operands in Operands::ALL {
                for predicates in TRACED_PREDICATES {
                    for chain in Chain::TRACED {
                        let name = loop_name(operands, Some(chain), predicates);
                        assert!(text.contains(&format!("{{\"{name}\", {name}}}")), "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_false_field_is_the_one_that_is_asked_for() {
        let text = program_source(FilterTracer::Trackway);
        let of = |work: &str| {
            let line = text.lines().find(|line| line.contains(&format!("{work}_values = ")));
            line.expect("values").to_owned()
        };
        assert!(of("strings_all").contains("{\"0000name\", \"00001name\", "));
        assert!(of("strings_2").contains("{\"0000name\", \"00001name\", \"000002namx\", "));
        assert!(of("integers_0").contains("{405, "));
    }
}
