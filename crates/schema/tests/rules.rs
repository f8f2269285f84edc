//! Rules are read from shared memory: they must match as defined, and must not panic on any bytes.

use proptest::prelude::*;
use trackway_schema::{ProcessFacts, ProcessRules, Rules, glob_matches};

/// A rule: true if it excludes; its pattern; its level, if any, and whether it is exact.
type Line = (bool, String, Option<(bool, u8)>);

fn any_line() -> impl Strategy<Value = Line> {
    let levels = prop::option::of((any::<bool>(), 0_u8..=16));
    (any::<bool>(), "[ab*]{0,2}:?[ab*]{0,2}", levels)
}

fn format_rules(lines: &[Line]) -> String {
    let text = |(excludes, pattern, levels): &Line| {
        let levels =
            levels.map(|(exactly, level)| format!("\t{}{level}", if exactly { "=" } else { "<=" }));
        format!("{}{pattern}{}", if *excludes { "!" } else { "" }, levels.unwrap_or_default())
    };
    lines.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// Returns true if a line selects the event, by its definition.
fn line_matches((_, pattern, levels): &Line, name: &str, level: u8) -> bool {
    let in_levels = match *levels {
        None => true,
        Some((_, asked)) if asked > 14 => false,
        Some((true, asked)) => level == asked,
        Some((false, asked)) => level <= asked,
    };
    in_levels && glob_matches(pattern.as_bytes(), name.as_bytes())
}

proptest! {
    #[test]
    fn exclusions_win_and_lines_mean_what_they_say(
        lines in prop::collection::vec(any_line(), 0..6),
        provider in "[ab]{1,2}",
        name in "[ab]{1,2}",
        level in 0_u8..=14,
    ) {
        let full = format!("{provider}:{name}");
        let is_meant = |excludes: bool| {
            lines.iter().any(|line| line.0 == excludes && line_matches(line, &full, level))
        };
        let rules = format_rules(&lines);
        let rules = Rules::new(rules.as_bytes());
        let selected = rules.selects(provider.as_bytes(), name.as_bytes(), level);
        prop_assert_eq!(selected, is_meant(false) && !is_meant(true));
        prop_assert!(!selected || rules.may_select(provider.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        text in prop::collection::vec(any::<u8>(), 0..200),
        provider in prop::collection::vec(any::<u8>(), 0..300),
        name in prop::collection::vec(any::<u8>(), 0..300),
        level in any::<u8>(),
    ) {
        let _ = Rules::new(&text).selects(&provider, &name, level);
    }

    /// Changes one byte of the rules' text.
    #[test]
    fn damaged_rules_never_panic(
        lines in prop::collection::vec(any_line(), 1..6),
        at in any::<usize>(),
        byte in any::<u8>(),
    ) {
        let mut text = format_rules(&lines).into_bytes();
        if let Some(place) = at.checked_rem(text.len()) {
            text[place] = byte;
        }
        let _ = Rules::new(&text).selects(b"a", b"b", 4);
    }

    /// An added rule of an existing kind excludes no process; a rule of a new kind admits none.
    #[test]
    fn rules_for_processes_add_up(
        lines in prop::collection::vec("(pid=|exe=|ns=|)[1-3a*/:]{0,4}", 0..6),
        pid in 1_u32..4,
        pid_namespace in 0_u64..4,
        executable in "[a/]{0,4}",
    ) {
        let process = ProcessFacts { pid, pid_namespace, executable: executable.as_bytes() };
        let selects = |lines: &[String]| {
            ProcessRules::new(lines.join("\n").as_bytes()).selects(&process)
        };
        let kind = |line: &String| line.split_inclusive('=').next().map(str::to_owned);
        for count in 1..=lines.len() {
            let (before, added) = (&lines[..count - 1], &lines[count - 1]);
            if added.is_empty() {
                prop_assert_eq!(selects(before), selects(&lines[..count]));
            } else if before.iter().any(|line| kind(line) == kind(added)) {
                prop_assert!(!selects(before) || selects(&lines[..count]));
            } else {
                prop_assert!(selects(before) || !selects(&lines[..count]));
            }
        }
    }

    #[test]
    fn arbitrary_rules_for_processes_never_panic(
        text in prop::collection::vec(any::<u8>(), 0..200),
        executable in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let process = ProcessFacts { pid: 1, pid_namespace: 2, executable: &executable };
        let _ = ProcessRules::new(&text).selects(&process);
    }
}
