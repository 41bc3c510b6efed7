//! Compiles the messages with `protox`, in Rust: a fresh machine needs no `protoc` for them.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["switchtower/v1/kv.proto", "switchtower/v1/load.proto"];
    println!("cargo::rerun-if-changed=switchtower");
    prost_build::Config::new().compile_fds(protox::compile(files, ["."])?)?;
    Ok(())
}
