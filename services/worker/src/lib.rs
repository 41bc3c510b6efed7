//! The simulated worker: a real HTTP server in front of a simulated engine.
