//! EventBus on NATS.
