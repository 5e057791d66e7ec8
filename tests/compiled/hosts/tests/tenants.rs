//! Random calls of several owners, made to the context and to a simple model in memory. Every answer equals the model's;
//! so does what the caller sees after every call, and what everybody sees after some calls and at the end. All owners use
//! the same few ids, so most calls name what belongs to somebody else. Where there are groups, owners join and leave them; a group sees what its members see,
//! and changes nothing.

use crate::database;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use database::Database;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use uuid::Uuid;

// The context under test: an alias `layer` for its module, and what differs between owners.
// {{ owners }}

use layer::{
    Archived, BeginRun, Change, ChangeCursor, Claim, ContentType, Conversation,
    ConversationChanges, ConversationOrder, Cursor, Decided, Decision, DisplayMessage, Error, Fork,
    HitlDecision, ListConversations, MessagePage, MessagePosition, NewConversation,
    NewDisplayMessage, OwnerScope, Page, Point, Role, RunStatus, SearchPage, ToolStatus, Usage,
};
use matrix::sagents::{Expect, Message, State, ToolResult};
use sqlx::AssertSqlSafe;

const LEASE: std::time::Duration = std::time::Duration::from_secs(1000);
const OWNERS: usize = 3;
const CONVERSATIONS: usize = 2;
const MESSAGES: usize = 5;
/// After so many calls, what everybody sees is compared: that takes forty more.
const EVERYTHING_AFTER: usize = 12;

#[test]
fn every_answer_equals_the_models() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let database = runtime.block_on(Database::migrated(INSERT_OWNERS));
    let pool = runtime.block_on(layer::connect(&database.url())).unwrap();
    // With groups, a case compares more.
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(if GROUPS > 0 { 40 } else { 64 })
    });
    let steps = prop::collection::vec(step(), 1..60);
    let outcome = runner.run(&steps, |steps| {
        runtime.block_on(run(&pool, &steps));
        Ok(())
    });
    outcome.unwrap();
}

/// One call of one owner, or of a group.
#[derive(Debug, Clone)]
struct Step {
    owner: usize,
    /// The owner joins or leaves it, or it makes the call.
    group: usize,
    by_group: bool,
    /// Which of the ids that all owners use.
    conversation: usize,
    call: Call,
}

#[derive(Debug, Clone)]
enum Call {
    Create(Option<String>, Map<String, Value>),
    Get,
    Update(Change<Option<String>>, Change<Map<String, Value>>),
    Delete,
    Archive(bool),
    /// After the conversation of this step, of any owner, or from the start.
    List(ConversationOrder, Archived, u32, bool),
    Append(Draft),
    Load(MessagePosition, u32),
    Clear,
    /// To before one of the messages.
    Rewind(usize),
    /// As one of the conversations.
    Fork(usize),
    /// What one of the owners has, as one of the conversations.
    Import(usize, usize),
    Search(String, u32),
    GetTool(String),
    ChangeTool(String, ToolStatus, Map<String, Value>),
    Decide(String, HitlDecision),
    Resolve(String, String, bool),
    /// With one of the ids of messages as the claim.
    Claim(String, usize),
    Judge(String, Decision, usize),
    /// With one of the ids of messages as the run.
    Begin(usize),
    End(usize),
    /// Everything that is older than the conversation of this step.
    Housekeep,
    /// Everything that was archived before it.
    HousekeepArchived,
    /// An agent state with a message, which may be set aside for another one.
    Save(String, bool),
    Join,
    Leave,
}

/// A message to append, which need not make sense.
#[derive(Debug, Clone)]
struct Draft {
    message: usize,
    item: i32,
    content_type: ContentType,
    content: String,
    metadata: Map<String, Value>,
    tool_call_id: Option<String>,
    status: Option<ToolStatus>,
}

fn step() -> impl Strategy<Value = Step> {
    let groups = (0..GROUPS.max(1), prop::bool::weighted(0.4));
    (0..OWNERS, groups, 0..CONVERSATIONS, call()).prop_map(
        |(owner, (group, by_group), conversation, call)| Step {
            owner,
            group,
            by_group: by_group && GROUPS > 0 && call.has_scope(),
            conversation,
            call,
        },
    )
}

impl Call {
    fn has_scope(&self) -> bool {
        !matches!(
            self,
            Self::Housekeep | Self::HousekeepArchived | Self::Join | Self::Leave
        )
    }
}

fn call() -> impl Strategy<Value = Call> {
    let to_title = prop_oneof![
        Just(Change::Keep),
        prop::option::of(text()).prop_map(Change::To)
    ];
    let to_metadata = prop_oneof![Just(Change::Keep), metadata().prop_map(Change::To)];
    let order = select(vec![
        ConversationOrder::UpdatedDesc,
        ConversationOrder::UpdatedAsc,
        ConversationOrder::CreatedDesc,
        ConversationOrder::CreatedAsc,
    ]);
    let archived = select(vec![Archived::Exclude, Archived::Include, Archived::Only]);
    let list = (order, archived, limit(), any::<bool>());
    let position = prop_oneof![
        Just(MessagePosition::First),
        Just(MessagePosition::Last),
        (-1..8_i64).prop_map(MessagePosition::After),
        (-1..8_i64).prop_map(MessagePosition::Before),
    ];
    let target = select(vec![
        ToolStatus::Executing,
        ToolStatus::Completed,
        ToolStatus::Failed,
        ToolStatus::Interrupted,
        ToolStatus::Cancelled,
    ]);
    let decision = select(vec![HitlDecision::Approved, HitlDecision::Rejected]);
    let judgement = prop_oneof![
        Just(Decision::Approve),
        Just(Decision::Edit {
            arguments: json!({ "edited": true })
        }),
        Just(Decision::Reject { reason: None }),
    ];
    prop_oneof![
        8 => (prop::option::of(text()), metadata()).prop_map(|(title, metadata)| Call::Create(title, metadata)),
        2 => Just(Call::Get),
        2 => (to_title, to_metadata).prop_map(|(title, metadata)| Call::Update(title, metadata)),
        2 => Just(Call::Delete),
        3 => any::<bool>().prop_map(Call::Archive),
        5 => list.prop_map(|(order, archived, limit, after)| Call::List(order, archived, limit, after)),
        16 => draft().prop_map(Call::Append),
        4 => (position, limit()).prop_map(|(position, limit)| Call::Load(position, limit)),
        4 => Just(Call::Clear),
        4 => (0..MESSAGES).prop_map(Call::Rewind),
        4 => (0..CONVERSATIONS).prop_map(Call::Fork),
        4 => (0..OWNERS, 0..CONVERSATIONS).prop_map(|(from, other)| Call::Import(from, other)),
        4 => (text(), limit()).prop_map(|(text, limit)| Call::Search(text, limit)),
        3 => call_id().prop_map(Call::GetTool),
        10 => (call_id(), target, metadata()).prop_map(|(id, status, metadata)| Call::ChangeTool(id, status, metadata)),
        3 => (call_id(), decision).prop_map(|(id, decision)| Call::Decide(id, decision)),
        4 => (call_id(), text(), any::<bool>()).prop_map(|(id, content, is_error)| Call::Resolve(id, content, is_error)),
        4 => (call_id(), 0..MESSAGES).prop_map(|(id, claim)| Call::Claim(id, claim)),
        4 => (call_id(), judgement, 0..MESSAGES).prop_map(|(id, decision, claim)| Call::Judge(id, decision, claim)),
        4 => (0..MESSAGES).prop_map(Call::Begin),
        3 => (0..MESSAGES).prop_map(Call::End),
        1 => Just(Call::Housekeep),
        1 => Just(Call::HousekeepArchived),
        12 => (text(), any::<bool>()).prop_map(|(text, aside)| Call::Save(text, aside)),
        memberships() => Just(Call::Join),
        memberships() => Just(Call::Leave),
    ]
}

