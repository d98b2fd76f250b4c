//! Types of every custom resource Plimsoll reads or writes, their defaults and their validation.
