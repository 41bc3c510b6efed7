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
//! | [`adaptive`](Adaptive) | booked prefill tokens + uncached tokens × a weight that grows with the fleet's load + a share of what the row was given beyond the others |
//! | [`additive`](additive()) | prefill blocks less the credit for overlap, plus decode blocks, plus weighted requests |
//! | [`product`](product()) | (uncached tokens + 1) × prefill tokens booked on the row, this prompt included |
//! | [`least-loaded`](least_loaded()) | prefill blocks + decode blocks, blind to the cache |
//! | [`power-of-two`](power_of_two()) | as `least-loaded`; two rows are drawn, the cheaper one is picked |
//! | [`two-tier`](TwoTier) | requests on the row; rows with less overlap than the best cost more than all others while the overlap is worth it and the fleet is balanced |
//! | [`session-sticky`](SessionSticky) | as `least-loaded`, for the first request of a session; the others follow it |
//! | [`direct`](direct()) | as `least-loaded`, among the ranks of the worker that the request is pinned to |
//! | [`round-robin`](round_robin()) | none: the rows take turns |
//! | [`random`](random()) | none: every row is as likely |
//!
//! Costs are multiplied by the row's preferred-taint multiplier. Rows of equal cost are equally likely to be picked,
//! and [`KvRouterConfig::router_temperature`](switchtower_policy::KvRouterConfig::router_temperature) softens the
//! pick of every policy that has a cost.

mod active_requests;
mod adaptive;
mod additive;
mod catalogue;
mod direct;
mod generator;
mod least_loaded;
mod picker;
mod power_of_two;
mod product;
mod random;
mod round_robin;
mod session_sticky;
mod signals;
mod two_tier;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use active_requests::active_requests;
pub use adaptive::Adaptive;
pub use additive::additive;
pub use catalogue::{Catalogue, CatalogueError, UnknownPolicy};
pub use direct::direct;
pub use generator::Generator;
pub use least_loaded::least_loaded;
pub use picker::{LowestCostPicker, SoftmaxPicker, cheapest_by, cost_picker};
pub use power_of_two::power_of_two;
pub use product::product;
pub use random::random;
pub use round_robin::round_robin;
pub use session_sticky::SessionSticky;
pub use two_tier::TwoTier;
