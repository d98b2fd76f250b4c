//! Every text that the command line prints on its own account, as lists that a reviewer can read: the help of all commands and
//! the errors of wrong input. After a change run `cargo insta review`, or the tests with `INSTA_UPDATE=always`.

mod errors;
mod help;
