//! Values as templates see them: Go's, with their types, because Go's functions tell `int` from `int64`.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::shape::Shape;
use super::time::Time;
use super::version::Version;

/// A type of Go, as far as a blueprint's parameters and functions have it.
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
    Struct(&'static Shape),
    Pointer(&'static Shape),
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

    /// Go's word for the family of the type.
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

    /// What a variable of this type holds before anything is put into it.
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

/// A list, which never changes.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) of: Rc<Type>,
    pub(super) items: Rc<Vec<Value>>,
    /// How many lists are in each other, at most: dropping one goes down that far.
    pub(super) depth: usize,
}

/// A map, which sprig's functions change in place.
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

    /// Whether both are the same map, not only equal.
    pub(super) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.entries, &other.entries)
    }

    /// Takes everything out: maps may hold themselves, and would never be freed.
    pub(super) fn clear(&self) {
        drop(self.entries.take());
    }
}

/// A structure of Kanister or Kubernetes.
#[derive(Clone, Debug)]
pub(super) struct Struct {
    pub(super) shape: &'static Shape,
    /// One for each field of the shape.
    pub(super) fields: Rc<Vec<Value>>,
    /// Whether Go has it behind a pointer.
    pub(super) pointer: bool,
}

/// Anything a template can hold.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Nil,
    NilPointer(&'static Shape),
    Bool(bool),
    Int(i64, Width),
    Float(f64),
    /// A string: bytes, because Go's functions cut in the middle of characters.
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

    /// The type of what is there; nothing has none.
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

    /// Whether `if` takes it for true.
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

    /// How much a call that looks at all of it has to do, roughly and without looking inside.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Text(bytes) | Self::Bytes(bytes) => bytes.len() / 64,
            Self::List(list) => list.items.len(),
            Self::Map(map) => map.entries().len(),
            _ => 0,
        }
    }
}
