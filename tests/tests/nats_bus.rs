//! The bus on real NATS servers of every version found: the port's contract, outages, authentication, TLS.

#[path = "nats_bus/auth.rs"]
mod auth;
#[path = "nats_bus/buses.rs"]
mod buses;
mod certificates;
#[path = "nats_bus/conformance.rs"]
mod conformance;
#[path = "nats_bus/outages.rs"]
mod outages;
#[path = "nats_bus/tls.rs"]
mod tls;
#[path = "nats_bus/tokens.rs"]
mod tokens;
