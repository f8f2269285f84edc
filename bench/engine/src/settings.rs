//! Settings of a run: rounds, tracers and order.

use crate::tracer_names;

/// Settings of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// True for a run of seconds instead of minutes, to check that all rows work, not for figures.
    pub quick: bool,
    /// Number of rounds; `None`: until the figures are certain enough, or the time is over.
    pub rounds: Option<u32>,
    /// Words that select tracers: names, or parts of names before a `-`, ignoring case. An empty
    /// list selects all tracers. Baselines are always measured.
    pub tracers: Vec<String>,
    /// Seed of the order of turns: the same seed gives the same order.
    pub seed: u64,
}

impl Settings {
    /// Returns true if the settings select a tracer.
    pub fn wants(&self, tracer: &str) -> bool {
        tracer_names::is_chosen(&self.tracers, tracer)
    }

    /// Returns the command that measures a suite again with these settings, in the same order,
    /// quoted for a shell.
    pub fn command(&self, suite: &str) -> String {
        let mut command = format!("trackway bench {suite}");
        if self.quick {
            command += " --quick";
        }
        if let Some(rounds) = self.rounds {
            command += &format!(" --rounds {rounds}");
        }
        if !self.tracers.is_empty() {
            command += &format!(" --tracers {}", quote_for_shell(&self.tracers.join(",")));
        }
        command + &format!(" --seed {}", self.seed)
    }
}

/// Quotes a word for a shell.
fn quote_for_shell(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_+.,/".contains(letter);
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_say_all_that_was_asked_for() {
        let settings = Settings { seed: 7, ..Settings::default() };
        assert_eq!(settings.command("drain"), "trackway bench drain --seed 7");
        let tracers = ["trackway-c++".to_owned(), " it's".to_owned()].to_vec();
        let settings = Settings { quick: true, rounds: Some(3), tracers, seed: 1 };
        assert_eq!(
            settings.command("size"),
            "trackway bench size --quick --rounds 3 --tracers 'trackway-c++, it'\\''s' --seed 1"
        );
    }
}
