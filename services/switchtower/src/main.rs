//! The stock `switchtower` command: the built-in policies and nothing else.

fn main() -> std::process::ExitCode {
    switchtower::Command::new().run()
}
