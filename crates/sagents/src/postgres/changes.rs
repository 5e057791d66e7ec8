//! The statements that read what changed.

use crate::statement::statements;

statements! {
    pub(super) struct Changes {
        last: "
            SELECT last_change, last_removal FROM {conversations}
            WHERE {owner} = $1::{owner_type} AND id = $2::uuid",
        /// The index has only numbers from 0 on, which the condition has to say.
        behind: "
            SELECT {display_message_columns} FROM {display_messages}
            WHERE {owner} = $1::{owner_type} AND conversation_id = $2::uuid
              AND changed > $3::bigint AND changed >= 0
            ORDER BY changed, sequence LIMIT $4::bigint",
    }
}
