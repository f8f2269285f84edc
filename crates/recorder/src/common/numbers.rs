//! Numbers formatted for people.

/// A number of things, with the singular of their name.
#[derive(Debug, Clone, Copy)]
pub struct Counted(pub u64, pub &'static str);

impl core::fmt::Display for Counted {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self(number, name) = *self;
        write!(formatter, "{} {name}{}", Grouped(number), if number == 1 { "" } else { "s" })
    }
}

/// A number with commas between its thousands.
#[derive(Debug, Clone, Copy)]
pub struct Grouped(pub u64);

impl core::fmt::Display for Grouped {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let digits = self.0.to_string();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                formatter.write_str(",")?;
            }
            write!(formatter, "{digit}")?;
        }
        Ok(())
    }
}
