//! Application contexts in expressions: each may have any type that application contexts support,
//! and a different type in each program.

use crate::error::Topic;
use crate::generic::{application_types, named_applications};
use crate::layout::{Layout, Member, Type};
use crate::parse::parse;
use crate::types::check_text;

/// Maximum number of contexts for which all type combinations are tried. With more contexts, all
/// get one type.
const NAMES_MAX: usize = 3;

/// Adds the application contexts that `text` names to each layout: one copy for each type
/// combination that type-checks. If none type-checks, one combination is added.
pub fn add_application_contexts(text: &str, layouts: Vec<Layout>) -> Vec<Layout> {
    add_existing_application_contexts(text, layouts, |_| true)
}

/// Adds application contexts like [`add_application_contexts`], but only those that `is_there`
/// accepts, by name (`provider:name`).
pub fn add_existing_application_contexts(
    text: &str,
    layouts: Vec<Layout>,
    is_there: impl Fn(&str) -> bool,
) -> Vec<Layout> {
    let Ok(parsed) = parse(text) else { return layouts };
    let mut names = named_applications(&parsed);
    names.retain(|name| is_there(name));
    if names.is_empty() {
        return layouts;
    }
    let combinations = type_combinations(names.len());
    let mut all = Vec::new();
    for layout in layouts {
        let with = |types: &Vec<Type>| {
            let members = names.iter().zip(types);
            let member =
                |(name, of): (&String, &Type)| Member { name: name.clone(), of: of.clone() };
            Layout { applications: members.map(member).collect(), ..layout.clone() }
        };
        let first = all.len();
        all.extend(combinations.iter().map(with).filter(|layout| check_text(text, layout).is_ok()));
        if all.len() == first {
            // Prefer the combination whose only error is a missing name: its message is the useful
            // one.
            let is_near = |layout: &Layout| {
                check_text(text, layout).is_err_and(|error| error.topic == Topic::Unknown)
            };
            let near = combinations.iter().map(with).find(is_near);
            all.extend(near.or_else(|| combinations.first().map(with)));
        }
    }
    all
}

/// Returns the combinations of types for `count` contexts.
fn type_combinations(count: usize) -> Vec<Vec<Type>> {
    let types = application_types();
    if count > NAMES_MAX {
        return types.into_iter().map(|of| vec![of; count]).collect();
    }
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = |shorter: Vec<Type>| {
            types.iter().map(move |of| shorter.iter().chain([of]).cloned().collect())
        };
        all = all.into_iter().flat_map(longer).collect::<Vec<Vec<Type>>>();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_have_the_types_for_which_an_expression_makes_sense() {
        let types = |text: &str| -> Vec<Vec<Type>> {
            let layouts = add_application_contexts(text, vec![Layout::default()]);
            let of = |layout: Layout| layout.applications.into_iter().map(|one| one.of).collect();
            layouts.into_iter().map(of).collect()
        };
        let [signed, unsigned, string, float] = application_types();
        assert_eq!(types("true"), [vec![]]);
        assert_eq!(
            types("$app.a:b == 5"),
            [vec![signed.clone()], vec![unsigned.clone()], vec![float]]
        );
        assert_eq!(types("$app.a:b == \"x\""), [vec![string.clone()]]);
        let both = types("$app.a:b == \"x\" && $app.a:c & 1 == 1");
        assert_eq!(both, [vec![string.clone(), signed], vec![string, unsigned]]);
        assert_eq!(types("$app.a:b == 5 && $app.a:b == \"x\"").len(), 1);
    }
}
