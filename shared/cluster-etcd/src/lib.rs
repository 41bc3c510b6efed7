//! Discovery on etcd.
