//! JSON objects with checked access to their properties.

use serde_json::{Map, Value};

use super::Parsed;
use crate::read::error::{MetadataError, MetadataProblem};
use crate::read::metadata::node::SourcePosition;

/// A JSON object in the fragment that begins at `place`.
#[derive(Clone, Copy)]
pub(crate) struct Object<'json> {
    map: &'json Map<String, Value>,
    place: SourcePosition,
}

impl<'json> Object<'json> {
    pub(crate) fn new(value: &'json Value, place: SourcePosition) -> Parsed<Self> {
        let problem = || MetadataProblem::Property("object".to_owned());
        let map = value.as_object().ok_or_else(|| MetadataError::at(place, problem()))?;
        Ok(Self { map, place })
    }

    /// Returns the error for a missing or invalid property.
    pub(crate) fn property_error(&self, name: &str) -> MetadataError {
        MetadataError::at(self.place, MetadataProblem::Property(name.to_owned()))
    }

    pub(crate) fn properties(&self) -> impl Iterator<Item = (&'json String, &'json Value)> {
        self.map.iter()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'json Value> {
        self.map.get(name)
    }

    pub(crate) fn required(&self, name: &str) -> Parsed<&'json Value> {
        self.get(name).ok_or_else(|| self.property_error(name))
    }

    pub(crate) fn text(&self, name: &str) -> Parsed<&'json str> {
        self.required(name)?.as_str().ok_or_else(|| self.property_error(name))
    }

    pub(crate) fn unsigned(&self, name: &str) -> Parsed<u64> {
        self.required(name)?.as_u64().ok_or_else(|| self.property_error(name))
    }

    pub(crate) fn array(&self, name: &str) -> Parsed<&'json [Value]> {
        self.optional_array(name)?.ok_or_else(|| self.property_error(name))
    }

    pub(crate) fn optional_text(&self, name: &str) -> Parsed<Option<&'json str>> {
        self.optional_as(name, Value::as_str)
    }

    pub(crate) fn optional_unsigned(&self, name: &str) -> Parsed<Option<u64>> {
        self.optional_as(name, Value::as_u64)
    }

    pub(crate) fn optional_signed(&self, name: &str) -> Parsed<Option<i64>> {
        self.optional_as(name, Value::as_i64)
    }

    pub(crate) fn optional_array(&self, name: &str) -> Parsed<Option<&'json [Value]>> {
        self.optional_as(name, |value| value.as_array().map(Vec::as_slice))
    }

    pub(crate) fn optional_object(&self, name: &str) -> Parsed<Option<Self>> {
        let place = self.place;
        self.optional_as(name, |value| value.as_object().map(|map| Self { map, place }))
    }

    fn optional_as<T>(
        &self,
        name: &str,
        read: impl Fn(&'json Value) -> Option<T>,
    ) -> Parsed<Option<T>> {
        let read = |value| read(value).ok_or_else(|| self.property_error(name));
        self.get(name).map(read).transpose()
    }

    /// Refuses metadata with extensions: they may change the meaning of anything, so a reader that
    /// does not know them must stop (§5.1).
    pub(crate) fn refuse_extensions(&self) -> Parsed<()> {
        let Some(spaces) = self.optional_object("extensions")? else { return Ok(()) };
        for (space, extensions) in spaces.properties() {
            let names = extensions.as_object().ok_or_else(|| self.property_error("extensions"))?;
            if let Some(name) = names.keys().next() {
                let problem = MetadataProblem::Extension(format!("{space}/{name}"));
                return Err(MetadataError::at(self.place, problem));
            }
        }
        Ok(())
    }
}
