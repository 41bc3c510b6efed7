//! Named tasks and shutdown, HTTP serving, telemetry.
