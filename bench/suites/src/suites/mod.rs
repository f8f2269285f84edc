//! The suites, each with its tracers and its method.

pub(crate) mod breakdown;
pub(crate) mod cases;
pub(crate) mod events;
pub(crate) mod filter;
mod latency;
pub(crate) mod paths;
pub(crate) mod payload;
pub(crate) mod preload;
mod programs;
pub(crate) mod reading;
mod scaling;
pub(crate) mod sessions;
mod shared_runs;
pub(crate) mod sharing;
pub(crate) mod size;
pub(crate) mod spans;
pub(crate) mod syscall;
mod workload;

use trackway_bench_engine::suite::Suite;

/// Returns all suites, in the order in which they are measured.
pub(crate) fn all_suites() -> Vec<Box<dyn Suite>> {
    vec![
        Box::new(events::Events::tracepoint()),
        Box::new(cases::Cases::default()),
        Box::new(scaling::Scaling::new()),
        Box::new(paths::Paths::new()),
        Box::new(breakdown::Breakdown::new()),
        Box::<syscall::Syscall>::default(),
        Box::new(filter::Filter::default()),
        Box::new(sharing::Sharing::default()),
        Box::new(payload::Payloads::default()),
        Box::new(size::Size::default()),
        Box::new(events::Events::drain()),
        Box::<workload::Workload>::default(),
        Box::<latency::Latency>::default(),
        Box::new(events::Events::startup()),
        Box::new(reading::Reading::default()),
        Box::new(spans::Spans::default()),
        Box::new(preload::Preload::default()),
        Box::<sessions::Sessions>::default(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trackway_bench_engine::host::workspace::Workspace;
    use trackway_bench_engine::progress::Progress;
    use trackway_bench_engine::results::SUITES;
    use trackway_bench_engine::run::RunOptions;
    use trackway_bench_engine::settings::Settings;
    use trackway_bench_engine::suite::SuiteContext;
    use trackway_bench_engine::tracer_names::{self, is_listed};

    use super::*;
    use crate::CATALOGUE;
    use paths::Paths;
    use sharing::Sharing;

    #[test]
    fn reports_know_the_suites_in_their_order() {
        let names: Vec<&str> = all_suites().iter().map(|suite| suite.about().name).collect();
        assert_eq!(names, SUITES);
    }

    #[test]
    fn misspelt_names_of_suites_are_refused_with_those_that_there_are() {
        let check = |suite: &str| {
            let suites = vec![suite.to_owned()];
            CATALOGUE.check(&RunOptions { suites, ..RunOptions::default() })
        };
        check("spans").expect("it is one");
        let error = check("speed").unwrap_err().to_string();
        assert!(error.starts_with("speed: there is no such suite; there are tracepoint, "));
    }

    #[test]
    fn suites_have_names_of_their_own() {
        let suites = CATALOGUE.suites(&Settings::default());
        let names: BTreeSet<&str> = suites.iter().map(|suite| suite.name).collect();
        assert_eq!(names.len(), suites.len());
        assert!(suites.iter().all(|suite| suite.seconds > 0.0 && !suite.repeats.is_empty()));
    }

    #[test]
    fn every_suite_has_tracers_that_words_can_choose() {
        for suite in all_suites() {
            let (name, tracers) = (suite.about().name, suite.tracers());
            assert!(
                tracers.iter().any(|tracer| tracer.starts_with("trackway")) || name == "startup",
                "{name}: {tracers:?}"
            );
            for tracer in tracers {
                // Commas separate the words of --tracers.
                let is_word = |letter: char| letter.is_ascii_graphic() && letter != ',';
                assert!(tracer.chars().all(is_word), "{name}: {tracer}");
                assert_eq!(tracer, tracer.to_lowercase(), "{name}");
            }
        }
        let idle = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let names = Sharing::default().tracers();
            tracer_names::unused_words(&words, &names).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(idle(&["bpf", "perf", "mmap"]), ["perf"]);
    }

    /// Suites whose rows are known within milliseconds; the engine checks the rows of all suites.
    #[test]
    fn rows_are_of_the_tracers_that_their_suite_tells() {
        let workspace = Workspace::for_executable("trackway".into());
        let (progress, settings) = (Progress::new(), Settings::default());
        let context = SuiteContext {
            workspace: &workspace,
            progress: &progress,
            settings: &settings,
            cpus: 2,
        };
        let both: [Box<dyn Suite>; 2] = [Box::new(Sharing::default()), Box::new(Paths::new())];
        for mut suite in both {
            let entries = suite.enter(&context).expect("rows");
            suite.leave();
            for tracer in suite.tracers() {
                assert!(entries.iter().any(|entry| entry.tracer == tracer), "{tracer}");
            }
            for entry in entries {
                assert!(is_listed(&suite.tracers(), &entry.tracer), "{}", entry.tracer);
            }
        }
    }
}
