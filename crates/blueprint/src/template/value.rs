//! Template values with Go's types, because Go's functions distinguish `int` and `int64`.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::struct_type::StructType;
use super::time::Time;
use super::version::Version;

/// The Go types of parameters and functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Any,
    Bool,
    Int,
    Int64,
    Uint8,
    Float,
    Text,
    Time,
    Version,
    List(Rc<Type>),
    Map(Rc<Type>),
    Struct(&'static StructType),
    Pointer(&'static StructType),
}

impl Type {
    pub(super) fn list(of: Type) -> Self {
        Self::List(Rc::new(of))
    }

    pub(super) fn map(of: Type) -> Self {
        Self::Map(Rc::new(of))
    }

    /// Go's spelling.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Any => "interface {}".into(),
            Self::Bool => "bool".into(),
            Self::Int => "int".into(),
            Self::Int64 => "int64".into(),
            Self::Uint8 => "uint8".into(),
            Self::Float => "float64".into(),
            Self::Text => "string".into(),
            Self::Time => "time.Time".into(),
            Self::Version => "*semver.Version".into(),
            Self::List(of) => format!("[]{}", of.name()),
            Self::Map(of) => format!("map[string]{}", of.name()),
            Self::Struct(shape) => shape.name.into(),
            Self::Pointer(shape) => format!("*{}", shape.name),
        }
    }

    /// Go's kind of the type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Any => "interface",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int64 => "int64",
            Self::Uint8 => "uint8",
            Self::Float => "float64",
            Self::Text => "string",
            Self::Time | Self::Struct(_) => "struct",
            Self::Version | Self::Pointer(_) => "ptr",
            Self::List(_) => "slice",
            Self::Map(_) => "map",
        }
    }

    /// The zero value of the type.
    pub(super) fn zero(&self) -> Value {
        match self {
            Self::Any | Self::Time | Self::Version => Value::Nil,
            Self::Bool => Value::Bool(false),
            Self::Int | Self::Int64 | Self::Uint8 => Value::Int(0, self.width()),
            Self::Float => Value::Float(0.0),
            Self::Text => Value::text(""),
            Self::List(of) if **of == Type::Uint8 => Value::Bytes(Rc::from(&b""[..])),
            Self::List(of) => Value::List(List { of: Rc::clone(of), items: Rc::new(Vec::new()), depth: 1 }),
            Self::Map(of) => Value::Map(Map::empty((**of).clone())),
            Self::Struct(shape) => {
                let fields = shape.fields.iter().map(|field| field.holds.as_type().zero()).collect();
                Value::Struct(Struct { shape, fields: Rc::new(fields), pointer: false })
            }
            Self::Pointer(shape) => Value::NilPointer(shape),
        }
    }

    fn width(&self) -> Width {
        match self {
            Self::Int64 => Width::Int64,
            Self::Uint8 => Width::Uint8,
            _ => Width::Int,
        }
    }
}

/// Which integer type of Go a number has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Int,
    Int64,
    Uint8,
}

/// An immutable list.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) of: Rc<Type>,
    pub(super) items: Rc<Vec<Value>>,
    /// Maximum nesting, which is the recursion depth of a drop.
    pub(super) depth: usize,
}

/// A mutable map: sprig's functions modify it in place.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) of: Rc<Type>,
    entries: Rc<RefCell<BTreeMap<Rc<str>, Value>>>,
}

impl Map {
    pub(super) fn empty(of: Type) -> Self {
        Self { of: Rc::new(of), entries: Rc::default() }
    }

    pub(super) fn entries(&self) -> Ref<'_, BTreeMap<Rc<str>, Value>> {
        self.entries.borrow()
    }

    pub(super) fn get(&self, key: &str) -> Option<Value> {
        self.entries.borrow().get(key).cloned()
    }

    pub(super) fn insert(&self, key: &str, value: Value) {
        self.entries.borrow_mut().insert(Rc::from(key), value);
    }

    pub(super) fn remove(&self, key: &str) {
        self.entries.borrow_mut().remove(key);
    }

    /// Whether both are the same map by identity.
    pub(super) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.entries, &other.entries)
    }

    /// Removes all entries: maps that contain themselves would never be freed.
    pub(super) fn clear(&self) {
        drop(self.entries.take());
    }
}

/// A struct of Kanister or Kubernetes.
#[derive(Clone, Debug)]
pub(super) struct Struct {
    pub(super) shape: &'static StructType,
    /// One value for each field of the type.
    pub(super) fields: Rc<Vec<Value>>,
    /// Whether it is a pointer in Go.
    pub(super) pointer: bool,
}

/// A template value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Nil,
    NilPointer(&'static StructType),
    Bool(bool),
    Int(i64, Width),
    Float(f64),
    /// A string: bytes, because Go's functions may split characters.
    Text(Rc<[u8]>),
    Bytes(Rc<[u8]>),
    List(List),
    Map(Map),
    Struct(Struct),
    Time(Time),
    Version(Rc<Version>),
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(Rc::from(text.as_bytes()))
    }

    pub(super) fn int(number: i64) -> Self {
        Self::Int(number, Width::Int)
    }

    pub(super) fn int64(number: i64) -> Self {
        Self::Int(number, Width::Int64)
    }

    /// The type; `None` for nil.
    pub(super) fn type_of(&self) -> Option<Type> {
        Some(match self {
            Self::Nil => return None,
            Self::NilPointer(shape) => Type::Pointer(shape),
            Self::Bool(_) => Type::Bool,
            Self::Int(_, Width::Int) => Type::Int,
            Self::Int(_, Width::Int64) => Type::Int64,
            Self::Int(_, Width::Uint8) => Type::Uint8,
            Self::Float(_) => Type::Float,
            Self::Text(_) => Type::Text,
            Self::Bytes(_) => Type::list(Type::Uint8),
            Self::List(list) => Type::List(Rc::clone(&list.of)),
            Self::Map(map) => Type::Map(Rc::clone(&map.of)),
            Self::Struct(found) if found.pointer => Type::Pointer(found.shape),
            Self::Struct(found) => Type::Struct(found.shape),
            Self::Time(_) => Type::Time,
            Self::Version(_) => Type::Version,
        })
    }

    /// The type's name, as messages of Go have it.
    pub(super) fn type_name(&self) -> String {
        self.type_of().map_or_else(|| "<nil>".into(), |found| found.name())
    }

    /// Go's truth value.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Nil | Self::NilPointer(_) => false,
            Self::Bool(flag) => *flag,
            Self::Int(number, _) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(bytes) | Self::Bytes(bytes) => !bytes.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Map(map) => !map.entries().is_empty(),
            Self::Struct(_) | Self::Time(_) | Self::Version(_) => true,
        }
    }

    /// The elements, if it is a list; bytes are numbers then.
    pub(super) fn elements(&self) -> Option<Vec<Value>> {
        match self {
            Self::List(list) => Some(list.items.to_vec()),
            Self::Bytes(bytes) => Some(bytes.iter().map(|byte| Value::Int(i64::from(*byte), Width::Uint8)).collect()),
            _ => None,
        }
    }

    /// The approximate cost of processing the whole value, without inspecting it.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Text(bytes) | Self::Bytes(bytes) => bytes.len() / 64,
            Self::List(list) => list.items.len(),
            Self::Map(map) => map.entries().len(),
            _ => 0,
        }
    }
}
