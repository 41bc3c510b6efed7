//! Why a front end cannot start. Each says what to change.

use std::{io, net::SocketAddr};
use switchtower_models::{EngineConfigError, ModelError};
use switchtower_selection::BuildError;

/// A front end that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] EngineConfigError),
    /// The configuration cannot be shown to operators.
    #[error(transparent)]
    Shown(#[from] switchtower_runtime::config::ConfigError),
    /// A model cannot be loaded; the error names its file.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Loading a model panicked, or the process was already ending.
    #[error("loading the models was cut short; see the log for the reason")]
    Loading,
    /// The selection service cannot be built, for example because there is no policy of the configured name.
    #[error(transparent)]
    Selection(#[from] BuildError),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; free it, or choose another address (port 0 takes a free one)"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
}
