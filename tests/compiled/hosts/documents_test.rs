#[tokio::test]
async fn works() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (conversations, scope, chat) = super::start().await?;
// {{ statements }}
    Ok(())
}
