//! The whole `switchtower` command with one policy more, `session-affinity`. Wiring only: the policy is in the
//! library, the rest in `switchtower`. Operators run it in place of the stock binary.

use switchtower_custom_policy_example::session_affinity_policy;

fn main() -> std::process::ExitCode {
    switchtower::Command::new().policy("session-affinity", session_affinity_policy).run()
}
