//! `cargo sagents …`: cargo passes the name of the subcommand as the first argument.

fn main() -> std::process::ExitCode {
    let mut args: Vec<_> = std::env::args_os().collect();
    if args.get(1).is_some_and(|arg| arg == "sagents") {
        args.remove(1);
    }
    sagents_cli::main(args)
}
