//! A walk over the top-level fields of an encoded message, without decoding them: what version it is, how many parts it
//! has. Allocates nothing. Used by `message` before the generated code sees a payload.

/// One field as it stands on the wire.
pub(super) struct Field<'a> {
    pub(super) number: u32,
    /// Its value, if it is a number of variable length.
    pub(super) varint: Option<u64>,
    /// Its bytes, if it has a length.
    pub(super) bytes: Option<&'a [u8]>,
}

/// Iterates over fields; ends after the first one that is broken.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<Field<'a>, &'static str> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0).ok_or("a field's number")?;
        let (mut varint, mut bytes) = (None, None);
        match key & 7 {
            0 => varint = Some(self.varint()?),
            1 => drop(self.take(8)?),
            2 => {
                let length = self.varint()?;
                bytes = Some(self.take(length)?);
            }
            5 => drop(self.take(4)?),
            _ => return Err("a field's type"),
        }
        Ok(Field { number, varint, bytes })
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], &'static str> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.rest.len());
        let (taken, rest) = self.rest.split_at(length.ok_or("a field is longer than the message")?);
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for (at, byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7F) << (7 * at);
            if *byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err("a number that does not end")
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// How many parts stand at `path`: field numbers from the outermost message inwards.
pub(super) fn count(message: &[u8], path: &[u32]) -> Result<usize, &'static str> {
    let [number, inner @ ..] = path else { return Ok(1) };
    let mut total = 0;
    for field in Fields::of(message) {
        let field = field?;
        if field.number == *number
            && let Some(bytes) = field.bytes
        {
            total += if inner.is_empty() { 1 } else { count(bytes, inner)? };
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_where_they_stand() {
        // Field 1 = 5, field 2 = { field 3 = "", field 3 = "ab" }, field 3 = "", field 2 = { field 3 = "" }.
        let message = [8, 5, 18, 6, 26, 0, 26, 2, 97, 98, 26, 0, 18, 2, 26, 0];
        let counts = [&[2][..], &[2, 3], &[3], &[1], &[9]].map(|path| count(&message, path));
        assert_eq!(counts, [Ok(2), Ok(3), Ok(1), Ok(0), Ok(0)]);
    }

    #[test]
    fn what_is_broken_is_named_and_ends_the_walk() {
        let broken: [(&[u8], &str); 6] = [
            (&[0xFF], "a number that does not end"),
            (&[0xFF; 20], "a number that does not end"),
            (&[18, 5, 1], "a field is longer than the message"),
            (
                &[18, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1],
                "a field is longer than the message",
            ),
            (&[11], "a field's type"),
            (&[0, 0], "a field's number"),
        ];
        for (message, reason) in broken {
            assert_eq!(count(message, &[2]), Err(reason), "{message:?}");
            assert_eq!(Fields::of(message).count(), 1);
        }
    }
}