/// How often somebody joins a group, or leaves it.
fn memberships() -> u32 {
    if GROUPS > 0 { 6 } else { 1 }
}

fn draft() -> impl Strategy<Value = Draft> {
    let plain = select(vec![
        ContentType::Text,
        ContentType::Thinking,
        ContentType::Notification,
    ]);
    let statuses = select(vec![
        ToolStatus::Pending,
        ToolStatus::Executing,
        ToolStatus::Interrupted,
    ]);
    let kind = prop_oneof![
        4 => plain.clone().prop_map(|kind| (kind, None, None)),
        6 => (call_id(), statuses.clone()).prop_map(|(id, status)| (ContentType::ToolCall, Some(id), Some(status))),
        4 => call_id().prop_map(|id| (ContentType::ToolResult, Some(id), None)),
        1 => (plain, statuses).prop_map(|(kind, status)| (kind, None, Some(status))),
        1 => Just((ContentType::ToolCall, None, Some(ToolStatus::Pending))),
        1 => call_id().prop_map(|id| (ContentType::ToolCall, Some(id), None)),
    ];
    let item = prop_oneof![1 => Just(-1), 20 => 0..3];
    (0..MESSAGES, item, kind, text(), metadata()).prop_map(
        |(message, item, kind, content, metadata)| Draft {
            message,
            item,
            content_type: kind.0,
            content,
            metadata,
            tool_call_id: kind.1,
            status: kind.2,
        },
    )
}

/// Few letters, so that texts contain each other: of both cases, wildcards, and what cannot be shown.
fn text() -> impl Strategy<Value = String> {
    "[aAüÜ%_\\\\ß日\\x00]{0,4}"
}

fn metadata() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop_oneof![
        Just(json!(true)),
        Just(json!(null)),
        any::<i64>().prop_map(|number| json!(number)),
        text().prop_map(|text| json!({ "nested": [text] })),
        (0..3, 0..3).prop_map(|(input, output)| json!({ "input": input, "output": output })),
    ];
    let key = select(vec!["is_interrupt", "is_error", "usage", "a\0"]).prop_map(str::to_owned);
    prop::collection::vec((key, value), 0..3).prop_map(|entries| entries.into_iter().collect())
}

fn call_id() -> impl Strategy<Value = String> {
    select(vec!["call_1".to_owned(), "call\0_2".to_owned()])
}

/// Every list has a page of 100.
fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 1..4_u32, 2 => Just(100), 1 => Just(0), 1 => Just(u32::MAX)]
}

fn is_valid(limit: u32) -> bool {
    (1..=100).contains(&limit)
}

/// Everything that was stored, by space and id.
#[derive(Default)]
struct Model {
    talks: BTreeMap<(usize, Uuid), Talk>,
    /// Who is in which group. An owner who joins twice has two rows, and leaving deletes both.
    members: BTreeSet<(usize, usize)>,
}

struct Talk {
    title: Option<String>,
    metadata: Map<String, Value>,
    inserted_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    archived_at: Option<DateTime<Utc>>,
    /// The tokens of the messages that were counted.
    counted: BTreeMap<Uuid, (i64, i64)>,
    /// It was written to at a time that is not known yet.
    touched: bool,
    next: i64,
    /// How often display messages changed.
    changes: i64,
    /// Whether the agent waits: a fork in which a call waits does.
    interrupted: bool,
    items: Vec<Entry>,
    /// The run in progress.
    run: Option<usize>,
}

#[derive(Clone)]
struct Entry {
    sequence: i64,
    message_id: Uuid,
    item: i32,
    content_type: ContentType,
    content: String,
    metadata: Map<String, Value>,
    tool_call_id: Option<String>,
    status: Option<ToolStatus>,
    inserted_at: DateTime<Utc>,
    changed: i64,
}

/// How many messages were counted, and their input and output.
type Tokens = (i64, i64, i64);

fn tokens(tokens: Tokens) -> Value {
    json!([tokens.0, tokens.1, tokens.2])
}

fn usage_seen(usage: &Usage) -> Value {
    let messages = usage.models.iter().map(|model| model.messages).sum();
    tokens((messages, usage.total().input, usage.total().output))
}

/// Where a conversation is in a list.
type Spot = (DateTime<Utc>, Uuid);

/// Where a message is in the results of a search.
type Place = (DateTime<Utc>, Uuid, i64);

/// An answer as data, so that rows of every kind of owner compare.
type Answer = Result<Value, &'static str>;

const NOT_FOUND: Answer = Err("not found");
const INVALID: Answer = Err("invalid");
const NO_OWNER: Answer = Err("no owner");
const SEVERAL_OWNERS: Answer = Err("several owners");

