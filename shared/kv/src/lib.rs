//! Block hashing, the KV event log and the prefix index.
