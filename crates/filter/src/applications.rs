//! Contexts of applications: what an expression names of them may be of any type that they can
//! have, and of another one in each program.

use crate::error::Topic;
use crate::generic::{application_types, named_applications};
use crate::layout::{Layout, Member, Type};
use crate::parse::parse;
use crate::types::check_text;

/// Most contexts all combinations of whose types are tried; of more, those of one type for all.
const NAMES_MAX: usize = 3;

/// These layouts, each with the contexts of applications that `text` names, once for each
/// combination of types for which it makes sense; with one of them, where it makes none.
pub fn add_application_contexts(text: &str, layouts: Vec<Layout>) -> Vec<Layout> {
    add_existing_application_contexts(text, layouts, |_| true)
}

/// The same with those contexts alone that there are, by name (`provider:name`).
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
            // That which says what else is wrong: what is missing, if it is that alone.
            let is_near = |layout: &Layout| {
                check_text(text, layout).is_err_and(|error| error.topic == Topic::Unknown)
            };
            let near = combinations.iter().map(with).find(is_near);
            all.extend(near.or_else(|| combinations.first().map(with)));
        }
    }
    all
}

/// Types for so many contexts.
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
