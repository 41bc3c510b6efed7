//! The built-in policies and the catalogue that finds a policy by name.
//!
//! Each policy is also an example of `switchtower-policy`'s public API, the only thing it uses: a factory, a scorer
//! that gives every row a cost, a picker. Nothing here has a clock, IO, an environment or randomness of its own: the
//! [`Generator`] that breaks ties is seeded from the configuration. The scheduler runs the policies, the
//! configuration names them, and private builds add theirs to the [`Catalogue`].
//!
//! | name | cost of a row, lower is better |
//! |---|---|
//! | [`active-requests`](active_requests()) | requests on the row, this one included |
//! | [`additive`](additive()) | prefill blocks less the credit for overlap, plus decode blocks, plus weighted requests |
//! | [`product`](product()) | (uncached tokens + 1) × prefill tokens booked on the row, this prompt included |
//! | [`least-loaded`](least_loaded()) | prefill blocks + decode blocks, blind to the cache |
//! | [`round-robin`](round_robin()) | none: the rows take turns |
//! | [`random`](random()) | none: every row is as likely |
//!
//! Costs are multiplied by the row's preferred-taint multiplier. Rows of equal cost are equally likely to be picked,
//! and [`KvRouterConfig::router_temperature`](switchtower_policy::KvRouterConfig::router_temperature) softens the
//! pick of every policy that has a cost.

mod active_requests;
mod additive;
mod catalogue;
mod generator;
mod least_loaded;
mod picker;
mod product;
mod random;
mod round_robin;
mod signals;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use active_requests::active_requests;
pub use additive::additive;
pub use catalogue::{Catalogue, CatalogueError, UnknownPolicy};
pub use generator::Generator;
pub use least_loaded::least_loaded;
pub use picker::{LowestCostPicker, SoftmaxPicker, cheapest_by, cost_picker};
pub use product::product;
pub use random::random;
pub use round_robin::round_robin;
