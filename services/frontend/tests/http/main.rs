//! The front end from outside: a real HTTP server on loopback in front of scripted workers, asked by a real client and
//! by raw sockets.

mod admin;
mod disconnects;
mod fake_worker;
mod lifecycle;
mod requests;
mod retries;
mod rig;
mod streaming;
