#[rustfmt::skip]
#[tokio::test]
#[allow(clippy::items_after_statements, clippy::unused_async, clippy::wildcard_imports, unused_imports, unused_variables)]
async fn example_0() -> Result<(), Box<dyn std::error::Error>> {
    use matrix::conversations::*;
    use matrix::sagents::*;

    let db = Database::new().await;
    let (conversations, scope) = (db.layer.clone(), scope());
    // {{ example }}
    Ok(())
}

