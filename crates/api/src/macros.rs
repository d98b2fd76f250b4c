//! Macros for the types of this crate: structs that preserve unknown fields and enums that preserve unknown values.

/// A JSON object as Go's `encoding/json` treats it.
///
/// Every field is an `Option`, a `Vec` or a map: absent, `null` and empty read the same and are written as absent. Unknown
/// fields are kept in `extra`, so that an update does not drop what a newer program wrote.
macro_rules! wire_struct {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident { $( $(#[$field_meta:meta])* pub $field:ident : $ty:ty, )* }
    )*) => {$(
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        $(#[$meta])*
        // Derived as functions of the type itself: the trait implementation below adds one rule to the derived one.
        #[serde(rename_all = "camelCase", default, remote = "Self")]
        #[schemars(!remote)]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(deserialize_with = "crate::wire::null_as_default", skip_serializing_if = "crate::wire::is_absent")]
                pub $field: $ty,
            )*
            /// Unknown fields, written back unchanged.
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
                // An object without a spec is valid upstream, and the kube derive cannot express that; serde accepts the
                // absence of a field whose type deserializes as an option.
                let present = Option::<Present>::deserialize(deserializer)?;
                Ok(present.map(|Present(value)| value).unwrap_or_default())
            }
        }
    )*};
}

/// An enum whose values the upstream schema lists, and which a newer upstream may extend.
///
/// The first value is the default. The schema lists the known values; deserialization accepts any.
macro_rules! open_enum {
    ($( $(#[$meta:meta])* pub enum $name:ident { $($body:tt)* } )*) => {$(
        crate::macros::known_strings! { $(#[$meta])* pub enum $name { $($body)* } }
        crate::macros::string_schema!($name, { "type": "string", "enum": $name::KNOWN });
    )*};
}

/// An enum whose upstream schema is plain `string`.
macro_rules! string_enum {
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

/// An enum that is a string in JSON and preserves unknown values.
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
            /// A value unknown to this version, written back unchanged.
            Other(String),
        }

        impl $name {
            /// The values of the upstream schema.
            pub const KNOWN: &'static [&'static str] = &[$first_text, $($text,)*];

            /// The value in JSON.
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

pub(crate) use {known_strings, open_enum, string_enum, string_schema, wire_struct};
