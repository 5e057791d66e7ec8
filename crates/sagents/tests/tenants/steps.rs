//! The calls that a case makes, and how they're chosen.

use proptest::prelude::*;
use proptest::sample::select;
use sagents::{ContentType, ConversationOrder, Decision, MessagePosition, NewDisplayMessage, Role, ToolStatus};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{CONVERSATIONS, MESSAGES, OWNERS};

/// One call of one owner, or of a group.
#[derive(Debug, Clone)]
pub struct Step {
    pub owner: usize,
    /// The owner joins or leaves it, or it makes the call.
    pub group: usize,
    pub by_group: bool,
    /// Which of the ids that all owners use.
    pub conversation: usize,
    pub call: Call,
}

#[derive(Debug, Clone)]
#[allow(clippy::option_option, reason = "keep, remove or set a title")]
pub enum Call {
    Create(Option<String>, Map<String, Value>),
    Get,
    Update(Option<Option<String>>, Option<Map<String, Value>>),
    Delete,
    Archive(bool),
    /// After the conversation of this step, of any owner, or from the start.
    List(ConversationOrder, bool, u32, bool),
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
pub struct Draft {
    pub message: usize,
    pub item: i32,
    pub content_type: ContentType,
    pub content: String,
    pub metadata: Map<String, Value>,
    pub tool_call_id: Option<String>,
    pub status: Option<ToolStatus>,
}

pub fn step(groups: usize) -> impl Strategy<Value = Step> {
    let member = (0..groups.max(1), prop::bool::weighted(0.4));
    (0..OWNERS, member, 0..CONVERSATIONS, call(groups)).prop_map(
        move |(owner, (group, by_group), conversation, call)| Step {
            owner,
            group,
            by_group: by_group && groups > 0 && call.has_scope(),
            conversation,
            call,
        },
    )
}

impl Call {
    pub fn has_scope(&self) -> bool {
        !matches!(self, Self::Housekeep | Self::HousekeepArchived | Self::Join | Self::Leave)
    }
}

pub fn call(groups: usize) -> impl Strategy<Value = Call> {
    let to_title = prop_oneof![Just(None), prop::option::of(text()).prop_map(Some)];
    let to_metadata = prop::option::of(metadata());
    // How often somebody joins a group, or leaves it.
    let memberships = if groups > 0 { 6 } else { 1 };
    let order = select(vec![ConversationOrder::Updated, ConversationOrder::Created]);
    let list = (order, any::<bool>(), limit(), any::<bool>());
    let position = prop_oneof![
        Just(MessagePosition::First),
        Just(MessagePosition::Last),
        (-1..8_i64).prop_map(MessagePosition::After),
        (-1..8_i64).prop_map(MessagePosition::Before),
    ];
    let target =
        select(vec![ToolStatus::Completed, ToolStatus::Failed, ToolStatus::Interrupted, ToolStatus::Cancelled]);
    let judgement = prop_oneof![
        Just(Decision::Approve),
        Just(Decision::Edit { arguments: json!({ "edited": true }) }),
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
        4 => (call_id(), text(), any::<bool>()).prop_map(|(id, content, is_error)| Call::Resolve(id, content, is_error)),
        4 => (call_id(), 0..MESSAGES).prop_map(|(id, claim)| Call::Claim(id, claim)),
        4 => (call_id(), judgement, 0..MESSAGES).prop_map(|(id, decision, claim)| Call::Judge(id, decision, claim)),
        4 => (0..MESSAGES).prop_map(Call::Begin),
        3 => (0..MESSAGES).prop_map(Call::End),
        1 => Just(Call::Housekeep),
        1 => Just(Call::HousekeepArchived),
        12 => (text(), any::<bool>()).prop_map(|(text, aside)| Call::Save(text, aside)),
        memberships => Just(Call::Join),
        memberships => Just(Call::Leave),
    ]
}

pub fn draft() -> impl Strategy<Value = Draft> {
    let plain = select(vec![ContentType::Text, ContentType::Thinking, ContentType::Notification]);
    let statuses = select(vec![ToolStatus::Pending, ToolStatus::Executing, ToolStatus::Interrupted]);
    let kind = prop_oneof![
        4 => plain.clone().prop_map(|kind| (kind, None, None)),
        6 => (call_id(), statuses.clone()).prop_map(|(id, status)| (ContentType::ToolCall, Some(id), Some(status))),
        4 => call_id().prop_map(|id| (ContentType::ToolResult, Some(id), None)),
        1 => (plain, statuses).prop_map(|(kind, status)| (kind, None, Some(status))),
        1 => Just((ContentType::ToolCall, None, Some(ToolStatus::Pending))),
        1 => call_id().prop_map(|id| (ContentType::ToolCall, Some(id), None)),
    ];
    let item = prop_oneof![1 => Just(-1), 20 => 0..3];
    (0..MESSAGES, item, kind, text(), metadata()).prop_map(|(message, item, kind, content, metadata)| Draft {
        message,
        item,
        content_type: kind.0,
        content,
        metadata,
        tool_call_id: kind.1,
        status: kind.2,
    })
}

/// Few letters, so that texts contain each other: of both cases, wildcards, and what cannot be shown.
pub fn text() -> impl Strategy<Value = String> {
    "[aAüÜ%_\\\\ß日 \\x00]{0,4}"
}

pub fn metadata() -> impl Strategy<Value = Map<String, Value>> {
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

pub fn call_id() -> impl Strategy<Value = String> {
    select(vec!["call_1".to_owned(), "call\0_2".to_owned()])
}

/// Every list has a page of 100.
pub fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 1..4_u32, 2 => Just(100), 1 => Just(0), 1 => Just(u32::MAX)]
}

pub fn is_valid(limit: u32) -> bool {
    (1..=100).contains(&limit)
}

impl Draft {
    pub fn message(&self, messages: &[Uuid]) -> NewDisplayMessage {
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

    pub fn is_valid(&self) -> bool {
        let is_call = self.content_type == ContentType::ToolCall;
        self.item >= 0 && is_call == self.status.is_some() && (!is_call || self.tool_call_id.is_some())
    }
}
