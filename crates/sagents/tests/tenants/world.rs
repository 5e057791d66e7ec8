//! Makes every call to the store and to the model.

use std::collections::BTreeMap;

use sagents::{
    ContentType, Conversation, ConversationChanges, Decision, DisplayMessage, Error, Expect, Expired, Fork,
    ListConversations, MessagePage, OwnerScope, Point, RunStatus, RunUpdate, SearchPage, Timestamp, ToolStatus,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::model::{Answer, INVALID, Model, NOT_FOUND};
use super::seen::{clean, clean_map, page, result, rows, state};
use super::steps::{Call, Step, is_valid};
use super::support::context::NewConversation;
use super::support::fixture::Fixture;
use super::talk::{Talk, is_ended, may_become};
use super::{CONVERSATIONS, EVERYTHING_AFTER, LEASE, MESSAGES, Owners};

pub async fn run(context: &Fixture, owners: Owners, steps: &[Step]) {
    owners.clear(context).await;
    let world = World {
        owners,
        ids: (0..CONVERSATIONS).map(|_| Uuid::now_v7()).collect(),
        messages: (0..MESSAGES).map(|_| Uuid::now_v7()).collect(),
        context: context.clone(),
    };
    let mut model = Model::new(owners);
    for (number, step) in steps.iter().enumerate() {
        let (answer, expected) =
            if step.by_group { world.make_by_group(step, &model).await } else { world.make(step, &mut model).await };
        assert_eq!(answer, expected, "step {number}: {step:?}");
        world.learn_time(step, &mut model).await;
        if (number + 1) % EVERYTHING_AFTER == 0 || number + 1 == steps.len() {
            world.compare(&model, number).await;
        } else {
            let id = world.ids[step.conversation];
            world.compare_owner(&model, step.owner, &[id], number).await;
        }
    }
}

pub struct World {
    pub owners: Owners,
    pub context: Fixture,
    pub ids: Vec<Uuid>,
    pub messages: Vec<Uuid>,
}

impl World {
    /// Makes a call to both.
    #[allow(clippy::too_many_lines, reason = "one arm for each call")]
    pub async fn make(&self, step: &Step, model: &mut Model) -> (Answer, Answer) {
        let context = &self.context;
        let scope = self.owners.scope(step.owner);
        let id = self.ids[step.conversation];
        let key = (self.owners.space(step.owner), id);
        match step.call.clone() {
            Call::Create(title, metadata) => {
                let new = NewConversation { id, title: title.clone(), metadata: metadata.clone() };
                let answer = context.create_conversation(&scope, new).await;
                let at = answer.as_ref().map_or_else(|_| Timestamp::now(), |row| row.inserted_at);
                let talk = model.talks.entry(key).or_insert_with(|| Talk {
                    scope: scope.to_json(),
                    title: title.as_deref().map(clean),
                    metadata: clean_map(&metadata),
                    inserted_at: at,
                    updated_at: at,
                    archived_at: None,
                    counted: BTreeMap::new(),
                    touched: false,
                    changes: 0,
                    interrupted: false,
                    run: None,
                    next: 0,
                    items: Vec::new(),
                });
                (rows(answer), Ok(talk.row(id)))
            }
            Call::Get => {
                let answer = context.get_conversation(&scope, id).await;
                (rows(answer), model.read(key, |talk| Ok(talk.row(id))))
            }
            Call::Update(title, metadata) => {
                let changes = ConversationChanges { title: title.clone(), metadata: metadata.clone(), archived: None };
                let answer = context.update_conversation(&scope, id, changes).await;
                let at = answer.as_ref().ok().map(|row| row.updated_at);
                let expected = model.write(key, |talk| {
                    if let Some(title) = title {
                        talk.title = title.as_deref().map(clean);
                    }
                    if let Some(metadata) = metadata {
                        talk.metadata = clean_map(&metadata);
                    }
                    talk.updated_at = at.unwrap_or(talk.updated_at);
                    Ok(talk.row(id))
                });
                (rows(answer), expected)
            }
            Call::Delete => {
                let answer = context.delete_conversation(&scope, id).await;
                let expected = model.talks.remove(&key).map_or(NOT_FOUND, |_| Ok(Value::Null));
                (rows(answer), expected)
            }
            Call::List(order_by, archived, limit, after) => {
                let spot = model.spot(id).filter(|_| after);
                let list = ListConversations {
                    order_by,
                    archived,
                    limit,
                    after: self.cursor(model, id, order_by).await.filter(|_| after),
                };
                let answer = context.list_conversations(&scope, list).await;
                let expected = model.list(step.owner, order_by, archived, spot);
                (rows(answer), page(expected, limit))
            }
            Call::Archive(is_archived) => {
                let changes = ConversationChanges::default().archived(is_archived);
                let answer = context.update_conversation(&scope, id, changes).await;
                let at = answer.as_ref().ok().and_then(|row| row.archived_at);
                let expected = model.write(key, |talk| {
                    talk.archived_at = if is_archived { talk.archived_at.or(at) } else { None };
                    Ok(talk.row(id))
                });
                (rows(answer), expected)
            }
            Call::Append(draft) => {
                let new = draft.message(&self.messages);
                let answer = context.append_display_message(&scope, id, new).await;
                let at = answer.as_ref().map_or_else(|_| Timestamp::now(), |row| row.inserted_at);
                let expected = if draft.is_valid() {
                    let message_id = self.messages[draft.message];
                    model.write(key, |talk| {
                        let item = talk.append(&draft, message_id, at);
                        Ok(item.row(id))
                    })
                } else {
                    INVALID
                };
                (rows(answer), expected)
            }
            Call::Load(from, limit) => {
                let page = MessagePage { from, limit };
                let answer = context.load_display_messages(&scope, id, page).await;
                let expected =
                    if is_valid(limit) { model.read(key, |talk| talk.page(id, from, limit)) } else { INVALID };
                (rows(answer), expected)
            }
            Call::Clear => {
                let answer = context.clear_display_messages(&scope, id).await;
                let expected = model.touch(key, |talk| {
                    talk.changes += 1;
                    Ok(json!(talk.items.drain(..).len()))
                });
                (rows(answer), expected)
            }
            Call::Rewind(message) => {
                let message_id = self.messages[message];
                let to = Point::Before(message_id);
                let answer = context.rewind_conversation(&scope, id, to).await;
                let expected = model.touch(key, |talk| match talk.rewind(message_id) {
                    Some(removed) => Ok(json!(removed)),
                    None => NOT_FOUND,
                });
                (rows(answer.map(|rewound| json!(rewound.removed))), expected)
            }
            Call::Fork(other) => {
                let fork = Fork::new().id(self.ids[other]);
                let answer = context.fork_conversation(&scope, id, fork).await;
                let answer = answer.map(|forked| forked.conversation);
                let expected = model.fork(step.owner, id, self.ids[other], answer.as_ref().ok());
                (rows(answer), expected)
            }
            Call::Import(from, other) => {
                let answer = self.import(&scope, from, id, self.ids[other]).await;
                let expected = model.import(step.owner, from, id, self.ids[other], answer.as_ref().ok());
                (rows(answer), expected)
            }
            Call::Search(text, limit) => {
                let answer = context.search_messages(&scope, &text, SearchPage::first().limit(limit)).await;
                (rows(answer), page(model.search(step.owner, &text), limit))
            }
            Call::GetTool(call_id) => {
                let answer = context.get_tool_call(&scope, id, &call_id).await;
                let expected = model.read(key, |talk| talk.call(id, &call_id));
                (rows(answer), expected)
            }
            Call::ChangeTool(call_id, status, metadata) => {
                let answer = change_tool(context, &scope, id, &call_id, status, &metadata).await;
                let note = match status {
                    ToolStatus::Executing | ToolStatus::Cancelled => Map::new(),
                    _ => clean_map(&metadata),
                };
                let expected = model.touch(key, |talk| {
                    let Some(item) = talk.newest(&call_id, ContentType::ToolCall) else {
                        return NOT_FOUND;
                    };
                    let before = item.status.unwrap();
                    if is_ended(before) && before == status {
                        return Ok(item.row(id));
                    }
                    if !may_become(before, status, item.metadata.get("hitl_decision")) {
                        return INVALID;
                    }
                    if status == ToolStatus::Interrupted && before != status {
                        item.forget_decision();
                    }
                    item.status = Some(status);
                    item.metadata.extend(note);
                    Ok(talk.changed(&call_id).row(id))
                });
                (rows(answer), expected)
            }
            Call::Resolve(call_id, text, is_error) => {
                let result = result(&call_id, &text, is_error);
                let answer = context.resolve_tool_result(&scope, id, &result).await;
                let expected = model.touch(key, |talk| {
                    let Some(item) = talk.newest(&call_id, ContentType::ToolResult) else {
                        return NOT_FOUND;
                    };
                    if item.metadata.get("is_interrupt") != Some(&json!(true)) {
                        return INVALID;
                    }
                    item.metadata.insert("is_interrupt".into(), json!(false));
                    item.metadata.insert("is_error".into(), json!(is_error));
                    item.content = clean(&text);
                    talk.changes += 1;
                    let changes = talk.changes;
                    let item = talk.newest(&call_id, ContentType::ToolResult).unwrap();
                    item.changed = changes;
                    Ok(item.row(id))
                });
                (rows(answer), expected)
            }
            Call::Claim(call_id, claim) => {
                let claim = self.messages[claim];
                let answer = context.claim_tool_call(&scope, id, &call_id, claim).await;
                let expected = model.touch(key, |talk| {
                    let Some(item) = talk.newest(&call_id, ContentType::ToolCall) else {
                        return NOT_FOUND;
                    };
                    let decision = item.metadata.get("hitl_decision");
                    if may_become(item.status.unwrap(), ToolStatus::Executing, decision) {
                        item.status = Some(ToolStatus::Executing);
                        item.metadata.insert("claim".into(), json!(claim));
                        let row = talk.changed(&call_id).row(id);
                        return Ok(json!([true, row]));
                    }
                    let is_same =
                        item.status == Some(ToolStatus::Executing) && item.metadata.get("claim") == Some(&json!(claim));
                    Ok(json!([is_same, item.row(id)]))
                });
                (rows(answer), expected)
            }
            Call::Judge(call_id, decision, claim) => {
                let claim = self.messages[claim];
                let answer = context.decide_tool_call(&scope, id, &call_id, &decision, claim).await;
                let expected = model.touch(key, |talk| {
                    let Some(item) = talk.newest(&call_id, ContentType::ToolCall) else {
                        return NOT_FOUND;
                    };
                    let recorded = match decision {
                        Decision::Reject { .. } => "rejected",
                        _ => "approved",
                    };
                    let before = item.metadata.get("hitl_decision").cloned();
                    match before {
                        None if item.status == Some(ToolStatus::Interrupted) => {
                            item.status = Some(decision.status());
                            item.metadata.extend([
                                ("hitl_decision".to_owned(), json!(recorded)),
                                ("decision".to_owned(), json!(decision)),
                                ("decision_claim".to_owned(), json!(claim)),
                            ]);
                            let row = talk.changed(&call_id).row(id);
                            talk.note_on_result(&call_id, recorded);
                            Ok(json!([true, row]))
                        }
                        None => INVALID,
                        Some(_) if item.metadata.get("decision_claim") == Some(&json!(claim)) => {
                            Ok(json!([true, item.row(id)]))
                        }
                        Some(recorded) => {
                            let recorded = if recorded == json!("approved") {
                                json!({ "type": "approve" })
                            } else {
                                json!({ "type": "reject", "reason": null })
                            };
                            let decided = item.metadata.get("decision").unwrap_or(&recorded);
                            Ok(json!([decided, item.row(id)]))
                        }
                    }
                });
                (rows(answer), expected)
            }
            Call::Begin(run) => {
                let begun = context.begin_run(&scope, id, self.messages[run], "here", LEASE);
                let answer = begun.await;
                let expected = model.write(key, |talk| {
                    let current = *talk.run.get_or_insert(run);
                    Ok(json!([current == run, self.messages[current]]))
                });
                (rows(answer), expected)
            }
            Call::End(run) => {
                let status = RunStatus::Finished;
                let answer = context.update_run(&scope, id, self.messages[run], RunUpdate::End(status)).await;
                let expected = model.write(key, |talk| {
                    talk.run = talk.run.filter(|current| *current != run);
                    Ok(Value::Null)
                });
                (rows(answer.map(drop)), expected)
            }
            Call::Housekeep => {
                let cutoff = model.spot(id).map_or(Timestamp::MIN, |spot| spot.0);
                let answer = context.delete_conversations(Expired::UpdatedBefore(cutoff)).await;
                let before = model.talks.len();
                model.talks.retain(|_, talk| talk.updated_at >= cutoff);
                (rows(answer), Ok(json!(before - model.talks.len())))
            }
            Call::HousekeepArchived => {
                let talk = model.talks.iter().find(|((_, other), _)| *other == id);
                let cutoff = talk.and_then(|(_, talk)| talk.archived_at);
                let cutoff = cutoff.unwrap_or(Timestamp::MIN);
                let answer = context.delete_conversations(Expired::ArchivedBefore(cutoff)).await;
                let before = model.talks.len();
                let is_kept = |talk: &Talk| talk.archived_at.is_none_or(|at| at >= cutoff);
                model.talks.retain(|_, talk| is_kept(talk));
                (rows(answer), Ok(json!(before - model.talks.len())))
            }
            Call::Save(text, aside) => {
                let state = state(&text);
                let save = |expect| context.save_agent_state(&scope, id, &state, expect);
                let mut answer = save(Expect::Any).await;
                if let (Ok(revision), true) = (&answer, aside) {
                    answer = save(Expect::Unreadable(*revision)).await;
                }
                let expected = model.touch(key, |_| Ok(Value::Null));
                (rows(answer.map(drop)), expected)
            }
            Call::Join => {
                model.members.insert((step.group, step.owner));
                (self.execute(&self.owners.join(step.owner, step.group)).await, Ok(Value::Null))
            }
            Call::Leave => {
                model.members.remove(&(step.group, step.owner));
                (self.execute(&self.owners.leave(step.owner, step.group)).await, Ok(Value::Null))
            }
        }
    }

    pub async fn execute(&self, sql: &str) -> Answer {
        let _ = self.context.pool.execute(sql).await;
        Ok(Value::Null)
    }

    /// Takes a copy of what somebody else may have.
    pub async fn import(
        &self,
        caller: &impl OwnerScope,
        from: usize,
        id: Uuid,
        copy: Uuid,
    ) -> Result<Conversation, Error> {
        let mut export = self.context.export_conversation(&self.owners.scope(from), id).await?;
        export.conversation.id = copy;
        let imported = self.context.import_conversation(caller, export).await?;
        Ok(imported.conversation)
    }

    /// A write moves its conversation to the top, at a time that not every answer tells.
    pub async fn learn_time(&self, step: &Step, model: &mut Model) {
        let id = self.ids[step.conversation];
        if let Some(talk) = model.talks.get_mut(&(self.owners.space(step.owner), id))
            && std::mem::take(&mut talk.touched)
        {
            let seen = self.context.get_conversation(&self.owners.scope(step.owner), id).await.unwrap();
            assert!(seen.updated_at >= talk.updated_at && seen.updated_at <= Timestamp::now());
            talk.updated_at = seen.updated_at;
        }
    }
}

pub async fn change_tool(
    context: &Fixture,
    scope: &impl OwnerScope,
    id: Uuid,
    call_id: &str,
    status: ToolStatus,
    metadata: &Map<String, Value>,
) -> Result<DisplayMessage, Error> {
    let metadata = metadata.clone();
    match status {
        ToolStatus::Completed => context.complete_tool_call(scope, id, call_id, metadata).await,
        ToolStatus::Failed => context.fail_tool_call(scope, id, call_id, metadata).await,
        ToolStatus::Interrupted => context.interrupt_tool_call(scope, id, call_id, metadata).await,
        ToolStatus::Cancelled => context.cancel_tool_call(scope, id, call_id).await,
        ToolStatus::Pending | ToolStatus::Executing | ToolStatus::Unknown => {
            unreachable!("no call of a host does that")
        }
    }
}
