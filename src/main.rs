fn main() -> std::process::ExitCode {
    sagents_cli::main(std::env::args_os().collect())
}
