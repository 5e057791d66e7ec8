//! What is around the code: the crates that the host has for the same things, its workspace, and git.

use crate::support::{Host, manifest};

const PLAIN: &str = "gen persistence conversations -s accounts::Scope";

fn depending(dependencies: &str) -> Host {
    let dependencies = format!("\n[dependencies]\n{dependencies}\n");
    Host::library().file("Cargo.toml", &manifest("my_app", "2024", &dependencies))
}

#[test]
fn the_time_crate_is_the_one_that_sqlx_is_used_with() {
    let host = depending("sqlx = { version = \"0.8\", features = [\"sqlite\", \"time\"] }");
    host.generate(PLAIN);
    assert!(host.read("src/sagents/timestamp.rs").contains("pub type Timestamp = OffsetDateTime;"));
    let dependencies = host.read("Cargo.toml");
    assert!(dependencies.contains("\ntime = { version = \"0.3.36\", features = [\"formatting\", \"parsing\"] }\n"));
    assert!(!dependencies.contains("chrono"), "{dependencies}");
    assert!(host.generate("list").stdout.contains("time crate    time\n"));

    // It stays when the host takes up the other one, and a second context shares it.
    host.write("Cargo.toml", &dependencies.replace("\"time\", ", "\"time\", \"chrono\", "));
    assert!(host.generate("update").stdout.starts_with("Up to date: "));
    host.generate("gen persistence chats -s accounts::Scope --table-prefix chat_");
    assert_eq!(host.sagents("check").code, 0);
    assert!(host.read("src/sagents/timestamp.rs").contains("OffsetDateTime"));

    // Once the host uses nothing else, so does the code.
    host.write("Cargo.toml", &host.read("Cargo.toml").replace("\"time\", \"chrono\", ", "\"chrono\", "));
    host.generate("update");
    assert!(host.read("src/sagents/timestamp.rs").contains("pub type Timestamp = DateTime<Utc>;"));
    assert!(host.read("Cargo.toml").contains("\nchrono = "));
    assert_eq!(host.sagents("check").code, 0);
}

#[test]
fn where_sqlx_is_used_with_both_time_crates_or_none_it_is_chrono() {
    for features in ["\"sqlite\"", "\"chrono\", \"sqlite\"", "\"chrono\", \"sqlite\", \"time\""] {
        let host = depending(&format!("sqlx = {{ version = \"0.8\", features = [{features}] }}"));
        host.unformatted(&PLAIN.split(' ').collect::<Vec<_>>());
        assert!(host.read("src/sagents/timestamp.rs").contains("DateTime<Utc>"), "{features}");
    }
}
