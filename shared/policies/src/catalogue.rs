//! Policies by name: the built-in ones, and those that a private build adds. Holds factories, never policies; the
//! configuration's names are looked up here at start.

use crate::{
    Adaptive, SessionSticky, TwoTier, active_requests, additive, direct, least_loaded, power_of_two, product,
    random, round_robin,
};
use std::{collections::BTreeMap, fmt, sync::Arc};
use switchtower_policy::WorkerSelectionPolicyFactory;

/// Longest name of a policy, in bytes; it becomes a metric label.
const NAME_BYTES_MAX: usize = 64;

/// Named factories. Cloning is cheap: clones share the factories.
#[derive(Clone)]
pub struct Catalogue {
    factories: BTreeMap<String, Arc<dyn WorkerSelectionPolicyFactory>>,
}

/// Why a policy cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// The name has no characters.
    #[error("a policy's name is empty: give it one, for example `session-affinity`")]
    EmptyName,
    /// The name holds something else than letters, digits, `-`, `_` and `.`.
    #[error("the policy name {name:?} holds {character:?}: use ASCII letters, digits, `-`, `_` and `.`")]
    BadCharacter {
        /// The name.
        name: String,
        /// The first character that is not allowed.
        character: char,
    },
    /// The name is too long for a label.
    #[error("the policy name {name:?} has {} bytes: use at most {NAME_BYTES_MAX}", name.len())]
    LongName {
        /// The name.
        name: String,
    },
    /// Another policy has the name already.
    #[error("there already is a policy `{name}`: choose another name")]
    Duplicate {
        /// The name.
        name: String,
    },
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name:?}: choose one of {}", known.join(", "))]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
    /// What exists, in alphabetical order.
    pub known: Vec<String>,
}

impl Catalogue {
    /// The built-in policies.
    #[must_use]
    pub fn built_in() -> Self {
        Self {
            factories: BTreeMap::from([
                built_in("active-requests", active_requests),
                built_in("adaptive", Adaptive::default()),
                built_in("additive", additive),
                built_in("direct", direct),
                built_in("least-loaded", least_loaded),
                built_in("power-of-two", power_of_two),
                built_in("product", product),
                built_in("random", random),
                built_in("round-robin", round_robin),
                built_in("session-sticky", SessionSticky::default()),
                built_in("two-tier", TwoTier::default()),
            ]),
        }
    }

    /// The same catalogue with one more policy.
    ///
    /// # Errors
    /// The name is empty, too long, taken, or holds characters other than ASCII letters, digits, `-`, `_` and `.`.
    pub fn with(
        mut self,
        name: impl Into<String>,
        factory: impl WorkerSelectionPolicyFactory,
    ) -> Result<Self, CatalogueError> {
        let name = name.into();
        check(&name)?;
        if self.factories.contains_key(&name) {
            return Err(CatalogueError::Duplicate { name });
        }
        self.factories.insert(name, Arc::new(factory));
        Ok(self)
    }

    /// The factory of the policy `name`.
    ///
    /// # Errors
    /// There is none; the error lists what exists.
    pub fn get(&self, name: &str) -> Result<Arc<dyn WorkerSelectionPolicyFactory>, UnknownPolicy> {
        self.factories.get(name).cloned().ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
            known: self.names().map(str::to_owned).collect(),
        })
    }

    /// Every name, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::built_in()
    }
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

fn built_in(
    name: &str,
    factory: impl WorkerSelectionPolicyFactory,
) -> (String, Arc<dyn WorkerSelectionPolicyFactory>) {
    (name.to_owned(), Arc::new(factory))
}

fn check(name: &str) -> Result<(), CatalogueError> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    if name.is_empty() {
        return Err(CatalogueError::EmptyName);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(CatalogueError::LongName { name: name.to_owned() });
    }
    match name.chars().find(|character| !allowed(*character)) {
        Some(character) => Err(CatalogueError::BadCharacter { name: name.to_owned(), character }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchtower_policy::{KvRouterConfig, RoutingPartitionRef};

    #[test]
    fn built_in_policies_are_found_by_name_and_have_valid_names() {
        let catalogue = Catalogue::built_in();
        let names: Vec<_> = catalogue.names().collect();
        assert_eq!(
            names,
            [
                "active-requests",
                "adaptive",
                "additive",
                "direct",
                "least-loaded",
                "power-of-two",
                "product",
                "random",
                "round-robin",
                "session-sticky",
                "two-tier",
            ]
        );
        for name in names {
            assert_eq!(check(name), Ok(()));
            assert!(catalogue.get(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_defaults_of_the_configuration_exist() {
        let config = KvRouterConfig::default();
        for name in [&config.policy, &config.fallback_policy] {
            assert!(Catalogue::built_in().get(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn an_added_policy_is_built_by_its_own_factory() {
        let catalogue = Catalogue::built_in().with("mine_2.0", random).unwrap();
        let factory = catalogue.clone().get("mine_2.0").unwrap();
        let partition = RoutingPartitionRef::new("model", "default");
        let policy = factory.build(&KvRouterConfig::default(), "prefill", partition);
        assert_eq!(policy.worker_type(), "prefill");
        assert!(format!("{catalogue:?}").contains("mine_2.0"));
    }

    #[test]
    fn names_that_would_not_do_are_refused_with_the_reason() {
        let refused = |name: &str| Catalogue::built_in().with(name, random).unwrap_err();
        assert_eq!(refused(""), CatalogueError::EmptyName);
        assert_eq!(refused("additive"), CatalogueError::Duplicate { name: "additive".to_owned() });
        assert!(refused("a b").to_string().contains("holds ' '"), "{}", refused("a b"));
        assert!(refused("é").to_string().contains("holds 'é'"), "{}", refused("é"));
        assert!(refused(&"x".repeat(65)).to_string().contains("has 65 bytes"));
        assert!(Catalogue::built_in().with("x".repeat(64), random).is_ok());
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_exist() {
        let error = Catalogue::built_in().get("aditive").err().unwrap();
        assert_eq!(error.name, "aditive");
        assert!(error.to_string().contains("choose one of active-requests, adaptive, "), "{error}");
    }
}
