//! The ports Discovery and EventBus, their in-memory implementations and conformance suites.
