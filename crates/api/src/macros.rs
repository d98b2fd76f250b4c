//! The two shapes that every type of this crate has: a struct that keeps what it does not know, and an enum that does.

/// A JSON object as Go's `encoding/json` treats it.
///
/// Every field is an `Option`, a `Vec` or a map: absent, `null` and empty read the same and are written as absent. Fields
/// nobody declared here are kept in `extra`, so that an object written by a newer program survives our update of it.
macro_rules! wire_struct {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident { $( $(#[$field_meta:meta])* pub $field:ident : $ty:ty, )* }
    )*) => {$(
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        $(#[$meta])*
        // Derived as functions of the type itself, so that the trait can be the derived reading plus one rule.
        #[serde(rename_all = "camelCase", default, remote = "Self")]
        #[schemars(!remote)]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(deserialize_with = "crate::wire::null_as_default", skip_serializing_if = "crate::wire::is_absent")]
                pub $field: $ty,
            )*
            /// What was there and is not declared above; written back as it was.
            #[serde(flatten)]
            pub extra: crate::wire::Extra,
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Present($name);
                impl<'de> ::serde::Deserialize<'de> for Present {
                    fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        $name::deserialize(deserializer).map(Present)
                    }
                }
                // An object without a spec is legal everywhere upstream, and the kube derive has no way to say so; a type
                // that reads as an option is not missed when it is absent.
                let present = Option::<Present>::deserialize(deserializer)?;
                Ok(present.map(|Present(value)| value).unwrap_or_default())
            }
        }
    )*};
}

/// A set of strings that upstream's schema lists, and that a newer upstream may have added to.
///
/// The first value is the default. The schema lists the known values, reading accepts any.
macro_rules! open_enum {
    ($( $(#[$meta:meta])* pub enum $name:ident { $($body:tt)* } )*) => {$(
        crate::macros::known_strings! { $(#[$meta])* pub enum $name { $($body)* } }
        crate::macros::string_schema!($name, { "type": "string", "enum": $name::KNOWN });
    )*};
}

/// A set of strings that upstream uses but whose schema says only `string`.
macro_rules! free_enum {
    ($( $(#[$meta:meta])* pub enum $name:ident { $($body:tt)* } )*) => {$(
        crate::macros::known_strings! { $(#[$meta])* pub enum $name { $($body)* } }
        crate::macros::string_schema!($name, { "type": "string" });
    )*};
}

/// The schema of a type that is a string in JSON.
macro_rules! string_schema {
    ($name:ident, $schema:tt) => {
        impl ::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!($schema)
            }
        }
    };
}

/// An enum that is a string in JSON, and that can hold a string it does not know.
macro_rules! known_strings {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident { $first:ident = $first_text:literal, $( $variant:ident = $text:literal, )* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            #[default]
            #[doc = concat!("`", $first_text, "`")]
            $first,
            $(
                #[doc = concat!("`", $text, "`")]
                $variant,
            )*
            /// A value this version does not know; kept, so that the object can be written back.
            Other(String),
        }

        impl $name {
            /// The values upstream's schema lists.
            pub const KNOWN: &'static [&'static str] = &[$first_text, $($text,)*];

            /// The value as it stands in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    Self::$first => $first_text,
                    $( Self::$variant => $text, )*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $first_text => Self::$first,
                    $( $text => Self::$variant, )*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as ::serde::Deserialize>::deserialize(deserializer).map(|text| Self::from(text.as_str()))
            }
        }

    )*};
}

pub(crate) use {free_enum, known_strings, open_enum, string_schema, wire_struct};
