//! The selection service: a registry that follows discovery, an index that follows the workers' KV events, and one
//! scheduler per partition and stage.
//!
//! Front ends call it through a handle; workers share its [`records`] and [`wire`] types. It owns the tasks
//! and channels around the sans-IO rooms (`kv`, `scheduling`) and decides nothing itself.

pub mod records;
pub mod wire;