async fn run(pool: &layer::Pool, steps: &[Step]) {
    sqlx::raw_sql(CLEAR).execute(pool).await.unwrap();
    let context = Context::new(pool.clone());
    let world = World {
        pool: pool.clone(),
        ids: (0..CONVERSATIONS).map(|_| Uuid::now_v7()).collect(),
        messages: (0..MESSAGES).map(|_| Uuid::now_v7()).collect(),
        context,
    };
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        let (answer, expected) = if step.by_group {
            world.make_by_group(step, &model).await
        } else {
            world.make(step, &mut model).await
        };
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

struct World {
    pool: layer::Pool,
    context: Context,
    ids: Vec<Uuid>,
    messages: Vec<Uuid>,
}

impl World {
    /// Makes a call to both.
    #[allow(clippy::too_many_lines, reason = "one arm for each call")]
    async fn make(&self, step: &Step, model: &mut Model) -> (Answer, Answer) {
        let context = &self.context;
        let scope = scope(step.owner);
        let id = self.ids[step.conversation];
        let key = (space(step.owner), id);
        match step.call.clone() {
            Call::Create(title, metadata) => {
                let new = NewConversation {
                    id,
                    title: title.clone(),
                    metadata: metadata.clone(),
                };
                let answer = context.create_conversation(&scope, new).await;
                let at = answer
                    .as_ref()
                    .map_or_else(|_| Utc::now(), |row| row.inserted_at);
                let talk = model.talks.entry(key).or_insert_with(|| Talk {
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
                (rows(answer), Ok(talk.row(step.owner, id)))
            }
            Call::Get => {
                let answer = context.get_conversation(&scope, id).await;
                (
                    rows(answer),
                    model.read(key, |talk| Ok(talk.row(step.owner, id))),
                )
            }
            Call::Update(title, metadata) => {
                let changes = ConversationChanges {
                    title: title.clone(),
                    metadata: metadata.clone(),
                };
                let answer = context.update_conversation(&scope, id, changes).await;
                let at = answer.as_ref().ok().map(|row| row.updated_at);
                let expected = model.write(key, |talk| {
                    if let Change::To(title) = title {
                        talk.title = title.as_deref().map(clean);
                    }
                    if let Change::To(metadata) = metadata {
                        talk.metadata = clean_map(&metadata);
                    }
                    talk.updated_at = at.unwrap_or(talk.updated_at);
                    Ok(talk.row(step.owner, id))
                });
                (rows(answer), expected)
            }
            Call::Delete => {
                let answer = context.delete_conversation(&scope, id).await;
                let expected = model
                    .talks
                    .remove(&key)
                    .map_or(NOT_FOUND, |_| Ok(Value::Null));
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
                let answer = if is_archived {
                    context.archive_conversation(&scope, id).await
                } else {
                    context.unarchive_conversation(&scope, id).await
                };
                let at = answer.as_ref().ok().and_then(|row| row.archived_at);
                let expected = model.write(key, |talk| {
                    talk.archived_at = if is_archived {
                        talk.archived_at.or(at)
                    } else {
                        None
                    };
                    Ok(talk.row(step.owner, id))
                });
                (rows(answer), expected)
            }
            Call::Append(draft) => {
                let new = draft.message(&self.messages);
                let answer = context.append_display_message(&scope, id, new).await;
                let at = answer
                    .as_ref()
                    .map_or_else(|_| Utc::now(), |row| row.inserted_at);
                let expected = if draft.is_valid() {
                    let message_id = self.messages[draft.message];
                    model.write(key, |talk| {
                        let item = talk.append(&draft, message_id, at);
                        Ok(item.row(step.owner, id))
                    })
                } else {
                    INVALID
                };
                (rows(answer), expected)
            }
            Call::Load(from, limit) => {
                let page = MessagePage { from, limit };
                let answer = context.load_display_messages(&scope, id, page).await;
                let expected = if is_valid(limit) {
                    model.read(key, |talk| talk.page(step.owner, id, from, limit))
                } else {
                    INVALID
                };
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
                let expected = model.import(step.owner, from, id, self.ids[other]);
                (rows(answer), expected)
            }
            Call::Search(text, limit) => {
                let answer = context
                    .search_messages(&scope, &text, SearchPage::first().limit(limit))
                    .await;
                (rows(answer), page(model.search(step.owner, &text), limit))
            }
            Call::GetTool(call_id) => {
                let answer = context.get_tool_call(&scope, id, &call_id).await;
                let expected = model.read(key, |talk| talk.call(step.owner, id, &call_id));
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
                        return Ok(item.row(step.owner, id));
                    }
                    if !may_become(before, status, item.metadata.get("hitl_decision")) {
                        return INVALID;
                    }
                    if status == ToolStatus::Interrupted && before != status {
                        item.forget_decision();
                    }
                    item.status = Some(status);
                    item.metadata.extend(note);
                    Ok(talk.changed(&call_id).row(step.owner, id))
                });
                (rows(answer), expected)
            }
            Call::Decide(call_id, decision) => {
                let answer = context
                    .record_hitl_decision(&scope, id, &call_id, decision)
                    .await;
                let expected = model.touch(key, |talk| {
                    let Some(item) = talk.newest(&call_id, ContentType::ToolCall) else {
                        return NOT_FOUND;
                    };
                    match item.metadata.get("hitl_decision") {
                        Some(other) if *other == json!(decision) => {}
                        None if !is_ended(item.status.unwrap()) => {
                            item.metadata
                                .insert("hitl_decision".into(), json!(decision));
                            let row = talk.changed(&call_id).row(step.owner, id);
                            talk.note_on_result(&call_id, decision);
                            return Ok(row);
                        }
                        _ => return INVALID,
                    }
                    Ok(item.row(step.owner, id))
                });
                (rows(answer), expected)
            }
            Call::Resolve(call_id, text, is_error) => {
                let result = result(&call_id, &text, is_error);
                let answer = context
                    .resolve_interrupted_tool_result(&scope, id, &result)
                    .await;
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
                    Ok(item.row(step.owner, id))
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
                        let row = talk.changed(&call_id).row(step.owner, id);
                        return Ok(json!([true, row]));
                    }
                    let is_same = item.status == Some(ToolStatus::Executing)
                        && item.metadata.get("claim") == Some(&json!(claim));
                    Ok(json!([is_same, item.row(step.owner, id)]))
                });
                (rows(answer), expected)
            }
            Call::Judge(call_id, decision, claim) => {
                let claim = self.messages[claim];
                let answer = context
                    .decide_tool_call(&scope, id, &call_id, &decision, claim)
                    .await;
                let expected = model.touch(key, |talk| {
                    let Some(item) = talk.newest(&call_id, ContentType::ToolCall) else {
                        return NOT_FOUND;
                    };
                    let recorded = match decision {
                        Decision::Reject { .. } => HitlDecision::Rejected,
                        _ => HitlDecision::Approved,
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
                            let row = talk.changed(&call_id).row(step.owner, id);
                            talk.note_on_result(&call_id, recorded);
                            Ok(json!([true, row]))
                        }
                        None => INVALID,
                        Some(_) if item.metadata.get("decision_claim") == Some(&json!(claim)) => {
                            Ok(json!([true, item.row(step.owner, id)]))
                        }
                        Some(recorded) => {
                            let recorded = if recorded == json!("approved") {
                                json!({ "type": "approve" })
                            } else {
                                json!({ "type": "reject", "reason": null })
                            };
                            let decided = item.metadata.get("decision").unwrap_or(&recorded);
                            Ok(json!([decided, item.row(step.owner, id)]))
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
                let answer = context
                    .end_run(&scope, id, self.messages[run], status)
                    .await;
                let expected = model.write(key, |talk| {
                    talk.run = talk.run.filter(|current| *current != run);
                    Ok(Value::Null)
                });
                (rows(answer), expected)
            }
            Call::Housekeep => {
                let cutoff = model.spot(id).map_or(DateTime::UNIX_EPOCH, |spot| spot.0);
                let answer = context.delete_conversations_before(cutoff).await;
                let before = model.talks.len();
                model.talks.retain(|_, talk| talk.updated_at >= cutoff);
                (rows(answer), Ok(json!(before - model.talks.len())))
            }
            Call::HousekeepArchived => {
                let talk = model.talks.iter().find(|((_, other), _)| *other == id);
                let cutoff = talk.and_then(|(_, talk)| talk.archived_at);
                let cutoff = cutoff.unwrap_or_default();
                let answer = context.delete_archived_before(cutoff).await;
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
                (
                    self.execute(join(step.owner, step.group)).await,
                    Ok(Value::Null),
                )
            }
            Call::Leave => {
                model.members.remove(&(step.group, step.owner));
                (
                    self.execute(leave(step.owner, step.group)).await,
                    Ok(Value::Null),
                )
            }
        }
    }

    async fn execute(&self, sql: String) -> Answer {
        let executed = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await;
        executed
            .map(|_| Value::Null)
            .map_err(|error| panic!("{error}"))
    }

    /// Makes a call as a group. It changes nothing, so neither does the model.
    #[allow(clippy::too_many_lines, reason = "one arm for each call")]
    async fn make_by_group(&self, step: &Step, model: &Model) -> (Answer, Answer) {
        let context = &self.context;
        let scope = &group(step.group);
        let id = self.ids[step.conversation];
        let owners = model.owners_in(step.group, id);
        let read = |answer: &dyn Fn(usize, &Talk) -> Answer| match *owners {
            [owner] => model.read((owner, id), |talk| answer(owner, talk)),
            [] => NOT_FOUND,
            _ => SEVERAL_OWNERS,
        };
        match step.call.clone() {
            Call::Get => {
                let answer = context.get_conversation(scope, id).await;
                (rows(answer), read(&|owner, talk| Ok(talk.row(owner, id))))
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
                let expected = if is_valid(limit) {
                    read(&|owner, talk| talk.page(owner, id, from, limit))
                } else {
                    INVALID
                };
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
                let expected = read(&|owner, talk| talk.call(owner, id, &call_id));
                (rows(answer), expected)
            }
            Call::Create(title, metadata) => {
                let new = NewConversation {
                    id,
                    title,
                    metadata,
                };
                (
                    rows(context.create_conversation(scope, new).await),
                    NO_OWNER,
                )
            }
            Call::Update(title, metadata) => {
                let changes = ConversationChanges { title, metadata };
                let answer = context.update_conversation(scope, id, changes).await;
                (rows(answer), NO_OWNER)
            }
            Call::Delete => (rows(context.delete_conversation(scope, id).await), NO_OWNER),
            Call::Archive(true) => (
                rows(context.archive_conversation(scope, id).await),
                NO_OWNER,
            ),
            Call::Archive(false) => {
                let answer = context.unarchive_conversation(scope, id).await;
                (rows(answer), NO_OWNER)
            }
            Call::Append(draft) => {
                let new = draft.message(&self.messages);
                let answer = context.append_display_message(scope, id, new).await;
                (rows(answer), NO_OWNER)
            }
            Call::Clear => (
                rows(context.clear_display_messages(scope, id).await),
                NO_OWNER,
            ),
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
                (rows(answer), model.read((space(from), id), |_| NO_OWNER))
            }
            Call::ChangeTool(call_id, status, metadata) => {
                let answer = change_tool(context, scope, id, &call_id, status, &metadata).await;
                (rows(answer), NO_OWNER)
            }
            Call::Decide(call_id, decision) => {
                let answer = context.record_hitl_decision(scope, id, &call_id, decision);
                (rows(answer.await), NO_OWNER)
            }
            Call::Resolve(call_id, text, is_error) => {
                let result = result(&call_id, &text, is_error);
                let answer = context.resolve_interrupted_tool_result(scope, id, &result);
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
                let answer = context.end_run(scope, id, self.messages[run], RunStatus::Finished);
                (rows(answer.await), NO_OWNER)
            }
            Call::Save(text, _) => {
                let state = state(&text);
                let answer = context
                    .save_agent_state(scope, id, &state, Expect::Any)
                    .await;
                (rows(answer.map(drop)), NO_OWNER)
            }
            Call::Housekeep | Call::HousekeepArchived | Call::Join | Call::Leave => {
                unreachable!("{step:?} has no scope")
            }
        }
    }

    /// A write moves its conversation to the top, at a time that not every answer tells.
    /// Takes a copy of what somebody else may have.
    async fn import(
        &self,
        caller: &impl OwnerScope,
        from: usize,
        id: Uuid,
        copy: Uuid,
    ) -> Result<Conversation, Error> {
        let mut export = self.context.export_conversation(&scope(from), id).await?;
        export.conversation.id = copy;
        let imported = self.context.import_conversation(caller, export).await?;
        Ok(imported.conversation)
    }

    async fn learn_time(&self, step: &Step, model: &mut Model) {
        let id = self.ids[step.conversation];
        if let Some(talk) = model.talks.get_mut(&(space(step.owner), id))
            && std::mem::take(&mut talk.touched)
        {
            let seen = self
                .context
                .get_conversation(&scope(step.owner), id)
                .await
                .unwrap();
            assert!(seen.updated_at >= talk.updated_at && seen.updated_at <= Utc::now());
            talk.updated_at = seen.updated_at;
        }
    }

    /// Everything that anyone can see is what the model has.
    async fn compare(&self, model: &Model, number: usize) {
        for owner in 0..OWNERS {
            self.compare_owner(model, owner, &self.ids, number).await;
        }
        for group in 0..GROUPS {
            let id = self.ids[(number + group) % CONVERSATIONS];
            self.compare_group(model, group, id).await;
        }
    }

    /// What an owner sees of these conversations, and of all together.
    async fn compare_owner(&self, model: &Model, owner: usize, ids: &[Uuid], number: usize) {
        let list = ListConversations::default().archived(Archived::Include);
        let list = self.context.list_conversations(&scope(owner), list).await;
        let order = ConversationOrder::UpdatedDesc;
        let expected = model.list(owner, order, Archived::Include, None);
        assert_eq!(
            rows(list),
            page(expected, 50),
            "owner {owner} after step {number}"
        );
        let between = self.usage_between(&scope(owner)).await;
        let expected = model.usage(owner);
        assert_eq!(between, expected, "owner {owner} after step {number}");
        for &id in ids {
            let usage = self.context.usage(&scope(owner), id).await;
            let expected = model.read((space(owner), id), |talk| Ok(tokens(talk.tokens())));
            let usage = usage.map(|usage| usage_seen(&usage));
            assert_eq!(rows(usage), expected, "owner {owner} after step {number}");
            let page = MessagePage::first();
            let messages = self
                .context
                .load_display_messages(&scope(owner), id, page)
                .await;
            let expected = model.read((space(owner), id), |talk| {
                talk.page(owner, id, MessagePosition::First, 100)
            });
            assert_eq!(
                rows(messages),
                expected,
                "owner {owner} after step {number}"
            );
            // All pages of two changes.
            let (mut cursor, mut changes) = (ChangeCursor::START, Ok(Vec::new()));
            while let Ok(seen) = &mut changes {
                match self.context.changes(&scope(owner), id, cursor, 2).await {
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
            let expected = model.read((space(owner), id), |talk| {
                let mut items: Vec<_> = talk.items.iter().collect();
                items.sort_by_key(|item| (item.changed, item.sequence));
                let rows: Vec<_> = items.iter().map(|item| item.row(owner, id)).collect();
                Ok(json!(rows))
            });
            let changes = changes.map(|rows| rows.iter().map(Seen::seen).collect::<Vec<_>>());
            assert_eq!(
                rows(changes.map(Value::Array)),
                expected,
                "owner {owner} after step {number}"
            );
        }
    }

    /// A group sees of a conversation what its owner sees, if that is a member, and nothing else.
    async fn compare_group(&self, model: &Model, number: usize, id: Uuid) {
        let (caller, order) = (group(number), ConversationOrder::UpdatedDesc);
        // All pages together.
        let request = ListConversations::new().order_by(order).limit(2);
        let mut request = request.archived(Archived::Include);
        let mut all = Vec::new();
        loop {
            let list = self.context.list_conversations(&caller, request).await;
            let Page { items, next } = list.unwrap();
            all.extend(items);
            let Some(next) = next else { break };
            request = request.after(next);
        }
        let all = Page {
            items: all,
            next: None,
        };
        let expected = model.list_of_group(number, (order, Archived::Include), 100, None);
        let keys = keys(order);
        let (all, expected) = (sorted(Ok(all.seen()), keys), sorted(expected, keys));
        assert_eq!(all, expected, "group {number}");
        let counted = model.members(number).map(|owner| model.usage(owner));
        let expected = counted.fold((0, 0, 0), |sum, new| {
            (sum.0 + new.0, sum.1 + new.1, sum.2 + new.2)
        });
        assert_eq!(
            self.usage_between(&caller).await,
            expected,
            "group {number}"
        );
        // Every text contains nothing.
        let page = SearchPage::first().limit(SearchPage::MAX_LIMIT);
        let found = self.context.search_messages(&caller, "", page).await;
        let expected = model.search_of_group(number, "", 100);
        let (found, expected) = (sorted(rows(found), FOUND), sorted(expected, FOUND));
        assert_eq!(found, expected, "group {number}");
        let nothing = |error: &str| [error; 10].map(str::to_owned);
        let expected = match *model.owners_in(number, id) {
            [owner] => self.seen(&scope(owner), id).await,
            [] => nothing("Err(NotFound)"),
            _ => nothing("Err(SeveralOwners)"),
        };
        assert_eq!(self.seen(&caller, id).await, expected, "group {number}");
        for owner in 0..OWNERS {
            let expected = if model.members(number).any(|member| member == owner) {
                self.seen(&scope(owner), id).await
            } else {
                nothing("Err(NotFound)")
            };
            let seen = self.seen(&member(number, owner), id).await;
            assert_eq!(seen, expected, "owner {owner} in group {number}");
        }
        let runs = self.context.unfinished_runs(&caller).await.unwrap();
        let mut runs: Vec<_> = runs
            .iter()
            .map(|run| (run.conversation_id, run.id))
            .collect();
        let members = model.members(number).flat_map(|owner| model.of(owner));
        let expected = members.filter_map(|(id, talk)| Some((id, self.messages[talk.run?])));
        let mut expected: Vec<_> = expected.collect();
        runs.sort();
        expected.sort();
        assert_eq!(runs, expected, "group {number}");
    }

    /// Behind the conversation of any owner.
    async fn cursor(&self, model: &Model, id: Uuid, order: ConversationOrder) -> Option<Cursor> {
        let (owner, _) = model.talks.keys().find(|(_, other)| *other == id)?;
        let row = self.context.get_conversation(&scope(*owner), id).await;
        Some(row.unwrap().cursor(order))
    }

    /// Everything that there is to see of a conversation.
    async fn seen(&self, scope: &impl OwnerScope, id: Uuid) -> [String; 10] {
        let (context, page) = (&self.context, MessagePage::last());
        let unreadable = context.list_unreadable(scope, id).await;
        let epoch = unreadable.as_ref().ok().and_then(|states| states.first());
        let epoch = epoch.map_or(0, |state| state.epoch);
        [
            format!("{:?}", context.get_conversation(scope, id).await),
            format!("{:?}", context.load_display_messages(scope, id, page).await),
            format!("{:?}", context.load_agent_state(scope, id).await),
            format!("{:?}", context.load_todos(scope, id).await),
            format!("{unreadable:?}"),
            format!("{:?}", context.load_unreadable(scope, id, epoch).await),
            format!(
                "{:?}",
                context.changes(scope, id, ChangeCursor::START, 1000).await
            ),
            format!("{:?}", context.get_run(scope, id).await),
            format!("{:?}", context.usage(scope, id).await),
            format!("{:?}", context.export_conversation(scope, id).await),
        ]
    }

    /// Of all times.
    async fn usage_between(&self, scope: &impl OwnerScope) -> Tokens {
        let (from, to) = (DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC);
        let usage = self.context.usage_between(scope, from, to).await.unwrap();
        let messages = usage.models.iter().map(|model| model.messages).sum();
        (messages, usage.total().input, usage.total().output)
    }
}

impl Model {
    fn read(&self, key: (usize, Uuid), answer: impl FnOnce(&Talk) -> Answer) -> Answer {
        self.talks.get(&key).map_or(NOT_FOUND, answer)
    }

    fn write(&mut self, key: (usize, Uuid), answer: impl FnOnce(&mut Talk) -> Answer) -> Answer {
        self.talks.get_mut(&key).map_or(NOT_FOUND, answer)
    }

    /// A write whose answer does not tell its time.
    fn touch(&mut self, key: (usize, Uuid), answer: impl FnOnce(&mut Talk) -> Answer) -> Answer {
        self.write(key, |talk| {
            let answer = answer(talk);
            talk.touched = answer.is_ok();
            answer
        })
    }

    /// A copy of a conversation, or what is there already. Its time and its last message are those of
    /// the answer.
    fn fork(
        &mut self,
        owner: usize,
        source: Uuid,
        id: Uuid,
        answer: Option<&Conversation>,
    ) -> Answer {
        let key = (space(owner), id);
        if let Some(talk) = self.talks.get(&key) {
            let from = talk.metadata.get("forked_from");
            let is_fork = from.is_some_and(|from| from["conversation_id"] == json!(source));
            return if is_fork {
                Ok(talk.row(owner, id))
            } else {
                INVALID
            };
        }
        let (Some(talk), Some(answer)) = (self.talks.get(&(space(owner), source)), answer) else {
            return NOT_FOUND;
        };
        let mut metadata = talk.metadata.clone();
        let mut from = answer.metadata["forked_from"].clone();
        from["conversation_id"] = json!(source);
        metadata.insert("forked_from".to_owned(), from);
        let fork = Talk {
            title: talk.title.clone(),
            metadata,
            inserted_at: answer.inserted_at,
            updated_at: answer.inserted_at,
            touched: false,
            next: talk.next,
            changes: talk.changes,
            interrupted: talk.interrupted
                || talk
                    .items
                    .iter()
                    .any(|item| item.copied().status == Some(ToolStatus::Interrupted)),
            items: talk.items.iter().map(Entry::copied).collect(),
            run: None,
            archived_at: None,
            // They were counted where they come from.
            counted: talk.counted.keys().map(|id| (*id, (0, 0))).collect(),
        };
        let row = fork.row(owner, id);
        self.talks.insert(key, fork);
        Ok(row)
    }

    /// A copy of what an owner has for another one, or what is there already.
    fn import(&mut self, owner: usize, from: usize, source: Uuid, id: Uuid) -> Answer {
        let key = (space(owner), id);
        let Some(talk) = self.talks.get(&(space(from), source)) else {
            return NOT_FOUND;
        };
        if let Some(existing) = self.talks.get(&key) {
            return Ok(existing.row(owner, id));
        }
        let unchanged = |item: &Entry| Entry {
            changed: 0,
            ..item.copied()
        };
        let copy = Talk {
            title: talk.title.clone(),
            metadata: talk.metadata.clone(),
            inserted_at: talk.inserted_at,
            updated_at: talk.updated_at,
            archived_at: talk.archived_at,
            counted: talk.counted.clone(),
            touched: false,
            next: talk.items.last().map_or(0, |item| item.sequence + 1),
            changes: 0,
            interrupted: talk.interrupted,
            items: talk.items.iter().map(unchanged).collect(),
            run: None,
        };
        let row = copy.row(owner, id);
        self.talks.insert(key, copy);
        Ok(row)
    }

    /// The place of a conversation of any owner.
    fn spot(&self, id: Uuid) -> Option<Spot> {
        let ((_, id), talk) = self.talks.iter().find(|((_, other), _)| *other == id)?;
        Some((talk.updated_at, *id))
    }

    /// What all messages of an owner cost.
    fn usage(&self, owner: usize) -> Tokens {
        let talks = self.of(owner).map(|(_, talk)| talk.tokens());
        talks.fold((0, 0, 0), |sum, new| {
            (sum.0 + new.0, sum.1 + new.1, sum.2 + new.2)
        })
    }

    fn list(
        &self,
        owner: usize,
        order: ConversationOrder,
        archived: Archived,
        after: Option<Spot>,
    ) -> Vec<Value> {
        let (by_update, descending) = match order {
            ConversationOrder::UpdatedDesc => (true, true),
            ConversationOrder::UpdatedAsc => (true, false),
            ConversationOrder::CreatedDesc => (false, true),
            ConversationOrder::CreatedAsc => (false, false),
        };
        let place = |updated_at, id| (Some(updated_at).filter(|_| by_update), id);
        let after = after.map(|(updated_at, id)| place(updated_at, id));
        let mut found: Vec<_> = self
            .of(owner)
            .filter(|(_, talk)| match archived {
                Archived::Exclude => talk.archived_at.is_none(),
                Archived::Include => true,
                Archived::Only => talk.archived_at.is_some(),
            })
            .map(|(id, talk)| (place(talk.updated_at, id), talk))
            .collect();
        found.sort_by_key(|(place, _)| *place);
        if descending {
            found.reverse();
            found.retain(|(place, _)| after.is_none_or(|after| *place < after));
        } else {
            found.retain(|(place, _)| after.is_none_or(|after| *place > after));
        }
        let rows = found.iter().map(|((_, id), talk)| talk.row(owner, *id));
        rows.collect()
    }

    fn search(&self, owner: usize, text: &str) -> Vec<Value> {
        let mut found = self.matches(owner, text);
        found.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        found.into_iter().map(|(_, row)| row).collect()
    }

    /// What of an owner's contains a text, each with its place.
    fn matches(&self, owner: usize, text: &str) -> Vec<(Place, Value)> {
        let text = fold(&clean(text));
        let items = self
            .of(owner)
            .flat_map(|(id, talk)| talk.items.iter().map(move |item| (id, item)));
        let found = items.filter(|(_, item)| fold(&item.content).contains(&text));
        let place = |id: Uuid, item: &Entry| (item.inserted_at, id, item.sequence);
        found
            .map(|(id, item)| (place(id, item), item.row(owner, id)))
            .collect()
    }

    fn members(&self, group: usize) -> impl Iterator<Item = usize> {
        let of_group = self.members.iter().filter(move |(of, _)| *of == group);
        of_group.map(|(_, owner)| *owner)
    }

    /// The members who have a conversation with this id.
    fn owners_in(&self, group: usize, id: Uuid) -> Vec<usize> {
        let has = |owner: &usize| self.talks.contains_key(&(*owner, id));
        self.members(group).filter(has).collect()
    }

    fn list_of_group(
        &self,
        group: usize,
        (order, archived): (ConversationOrder, Archived),
        limit: u32,
        after: Option<Spot>,
    ) -> Answer {
        let by_update = matches!(
            order,
            ConversationOrder::UpdatedDesc | ConversationOrder::UpdatedAsc
        );
        let place = |row: &Value| {
            let updated_at = Some(row["updated_at"].clone()).filter(|_| by_update);
            (updated_at.map(|at| at.to_string()), row["id"].to_string())
        };
        let mut rows: Vec<Value> = self
            .members(group)
            .flat_map(|owner| self.list(owner, order, archived, after))
            .collect();
        rows.sort_by_key(place);
        if matches!(
            order,
            ConversationOrder::UpdatedDesc | ConversationOrder::CreatedDesc
        ) {
            rows.reverse();
        }
        page_with_ties(rows, limit, place)
    }

    fn search_of_group(&self, group: usize, text: &str, limit: u32) -> Answer {
        let mut found: Vec<_> = self
            .members(group)
            .flat_map(|owner| self.matches(owner, text))
            .collect();
        found.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        let place = |row: &Value| FOUND.iter().map(|key| row[key].clone()).collect::<Vec<_>>();
        let found = found.into_iter().map(|(_, row)| row).collect();
        page_with_ties(found, limit, place)
    }

    fn of(&self, owner: usize) -> impl Iterator<Item = (Uuid, &Talk)> {
        let own = self
            .talks
            .iter()
            .filter(move |((space, _), _)| *space == self::space(owner));
        own.map(|((_, id), talk)| (*id, talk))
    }
}

impl Talk {
    /// Deletes what is behind a message, and the message. A call is deleted with its result. Returns how
    /// many there were.
    fn rewind(&mut self, message_id: Uuid) -> Option<usize> {
        let first = |id: Uuid| {
            let mut items = self.items.iter().filter(|item| item.message_id == id);
            items.next().map(|item| item.sequence)
        };
        let mut cut = first(message_id)?;
        loop {
            let gone = self.items.iter().filter(|item| item.sequence >= cut);
            let results = gone.filter(|item| item.content_type == ContentType::ToolResult);
            let calls = results.filter_map(|result| {
                let before = self.items.iter().rev().filter(|item| {
                    item.content_type == ContentType::ToolCall
                        && item.tool_call_id == result.tool_call_id
                        && item.sequence < result.sequence
                });
                before.take(1).find(|call| call.sequence < cut)
            });
            let Some(separated) = calls.filter_map(|call| first(call.message_id)).min() else {
                break;
            };
            cut = separated;
        }
        let before = self.items.len();
        self.items.retain(|item| item.sequence < cut);
        self.changes += 1;
        if let Some(last) = self.items.last_mut() {
            last.changed = self.changes;
        }
        Some(before - self.items.len())
    }

    /// The item that was there already, or a new one.
    fn append(&mut self, draft: &Draft, message_id: Uuid, at: DateTime<Utc>) -> &Entry {
        let same = |item: &Entry| (item.message_id, item.item) == (message_id, draft.item);
        if let Some(index) = self.items.iter().position(same) {
            return &self.items[index];
        }
        let count = |key: &str| draft.metadata.get("usage")?.get(key)?.as_i64();
        let tokens = (count("input").unwrap_or(0), count("output").unwrap_or(0));
        if tokens != (0, 0) {
            self.counted.entry(message_id).or_insert(tokens);
        }
        self.changes += 1;
        self.items.push(Entry {
            changed: self.changes,
            sequence: self.next,
            message_id,
            item: draft.item,
            content_type: draft.content_type,
            content: clean(&draft.content),
            metadata: clean_map(&draft.metadata),
            tool_call_id: draft.tool_call_id.as_deref().map(clean),
            status: draft.status,
            inserted_at: at,
        });
        self.next += 1;
        self.updated_at = at;
        &self.items[self.items.len() - 1]
    }

    /// Counts a change of a tool call.
    fn changed(&mut self, call_id: &str) -> &mut Entry {
        self.changes += 1;
        let changes = self.changes;
        let item = self.newest(call_id, ContentType::ToolCall).unwrap();
        item.changed = changes;
        item
    }

    /// A decision is noted with the same change on the result.
    fn note_on_result(&mut self, call_id: &str, decision: HitlDecision) {
        let changes = self.changes;
        if let Some(result) = self.newest(call_id, ContentType::ToolResult) {
            result
                .metadata
                .insert("hitl_decision".into(), json!(decision));
            result.changed = changes;
        }
    }

    fn newest(&mut self, call_id: &str, content_type: ContentType) -> Option<&mut Entry> {
        let call_id = Some(clean(call_id));
        let mut newest_first = self.items.iter_mut().rev();
        newest_first.find(|item| item.content_type == content_type && item.tool_call_id == call_id)
    }

    fn call(&self, owner: usize, id: Uuid, call_id: &str) -> Answer {
        let call_id = Some(clean(call_id));
        let mut calls = self
            .items
            .iter()
            .filter(|item| item.content_type == ContentType::ToolCall);
        let newest = calls.rfind(|item| item.tool_call_id == call_id);
        newest.map_or(NOT_FOUND, |item| Ok(item.row(owner, id)))
    }

    fn page(&self, owner: usize, id: Uuid, from: MessagePosition, limit: u32) -> Answer {
        let (after, before, is_backward) = match from {
            MessagePosition::First => (-1, i64::MAX, false),
            MessagePosition::After(sequence) => (sequence, i64::MAX, false),
            MessagePosition::Last => (-1, i64::MAX, true),
            MessagePosition::Before(sequence) => (-1, sequence, true),
            MessagePosition::Next(cursor) => panic!("no call has {cursor}"),
        };
        let within = |item: &&Entry| after < item.sequence && item.sequence < before;
        let rows = self.items.iter().filter(within);
        let mut rows: Vec<_> = rows.map(|item| item.row(owner, id)).collect();
        if is_backward {
            rows.reverse();
        }
        let mut page = page(rows, limit)?;
        if is_backward {
            page["items"].as_array_mut().unwrap().reverse();
        }
        Ok(page)
    }

    fn tokens(&self) -> Tokens {
        let counted = self.counted.values();
        let counted = counted.filter(|tokens| **tokens != (0, 0));
        counted.fold((0, 0, 0), |sum, new| {
            (sum.0 + 1, sum.1 + new.0, sum.2 + new.1)
        })
    }

    fn row(&self, owner: usize, id: Uuid) -> Value {
        json!({
            "owner": key(owner),
            "id": id,
            "title": self.title,
            "scope": created_by(owner),
            "metadata": self.metadata,
            "interrupted": self.interrupted,
            "inserted_at": self.inserted_at,
            "updated_at": self.updated_at,
            "archived_at": self.archived_at,
        })
    }
}

impl Entry {
    fn forget_decision(&mut self) {
        for key in ["hitl_decision", "decision", "decision_claim", "claim"] {
            self.metadata.remove(key);
        }
    }

    /// As it is in a copy of its conversation: not running, and not approved.
    fn copied(&self) -> Self {
        let mut copy = self.clone();
        let is_approved = self.metadata.get("hitl_decision") == Some(&json!("approved"));
        let is_question = self.metadata.get("is_interrupt") == Some(&json!(true));
        let is_running = self.status == Some(ToolStatus::Executing);
        if is_running {
            copy.metadata
                .insert("started_elsewhere".into(), json!(true));
            copy.status = Some(ToolStatus::Unknown);
        }
        if is_approved && self.status.is_some_and(|status| !is_ended(status)) {
            copy.forget_decision();
            copy.status = Some(ToolStatus::Interrupted);
        } else if is_approved && is_question && self.tool_call_id.is_some() {
            copy.forget_decision();
        }
        copy
    }

    fn row(&self, owner: usize, conversation_id: Uuid) -> Value {
        json!({
            "owner": key(owner),
            "conversation_id": conversation_id,
            "sequence": self.sequence,
            "message_id": self.message_id,
            "item": self.item,
            "role": "user",
            "content_type": self.content_type,
            "content": self.content,
            "metadata": self.metadata,
            "is_error": self.metadata.get("is_error") == Some(&json!(true)),
            "tool_call_id": self.tool_call_id,
            "status": self.status,
            "inserted_at": self.inserted_at,
            "changed": self.changed,
            "delivery": "stored",
        })
    }
}

impl Draft {
    fn message(&self, messages: &[Uuid]) -> NewDisplayMessage {
        NewDisplayMessage {
            message_id: messages[self.message],
            item: self.item,
            role: Role::User,
            content_type: self.content_type,
            content: self.content.clone(),
            metadata: self.metadata.clone(),
            tool_call_id: self.tool_call_id.clone(),
            status: self.status,
        }
    }

    fn is_valid(&self) -> bool {
        let is_call = self.content_type == ContentType::ToolCall;
        self.item >= 0
            && is_call == self.status.is_some()
            && (!is_call || self.tool_call_id.is_some())
    }
}

async fn change_tool(
    context: &Context,
    scope: &impl OwnerScope,
    id: Uuid,
    call_id: &str,
    status: ToolStatus,
    metadata: &Map<String, Value>,
) -> Result<DisplayMessage, Error> {
    let metadata = metadata.clone();
    match status {
        ToolStatus::Executing => context.mark_tool_executing(scope, id, call_id).await,
        ToolStatus::Completed => {
            context
                .complete_tool_call(scope, id, call_id, metadata)
                .await
        }
        ToolStatus::Failed => context.fail_tool_call(scope, id, call_id, metadata).await,
        ToolStatus::Interrupted => {
            context
                .interrupt_tool_call(scope, id, call_id, metadata)
                .await
        }
        ToolStatus::Cancelled => context.cancel_tool_call(scope, id, call_id).await,
        ToolStatus::Pending | ToolStatus::Unknown => unreachable!("no call of a host does that"),
    }
}

fn may_become(before: ToolStatus, after: ToolStatus, decision: Option<&Value>) -> bool {
    match (before, after) {
        _ if is_ended(before) => false,
        (ToolStatus::Executing, ToolStatus::Executing) => false,
        (ToolStatus::Interrupted, ToolStatus::Executing) => decision == Some(&json!("approved")),
        (_, ToolStatus::Executing) => decision != Some(&json!("rejected")),
        _ => true,
    }
}

fn is_ended(status: ToolStatus) -> bool {
    use ToolStatus::{Cancelled, Completed, Failed, Unknown};
    [Cancelled, Completed, Failed, Unknown].contains(&status)
}

/// An answer as data, with what is left out where it serializes.
trait Seen {
    fn seen(&self) -> Value;
}

impl Seen for Conversation {
    fn seen(&self) -> Value {
        let mut row = json!(self);
        row["owner"] = key_of!(self);
        row["scope"] = self.scope.clone();
        row
    }
}

impl Seen for DisplayMessage {
    fn seen(&self) -> Value {
        let mut row = json!(self);
        row["owner"] = key_of!(self);
        row
    }
}

impl<T: Seen> Seen for Page<T> {
    fn seen(&self) -> Value {
        let items: Vec<_> = self.items.iter().map(T::seen).collect();
        json!({ "items": items, "more": self.next.is_some() })
    }
}

/// Whether the caller has the claim.
impl Seen for Claim<DisplayMessage> {
    fn seen(&self) -> Value {
        match self {
            Self::Claimed(call) => json!([true, call.seen()]),
            Self::Already(call) => json!([false, call.seen()]),
        }
    }
}

impl Seen for Decided<DisplayMessage> {
    fn seen(&self) -> Value {
        match self {
            Self::Claimed(call) => json!([true, call.seen()]),
            Self::Already(decision, call) => json!([decision, call.seen()]),
        }
    }
}

impl Seen for BeginRun {
    fn seen(&self) -> Value {
        match self {
            Self::Started(run) => json!([true, run.id]),
            Self::Busy(run) => json!([false, run.id]),
        }
    }
}

impl Seen for Value {
    fn seen(&self) -> Value {
        self.clone()
    }
}

impl Seen for u64 {
    fn seen(&self) -> Value {
        json!(self)
    }
}

impl Seen for () {
    fn seen(&self) -> Value {
        Value::Null
    }
}

fn rows<T: Seen>(answer: Result<T, Error>) -> Answer {
    match answer {
        Ok(rows) => Ok(rows.seen()),
        Err(Error::NotFound) => NOT_FOUND,
        Err(Error::Invalid(_)) => INVALID,
        Err(Error::NoOwner) => NO_OWNER,
        Err(Error::SeveralOwners) => SEVERAL_OWNERS,
        Err(error) => panic!("{error}"),
    }
}

fn clean(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

fn clean_map(map: &Map<String, Value>) -> Map<String, Value> {
    let text = json!(map).to_string().replace("\\u0000", "\u{FFFD}");
    serde_json::from_str(&text).unwrap()
}

fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

fn page(all: Vec<Value>, limit: u32) -> Answer {
    page_with_ties(all, limit, Value::to_string)
}

/// A page is not cut between conversations of several owners with the same id.
fn page_with_ties<K: PartialEq>(
    mut all: Vec<Value>,
    limit: u32,
    place: impl Fn(&Value) -> K,
) -> Answer {
    if !is_valid(limit) {
        return INVALID;
    }
    let limit = limit as usize;
    let more = all.len() > limit;
    if more {
        let last = place(&all[limit - 1]);
        let ties = all[limit..].iter().take_while(|row| place(row) == last);
        let length = limit + ties.count();
        all.truncate(length);
    }
    Ok(json!({ "items": all, "more": more }))
}

/// What the results of a search are ordered by.
const FOUND: &[&str] = &["inserted_at", "conversation_id", "sequence"];

/// What a list is ordered by.
fn keys(order: ConversationOrder) -> &'static [&'static str] {
    match order {
        ConversationOrder::UpdatedDesc | ConversationOrder::UpdatedAsc => &["updated_at", "id"],
        ConversationOrder::CreatedDesc | ConversationOrder::CreatedAsc => &["id"],
    }
}

/// The rows of a page in one order: which of several owners comes first is not defined.
fn sorted(answer: Answer, keys: &[&str]) -> Answer {
    let mut page = answer?;
    let rows = page["items"].as_array_mut().unwrap();
    let same = |one: &Value, other: &Value| keys.iter().all(|key| one[key] == other[key]);
    for run in rows.chunk_by_mut(same) {
        run.sort_by_key(Value::to_string);
    }
    Ok(page)
}

fn result(call_id: &str, text: &str, is_error: bool) -> ToolResult {
    ToolResult {
        is_error,
        ..ToolResult::new(call_id, "search", text)
    }
}

fn state(text: &str) -> State {
    let mut state = State::new();
    state.add_message(Message::user(text));
    state
}
