//! Enums whose variants have a name, on the command line, in orders and in records.

/// What a wrong name is answered with: the right ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {kind} '{name}'; the {kind}s are {right}")]
pub struct Unknown {
    kind: &'static str,
    name: String,
    right: String,
}

impl Unknown {
    /// There is no `kind` of this name; these are `right`.
    pub fn new(kind: &'static str, name: &str, right: &[&str]) -> Unknown {
        Unknown { kind, name: name.to_owned(), right: list(right) }
    }
}

/// Each of them once, in the order in which they come first.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

/// `a, b and c`.
pub fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Declares an enum with the name of each variant: `ALL`, `name`, `Display`, `FromStr`, serde.
#[macro_export]
macro_rules! named {
    (
        $(#[$about:meta])* pub enum $type:ident as $kind:literal {
            $($(#[$each:meta])* $variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub enum $type {
            $($(#[$each])* #[serde(rename = $name)] $variant,)+
        }

        impl $type {
            /// All of them, in the order in which reports show them.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            /// The name on the command line, in orders and in records.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::named::Unknown;

            fn from_str(name: &str) -> Result<$type, $crate::named::Unknown> {
                let found = $type::ALL.into_iter().find(|one| one.name() == name);
                found.ok_or_else(|| $crate::named::Unknown::new($kind, name, &[$($name),+]))
            }
        }
    };
}
