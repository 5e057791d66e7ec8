//! The calls for what a person sees of a conversation: append, page, clear, search.

{% block uses %}{% endblock %}
use crate::sagents::{Message, display_items};

impl {{ w.context }} {
    /// Appends an item to what a person sees. Repeating the call with the same message id and item
    /// stores nothing and returns what the first one stored.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation, [`Error::Invalid`] if the
    /// message contradicts itself.
    pub async fn append_display_message(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        message: NewDisplayMessage,
    ) -> Result<DisplayMessage> {
        let mut stored = self.append(scope, conversation_id, vec![message]).await?;
        stored.pop().ok_or(Error::NotFound)
    }

    /// Stores everything that a message shows, in its order: texts, thoughts, tool calls as pending,
    /// and tool results. Repeating the call with the same message id stores nothing twice: items that
    /// are there stay as they are, and items that a message has gained are added.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation, [`Error::Invalid`] if a value is
    /// nested too deeply.
    pub async fn save_message(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        message_id: Uuid,
        message: &Message,
    ) -> Result<Vec<DisplayMessage>> {
        let shown = display_items(message).into_iter().zip(0..);
        let items = shown.map(|(shown, item)| NewDisplayMessage {
            message_id,
            item,
            ..NewDisplayMessage::shown(message.role, shown)
        });
        self.append(scope, conversation_id, items.collect()).await
    }

    /// Appends items of one message. Those that are there already are left as they are.
    async fn append(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        messages: Vec<NewDisplayMessage>,
    ) -> Result<Vec<DisplayMessage>> {
{%- block append_statement %}{% endblock %}
        {{ w.take_owner }}
        let messages = messages.into_iter().map(NewDisplayMessage::checked);
        let messages = messages.collect::<Result<Vec<_>>>()?;
        if messages.is_empty() {
            self.get_conversation(scope, conversation_id).await?;
            return Ok(Vec::new());
        }
        {%- block append %}{% endblock %}
    }

    /// A page of what a person sees, in the order of the conversation.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation.
    pub async fn load_display_messages(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
        page: MessagePage,
    ) -> Result<Vec<DisplayMessage>> {
        // The conversation is on the left, so that one without messages is told from one that is
        // not there.
        const FORWARD: &str = r#"
            SELECT m.* FROM {{ w.conversations }} c
            LEFT JOIN (
                SELECT * FROM {{ w.display_messages }}
                WHERE {{ w.owner_and }}conversation_id = $1 AND sequence > $2
                ORDER BY sequence LIMIT $3
            ) m ON TRUE
            WHERE {{ w.c_owner_and }}c.id = $1
            ORDER BY m.sequence"#;
        const BACKWARD: &str = r#"
            SELECT m.* FROM {{ w.conversations }} c
            LEFT JOIN (
                SELECT * FROM {{ w.display_messages }}
                WHERE {{ w.owner_and }}conversation_id = $1 AND sequence < $2
                ORDER BY sequence DESC LIMIT $3
            ) m ON TRUE
            WHERE {{ w.c_owner_and }}c.id = $1
            ORDER BY m.sequence"#;

        {{ w.take_owner }}
        let (sql, bound) = match page.from {
            MessagePosition::First => (FORWARD, -1),
            MessagePosition::Last => (BACKWARD, i64::MAX),
            MessagePosition::After(sequence) => (FORWARD, sequence),
            MessagePosition::Before(sequence) => (BACKWARD, sequence),
        };
        let rows = sqlx::query(sql){{ w.bind_owner }}
            .bind(conversation_id)
            .bind(bound)
            .bind(i64::from(page.limit.min(MessagePage::MAX_LIMIT)))
            .fetch_all(&self.pool)
            .await?;
        if rows.is_empty() {
            return Err(Error::NotFound);
        }
        let mut messages = Vec::with_capacity(rows.len());
        for row in &rows {
            if row.try_get::<Option<i64>, _>("sequence")?.is_some() {
                messages.push(DisplayMessage::from_row(row)?);
            }
        }
        Ok(messages)
    }

    /// Deletes what a person sees and leaves the conversation and its agent's state. Sequences go
    /// on where they were. Returns how many messages there were.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the caller has no such conversation.
    pub async fn clear_display_messages(
        &self,
        scope: &impl OwnerScope,
        conversation_id: Uuid,
    ) -> Result<u64> {
{%- block clear %}{% endblock %}
    }

    /// The caller's messages that contain a text, in whatever case, newest first. Wildcards
    /// stand for themselves.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the text is too long to search for.
    pub async fn search_messages(
        &self,
        scope: &impl OwnerScope,
        text: &str,
        limit: u32,
    ) -> Result<Vec<DisplayMessage>> {
        const SEARCH: &str = r#"
            SELECT * FROM {{ w.display_messages }}
            WHERE {{ w.owner_and }}content {{ w.dialect.like }} $1 ESCAPE '\' AND content {{ w.dialect.matches }} $2
            ORDER BY inserted_at DESC, conversation_id DESC, sequence DESC LIMIT $3"#;
        // No database takes patterns of any length.
        const LONGEST_PATTERN: usize = 50_000;

        {{ w.take_owner }}
        let text = clean_text(text);
        let (like, exact) = (like_pattern(&text), exact_pattern(&text));
        if like.len().max(exact.len()) > LONGEST_PATTERN {
            return Err(Error::Invalid("the text to search for is too long".into()));
        }
        let found = sqlx::query_as(SEARCH){{ w.bind_owner }}
            .bind(like)
            .bind(exact)
            .bind(i64::from(limit.min(MessagePage::MAX_LIMIT)))
            .fetch_all(&self.pool)
            .await?;
        Ok(found)
    }
}


{% block append_steps %}{% endblock %}

/// A pattern that LIKE finds quickly. It knows the case of ASCII letters only: where another letter
/// has one, anything may stand.
fn like_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        match c {
            '%' | '_' | '\\' => pattern.extend(['\\', c]),
            _ if !c.is_ascii() && cases(c).len() > c.len_utf8() => pattern.push('_'),
            _ => pattern.push(c),
        }
    }
    pattern.push('%');
    pattern
}

{% block pattern %}{% endblock %}

/// A letter with its other case, if that is a single letter too.
fn cases(c: char) -> String {
    let mut cases = String::from(c);
    for other in [c.to_lowercase().to_string(), c.to_uppercase().to_string()] {
        if other.chars().count() == 1 && !cases.contains(&other) {
            cases += &other;
        }
    }
    cases
}
