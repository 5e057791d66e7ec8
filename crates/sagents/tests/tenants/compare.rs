//! Compares everything that there is to see.

use sagents::{
    ChangeCursor, ConversationOrder, Cursor, ListConversations, MessagePage, MessagePosition, OwnerScope, Page,
    SearchPage, Timestamp,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::model::{Model, Tokens, tokens, usage_seen};
use super::seen::{FOUND, Seen, keys, page, rows, sorted};
use super::world::World;
use super::{CONVERSATIONS, OWNERS};

impl World {
    /// Everything that anyone can see is what the model has.
    pub async fn compare(&self, model: &Model, number: usize) {
        for owner in 0..OWNERS {
            self.compare_owner(model, owner, &self.ids, number).await;
        }
        for group in 0..self.owners.groups {
            let id = self.ids[(number + group) % CONVERSATIONS];
            self.compare_group(model, group, id).await;
        }
    }

    /// What an owner sees of these conversations, and of all together.
    pub async fn compare_owner(&self, model: &Model, owner: usize, ids: &[Uuid], number: usize) {
        for archived in [false, true] {
            let list = ListConversations::new().archived(archived);
            let list = self.context.list_conversations(&self.owners.scope(owner), list).await;
            let expected = model.list(owner, ConversationOrder::Updated, archived, None);
            assert_eq!(rows(list), page(expected, 50), "owner {owner} after step {number}");
        }
        let between = self.usage_between(&self.owners.scope(owner)).await;
        let expected = model.usage(owner);
        assert_eq!(between, expected, "owner {owner} after step {number}");
        for &id in ids {
            let usage = self.context.usage(&self.owners.scope(owner), id).await;
            let expected = model.read((self.owners.space(owner), id), |talk| Ok(tokens(talk.tokens())));
            let usage = usage.map(|usage| usage_seen(&usage));
            assert_eq!(rows(usage), expected, "owner {owner} after step {number}");
            let page = MessagePage::first();
            let messages = self.context.load_display_messages(&self.owners.scope(owner), id, page).await;
            let expected =
                model.read((self.owners.space(owner), id), |talk| talk.page(id, MessagePosition::First, 100));
            assert_eq!(rows(messages), expected, "owner {owner} after step {number}");
            // All pages of two changes.
            let (mut cursor, mut changes) = (ChangeCursor::START, Ok(Vec::new()));
            while let Ok(seen) = &mut changes {
                match self.context.changes(&self.owners.scope(owner), id, cursor, 2).await {
                    Ok(read) => {
                        seen.extend(read.items);
                        cursor = read.next;
                        if !read.more {
                            break;
                        }
                    }
                    Err(error) => changes = Err(error),
                }
            }
            let expected = model.read((self.owners.space(owner), id), |talk| {
                let mut items: Vec<_> = talk.items.iter().collect();
                items.sort_by_key(|item| (item.changed, item.sequence));
                let rows: Vec<_> = items.iter().map(|item| item.row(id)).collect();
                Ok(json!(rows))
            });
            let changes = changes.map(|rows| rows.iter().map(Seen::seen).collect::<Vec<_>>());
            assert_eq!(rows(changes.map(Value::Array)), expected, "owner {owner} after step {number}");
        }
    }

    /// A group sees of a conversation what its owner sees, if that is a member, and nothing else.
    pub async fn compare_group(&self, model: &Model, number: usize, id: Uuid) {
        let (caller, order) = (self.owners.group(number), ConversationOrder::Updated);
        // All pages together.
        let request = ListConversations::new().order_by(order).limit(2);
        let mut request = request;
        let mut all = Vec::new();
        loop {
            let list = self.context.list_conversations(&caller, request).await;
            let Page { items, next } = list.unwrap();
            all.extend(items);
            let Some(next) = next else { break };
            request = request.after(next);
        }
        let all = Page { items: all, next: None };
        let expected = model.list_of_group(number, (order, false), 100, None);
        let keys = keys(order);
        let (all, expected) = (sorted(Ok(all.seen()), keys), sorted(expected, keys));
        assert_eq!(all, expected, "group {number}");
        let counted = model.members(number).map(|owner| model.usage(owner));
        let expected = counted.fold((0, 0, 0), |sum, new| (sum.0 + new.0, sum.1 + new.1, sum.2 + new.2));
        assert_eq!(self.usage_between(&caller).await, expected, "group {number}");
        // Every text contains nothing.
        let page = SearchPage::first().limit(SearchPage::MAX_LIMIT);
        let found = self.context.search_messages(&caller, "", page).await;
        let expected = model.search_of_group(number, "", 100);
        let (found, expected) = (sorted(rows(found), FOUND), sorted(expected, FOUND));
        assert_eq!(found, expected, "group {number}");
        let expected = match model.owner_in_group(number, id) {
            Ok(owner) => self.seen(&self.owners.scope(owner), id).await,
            Err("ambiguous") => ["Err(Ambiguous)"; 10].map(str::to_owned),
            Err(_) => ["Err(NotFound)"; 10].map(str::to_owned),
        };
        assert_eq!(self.seen(&caller, id).await, expected, "group {number}");
        let runs = self.context.unfinished_runs(&caller).await.unwrap();
        let mut runs: Vec<_> = runs.iter().map(|run| (run.conversation_id, run.id)).collect();
        let members = model.members(number).flat_map(|owner| model.of(owner));
        let expected = members.filter_map(|(id, talk)| Some((id, self.messages[talk.run?])));
        let mut expected: Vec<_> = expected.collect();
        runs.sort();
        expected.sort();
        assert_eq!(runs, expected, "group {number}");
    }

    /// Behind the conversation of any owner.
    pub async fn cursor(&self, model: &Model, id: Uuid, order: ConversationOrder) -> Option<Cursor> {
        let (owner, _) = model.talks.keys().find(|(_, other)| *other == id)?;
        let row = self.context.get_conversation(&self.owners.scope(*owner), id).await;
        let (list, row) = (ListConversations::new().order_by(order), row.unwrap());
        Some(list.cursor(row.updated_at, row.id))
    }

    /// Everything that there is to see of a conversation.
    pub async fn seen(&self, scope: &impl OwnerScope, id: Uuid) -> [String; 10] {
        let (context, page) = (&self.context, MessagePage::last());
        let unreadable = context.list_unreadable_states(scope, id).await;
        let epoch = unreadable.as_ref().ok().and_then(|states| states.first());
        let epoch = epoch.map_or(0, |state| state.epoch);
        [
            format!("{:?}", context.get_conversation(scope, id).await),
            format!("{:?}", context.load_display_messages(scope, id, page).await),
            format!("{:?}", context.load_agent_state(scope, id).await),
            format!("{:?}", context.load_todos(scope, id).await),
            format!("{unreadable:?}"),
            format!("{:?}", context.load_unreadable_state(scope, id, epoch).await),
            format!("{:?}", context.changes(scope, id, ChangeCursor::START, 1000).await),
            format!("{:?}", context.get_run(scope, id).await),
            format!("{:?}", context.usage(scope, id).await),
            format!("{:?}", context.export_conversation(scope, id).await),
        ]
    }

    /// Of all times.
    pub async fn usage_between(&self, scope: &impl OwnerScope) -> Tokens {
        let (from, to) = (Timestamp::MIN, Timestamp::MAX);
        let usage = self.context.usage(scope, from..to).await.unwrap();
        let messages = usage.models.iter().map(|model| model.messages).sum();
        (messages, usage.total().input, usage.total().output)
    }
}
