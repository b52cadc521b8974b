//! The text of a name: cheap to copy and cheap to compare, since names are the keys of every map and part of every
//! message.
//!
//! A copy is a count. The first 8 bytes are kept beside the text as a number, so that most comparisons are one of
//! numbers and look at no other memory.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// A text, at most as long as who makes it allows. Its order is that of its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Text {
    /// The first 8 bytes, most significant first, zeros where there are fewer. Names have no byte 0, so that a name
    /// that begins another comes before it, here as there.
    head: u64,
    all: Arc<str>,
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let mut head = [0; 8];
        for (to, byte) in head.iter_mut().zip(text.bytes()) {
            *to = byte;
        }
        Self { head: u64::from_be_bytes(head), all: text.into() }
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.all.as_ref().to_owned()
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.all
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The head is a shortcut and never another order.
        #[test]
        fn texts_are_ordered_as_their_bytes_are(a in "[a-c.-]{0,12}", b in "[a-c.-]{0,12}") {
            let (one, other) = (Text::from(a.clone()), Text::from(b.clone()));
            prop_assert_eq!(one.cmp(&other), a.cmp(&b));
            prop_assert_eq!(one == other, a == b);
            prop_assert_eq!(String::from(one), a);
        }
    }
}
