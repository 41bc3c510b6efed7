//! The switchtower command and the library a custom binary calls.
