use sea_orm_migration::prelude::*;
use sea_orm_migration::sea_orm::TransactionTrait as _;

/// Made by `sagents`, which adds another migration when the tables change.
#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let transaction = manager.get_connection().begin().await?;
        transaction.execute_unprepared(UP).await?;
        transaction.commit().await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let transaction = manager.get_connection().begin().await?;
        transaction.execute_unprepared(DOWN).await?;
        transaction.commit().await
    }
}

const UP: &str = r{{ hashes }}"
{{ up }}"{{ hashes }};

const DOWN: &str = r{{ hashes }}"
{{ down }}"{{ hashes }};
