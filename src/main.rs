fn main() -> std::process::ExitCode {
    sagents::main(std::env::args_os().collect())
}
