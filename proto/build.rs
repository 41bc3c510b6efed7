//! Compiles the messages with `protox`, in Rust: a fresh machine needs no `protoc` for them.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["switchtower/v1/bus.proto"];
    println!("cargo::rerun-if-changed=switchtower");
    prost_build::Config::new().bytes(["."]).compile_fds(protox::compile(files, ["."])?)?;
    Ok(())
}
