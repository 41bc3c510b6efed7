//! The built-in policies and the catalogue.
