//! The calls for the tokens that messages cost.
//!
//! A message is counted by the statement that stores it, once, from its metadata; see
//! [`usage_of`](crate::sagents::usage_of). What was counted stays when messages are deleted, and goes
//! with the conversation. Messages that were stored by a version of this code that did not count are
//! counted when they are next written.

use tracing::instrument;
use uuid::Uuid;

use super::{{ '{' }}{{ context }}, OwnerScope, Result};
use crate::sagents::{ModelUsage, Timestamp, TokenUsage, Usage};

impl {{ context }} {
    /// What the messages of a conversation cost, by model, also those that are deleted.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`](super::Error::NotFound) if the scope reaches no such conversation.
    #[instrument(level = "debug", skip_all, fields(%conversation_id))]
    pub async fn usage(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        conversation_id: Uuid,
    ) -> Result<Usage> {
        let reach = scope.reach()?;
        self.store.usage(&reach, conversation_id).await
    }

    /// What the messages that the scope reaches cost, by model, if they were stored at `from` or later
    /// and before `to`.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](super::Error::Database) if the database fails.
    #[instrument(level = "debug", skip_all)]
    pub async fn usage_between(
        &self,
        scope: &(impl OwnerScope + ?Sized),
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Usage> {
        let reach = scope.reach()?;
        self.store.usage_between(&reach, from, to).await
    }
}

/// Model, messages, input, output and cached tokens; only `None` if a left join found nothing.
type Sums = (Option<String>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

pub(super) fn usage(sums: Vec<Sums>) -> Usage {
    let mut models: Vec<_> = sums
        .into_iter()
        .filter_map(|(model, messages, input, output, cached)| {
            Some(ModelUsage {
                model,
                messages: messages?,
                tokens: TokenUsage {
                    input: input?,
                    output: output?,
                    cached: cached?,
                },
            })
        })
        .collect();
    // Databases sort texts in several ways.
    models.sort_by(|one, other| one.model.cmp(&other.model));
    Usage { models }
}
