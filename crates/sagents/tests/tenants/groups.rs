//! Calls of groups, which change nothing.

use super::support::context::NewConversation;
use sagents::{
    ConversationChanges, Expect, Fork, ListConversations, MessagePage, Point, RunStatus, RunUpdate, SearchPage,
};
use serde_json::json;

use super::LEASE;
use super::model::{Answer, INVALID, Model, NO_OWNER};
use super::seen::{FOUND, keys, result, rows, sorted, state};
use super::steps::{Call, Step, is_valid};
use super::talk::Talk;
use super::world::{World, change_tool};

impl World {
    /// Makes a call as a group. It changes nothing, so neither does the model.
    #[allow(clippy::too_many_lines, reason = "one arm for each call")]
    pub async fn make_by_group(&self, step: &Step, model: &Model) -> (Answer, Answer) {
        let context = &self.context;
        let scope = &self.owners.group(step.group);
        let id = self.ids[step.conversation];
        let owner = model.owner_in_group(step.group, id);
        let read = |answer: &dyn Fn(&Talk) -> Answer| match owner {
            Ok(owner) => model.read((owner, id), |talk| answer(talk)),
            Err(error) => Err(error),
        };
        match step.call.clone() {
            Call::Get => {
                let answer = context.get_conversation(scope, id).await;
                (rows(answer), read(&|talk| Ok(talk.row(id))))
            }
            Call::List(order_by, archived, limit, after) => {
                let spot = model.spot(id).filter(|_| after);
                let list = ListConversations {
                    order_by,
                    archived,
                    limit,
                    after: self.cursor(model, id, order_by).await.filter(|_| after),
                };
                let answer = context.list_conversations(scope, list).await;
                let kind = (order_by, archived);
                let expected = model.list_of_group(step.group, kind, limit, spot);
                let keys = keys(order_by);
                (sorted(rows(answer), keys), sorted(expected, keys))
            }
            Call::Load(from, limit) => {
                let page = MessagePage { from, limit };
                let answer = context.load_display_messages(scope, id, page).await;
                let expected = if is_valid(limit) { read(&|talk| talk.page(id, from, limit)) } else { INVALID };
                (rows(answer), expected)
            }
            Call::Search(text, limit) => {
                let page = SearchPage::first().limit(limit);
                let answer = context.search_messages(scope, &text, page).await;
                let expected = model.search_of_group(step.group, &text, limit);
                (sorted(rows(answer), FOUND), sorted(expected, FOUND))
            }
            Call::GetTool(call_id) => {
                let answer = context.get_tool_call(scope, id, &call_id).await;
                let expected = read(&|talk| talk.call(id, &call_id));
                (rows(answer), expected)
            }
            Call::Create(title, metadata) => {
                let new = NewConversation { id, title, metadata };
                (rows(context.create_conversation(scope, new).await), NO_OWNER)
            }
            Call::Update(title, metadata) => {
                let changes = ConversationChanges { title, metadata, archived: None };
                let answer = context.update_conversation(scope, id, changes).await;
                (rows(answer), NO_OWNER)
            }
            Call::Delete => (rows(context.delete_conversation(scope, id).await), NO_OWNER),
            Call::Archive(is_archived) => {
                let changes = ConversationChanges::default().archived(is_archived);
                let answer = context.update_conversation(scope, id, changes).await;
                (rows(answer), NO_OWNER)
            }
            Call::Append(draft) => {
                let new = draft.message(&self.messages);
                let answer = context.append_display_message(scope, id, new).await;
                (rows(answer), NO_OWNER)
            }
            Call::Clear => (rows(context.clear_display_messages(scope, id).await), NO_OWNER),
            Call::Rewind(message) => {
                let to = Point::Before(self.messages[message]);
                let answer = context.rewind_conversation(scope, id, to).await;
                (rows(answer.map(|rewound| json!(rewound.removed))), NO_OWNER)
            }
            Call::Fork(other) => {
                let fork = Fork::new().id(self.ids[other]);
                let answer = context.fork_conversation(scope, id, fork).await;
                (rows(answer.map(|forked| forked.conversation)), NO_OWNER)
            }
            Call::Import(from, other) => {
                let answer = self.import(scope, from, id, self.ids[other]).await;
                (rows(answer), model.read((self.owners.space(from), id), |_| NO_OWNER))
            }
            Call::ChangeTool(call_id, status, metadata) => {
                let answer = change_tool(context, scope, id, &call_id, status, &metadata).await;
                (rows(answer), NO_OWNER)
            }
            Call::Resolve(call_id, text, is_error) => {
                let result = result(&call_id, &text, is_error);
                let answer = context.resolve_tool_result(scope, id, &result);
                (rows(answer.await), NO_OWNER)
            }
            Call::Claim(call_id, claim) => {
                let answer = context.claim_tool_call(scope, id, &call_id, self.messages[claim]);
                (rows(answer.await), NO_OWNER)
            }
            Call::Judge(call_id, decision, claim) => {
                let claim = self.messages[claim];
                let answer = context.decide_tool_call(scope, id, &call_id, &decision, claim);
                (rows(answer.await), NO_OWNER)
            }
            Call::Begin(run) => {
                let answer = context.begin_run(scope, id, self.messages[run], "here", LEASE);
                (rows(answer.await), NO_OWNER)
            }
            Call::End(run) => {
                let answer = context.update_run(scope, id, self.messages[run], RunUpdate::End(RunStatus::Finished));
                (rows(answer.await.map(drop)), NO_OWNER)
            }
            Call::Save(text, _) => {
                let state = state(&text);
                let answer = context.save_agent_state(scope, id, &state, Expect::Any).await;
                (rows(answer.map(drop)), NO_OWNER)
            }
            Call::Housekeep | Call::HousekeepArchived | Call::Join | Call::Leave => {
                unreachable!("{step:?} has no scope")
            }
        }
    }
}
