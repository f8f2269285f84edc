//! The laboratory of filters as a whole, in a process of its own: it catches signals, and loads a
//! library.

use trackway_lab::{FilterOptions, FilterResults, Runner, print_filter, run_filter};

#[test]
fn a_quick_run_measures_every_contestant_that_is_here() {
    let options = FilterOptions { quick: true, rounds: None };
    let results = run_filter(&options).expect("all contestants agree");
    assert!(!results.has_failures(), "{:?}", results.notes);
    // 2 chains of one predicate, 5 of each other number.
    let chains = 2 + 5 * 5;
    let figures = |runner| results.costs.iter().filter(|cost| cost.runner == runner).count();
    assert_eq!(figures(Runner::Interpreted), 2 * chains);
    assert_eq!(figures(Runner::RbpfInterpreted), chains);
    let has_code = cfg!(target_arch = "x86_64");
    assert_eq!(figures(Runner::Compiled), if has_code { 2 * chains } else { 0 });
    assert_eq!(figures(Runner::RbpfCompiled), if has_code { chains } else { 0 });
    assert_eq!(results.preparations.len(), if has_code { 2 } else { 0 });
    match &results.compiler {
        Some(_) => assert_eq!(figures(Runner::C), 2 * chains),
        None => eprintln!("skipped, because there is no C compiler: the same in C"),
    }
    let is_beside_c = results.costs.iter().all(|cost| cost.of_c.is_some());
    assert_eq!(is_beside_c, results.compiler.is_some());
    let text = results.to_json().expect("text");
    assert_eq!(serde_json::from_str::<FilterResults>(&text).expect("results"), results);
    let mut report = Vec::new();
    print_filter(&results, &mut report).expect("written");
    assert!(String::from_utf8(report).expect("text").contains("||, the last true"));
}
