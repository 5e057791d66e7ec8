//! A simple model of what is stored: every conversation in a map.

use std::collections::{BTreeMap, BTreeSet};

use sagents::{Conversation, ConversationOrder, Timestamp, Usage};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Owners;
use super::seen::{FOUND, clean, fold, page_with_ties};
use super::talk::{Entry, Talk};

/// Everything that was stored, by space and id.
pub struct Model {
    pub owners: Owners,
    pub talks: BTreeMap<(usize, Uuid), Talk>,
    /// Who is in which group. An owner who joins twice has two rows, and leaving deletes both.
    pub members: BTreeSet<(usize, usize)>,
}

/// How many messages were counted, and their input and output.
pub type Tokens = (u64, u64, u64);

pub fn tokens(tokens: Tokens) -> Value {
    json!([tokens.0, tokens.1, tokens.2])
}

pub fn usage_seen(usage: &Usage) -> Value {
    let messages = usage.models.iter().map(|model| model.messages).sum();
    tokens((messages, usage.total().input, usage.total().output))
}

/// Where a conversation is in a list.
pub type Spot = (Timestamp, Uuid);

/// Where a message is in the results of a search.
pub type Place = (Timestamp, Uuid, i64);

/// An answer as data, so that rows of every kind of owner compare.
pub type Answer = Result<Value, &'static str>;

pub const NOT_FOUND: Answer = Err("not found");
pub const INVALID: Answer = Err("invalid");
pub const AMBIGUOUS: Answer = Err("ambiguous");
pub const NO_OWNER: Answer = Err("no owner");

impl Model {
    pub fn new(owners: Owners) -> Self {
        Self { owners, talks: BTreeMap::new(), members: BTreeSet::new() }
    }

    pub fn read(&self, key: (usize, Uuid), answer: impl FnOnce(&Talk) -> Answer) -> Answer {
        self.talks.get(&key).map_or(NOT_FOUND, answer)
    }

    pub fn write(&mut self, key: (usize, Uuid), answer: impl FnOnce(&mut Talk) -> Answer) -> Answer {
        self.talks.get_mut(&key).map_or(NOT_FOUND, answer)
    }

    /// A write whose answer does not tell its time.
    pub fn touch(&mut self, key: (usize, Uuid), answer: impl FnOnce(&mut Talk) -> Answer) -> Answer {
        self.write(key, |talk| {
            let answer = answer(talk);
            talk.touched = answer.is_ok();
            answer
        })
    }

    /// A copy of a conversation, or what is there already. Its time and its last message are those of
    /// the answer.
    pub fn fork(&mut self, owner: usize, source: Uuid, id: Uuid, answer: Option<&Conversation>) -> Answer {
        let key = (self.owners.space(owner), id);
        if let Some(talk) = self.talks.get(&key) {
            let from = talk.metadata.get("forked_from");
            let is_fork = from.is_some_and(|from| from["conversation_id"] == json!(source));
            return if is_fork { Ok(talk.row(id)) } else { INVALID };
        }
        let (Some(talk), Some(answer)) = (self.talks.get(&(self.owners.space(owner), source)), answer) else {
            return NOT_FOUND;
        };
        let mut metadata = talk.metadata.clone();
        let mut from = answer.metadata["forked_from"].clone();
        from["conversation_id"] = json!(source);
        metadata.insert("forked_from".to_owned(), from);
        let fork = Talk {
            scope: talk.scope.clone(),
            title: talk.title.clone(),
            metadata,
            inserted_at: answer.inserted_at,
            updated_at: answer.inserted_at,
            touched: false,
            next: talk.next,
            changes: talk.changes,
            interrupted: talk.interrupted || talk.waits_in_copy(),
            items: talk.items.iter().map(Entry::copied).collect(),
            run: None,
            archived_at: None,
            // They were counted where they come from.
            counted: talk.counted.keys().map(|id| (*id, (0, 0))).collect(),
        };
        let row = fork.row(id);
        self.talks.insert(key, fork);
        Ok(row)
    }

    /// A copy of what an owner has for another one, or what is there already.
    pub fn import(
        &mut self,
        owner: usize,
        from: usize,
        source: Uuid,
        id: Uuid,
        answer: Option<&Conversation>,
    ) -> Answer {
        let key = (self.owners.space(owner), id);
        let Some(talk) = self.talks.get(&(self.owners.space(from), source)) else {
            return NOT_FOUND;
        };
        if let Some(existing) = self.talks.get(&key) {
            return Ok(existing.row(id));
        }
        // Each imported message is a change of its own.
        let imported = |(changed, item): (i64, &Entry)| Entry { changed, ..item.copied() };
        let copy = Talk {
            scope: self.owners.scope(owner).to_json(),
            title: talk.title.clone(),
            metadata: talk.metadata.clone(),
            inserted_at: talk.inserted_at,
            updated_at: answer.map_or(talk.updated_at, |row| row.updated_at),
            archived_at: talk.archived_at.and(answer.and_then(|row| row.archived_at)),
            counted: talk.counted.clone(),
            touched: false,
            next: talk.items.last().map_or(0, |item| item.sequence + 1),
            changes: i64::try_from(talk.items.len()).unwrap(),
            interrupted: talk.interrupted,
            items: (1..).zip(&talk.items).map(imported).collect(),
            run: None,
        };
        let row = copy.row(id);
        self.talks.insert(key, copy);
        Ok(row)
    }

    /// The place of a conversation of any owner.
    pub fn spot(&self, id: Uuid) -> Option<Spot> {
        let ((_, id), talk) = self.talks.iter().find(|((_, other), _)| *other == id)?;
        Some((talk.updated_at, *id))
    }

    /// What all messages of an owner cost.
    pub fn usage(&self, owner: usize) -> Tokens {
        let talks = self.of(owner).map(|(_, talk)| talk.tokens());
        talks.fold((0, 0, 0), |sum, new| (sum.0 + new.0, sum.1 + new.1, sum.2 + new.2))
    }

    pub fn list(&self, owner: usize, order: ConversationOrder, archived: bool, after: Option<Spot>) -> Vec<Value> {
        let by_update = order == ConversationOrder::Updated;
        let place = |updated_at, id| (Some(updated_at).filter(|_| by_update), id);
        let after = after.map(|(updated_at, id)| place(updated_at, id));
        let mut found: Vec<_> = self
            .of(owner)
            .filter(|(_, talk)| talk.archived_at.is_some() == archived)
            .map(|(id, talk)| (place(talk.updated_at, id), talk))
            .collect();
        found.sort_by_key(|(place, _)| *place);
        found.reverse();
        found.retain(|(place, _)| after.is_none_or(|after| *place < after));
        let rows = found.iter().map(|((_, id), talk)| talk.row(*id));
        rows.collect()
    }

    pub fn search(&self, owner: usize, text: &str) -> Vec<Value> {
        let mut found = self.matches(owner, text);
        found.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        found.into_iter().map(|(_, row)| row).collect()
    }

    /// The owner's messages that contain all words, each with its place. A title finds the first message.
    pub fn matches(&self, owner: usize, text: &str) -> Vec<(Place, Value)> {
        let text = fold(&clean(text));
        let words: Vec<_> = text.split_whitespace().collect();
        let has_all = |text: &str| {
            let text = fold(text);
            words.iter().all(|word| text.contains(word))
        };
        let mut found = Vec::new();
        for (id, talk) in self.of(owner) {
            let has_title = talk.title.as_deref().is_some_and(has_all);
            for (index, item) in talk.items.iter().enumerate() {
                if has_all(&item.content) || (has_title && index == 0) {
                    found.push(((item.inserted_at, id, item.sequence), item.row(id)));
                }
            }
        }
        found
    }

    pub fn members(&self, group: usize) -> impl Iterator<Item = usize> {
        let of_group = self.members.iter().filter(move |(of, _)| *of == group);
        of_group.map(|(_, owner)| *owner)
    }

    /// The member who has a conversation with this id, if that is only one.
    pub fn owner_in_group(&self, group: usize, id: Uuid) -> Result<usize, &'static str> {
        let mut owners = self.members(group).filter(|owner| self.talks.contains_key(&(*owner, id)));
        match (owners.next(), owners.next()) {
            (Some(owner), None) => Ok(owner),
            (Some(_), Some(_)) => Err("ambiguous"),
            (None, _) => Err("not found"),
        }
    }

    pub fn list_of_group(
        &self,
        group: usize,
        (order, archived): (ConversationOrder, bool),
        limit: u32,
        after: Option<Spot>,
    ) -> Answer {
        let by_update = order == ConversationOrder::Updated;
        let place = |row: &Value| {
            let updated_at = Some(row["updated_at"].clone()).filter(|_| by_update);
            (updated_at.map(|at| at.to_string()), row["id"].to_string())
        };
        let mut rows: Vec<Value> =
            self.members(group).flat_map(|owner| self.list(owner, order, archived, after)).collect();
        rows.sort_by_key(place);
        rows.reverse();
        page_with_ties(rows, limit, place)
    }

    pub fn search_of_group(&self, group: usize, text: &str, limit: u32) -> Answer {
        let mut found: Vec<_> = self.members(group).flat_map(|owner| self.matches(owner, text)).collect();
        found.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        let place = |row: &Value| FOUND.iter().map(|key| row[key].clone()).collect::<Vec<_>>();
        let found = found.into_iter().map(|(_, row)| row).collect();
        page_with_ties(found, limit, place)
    }

    pub fn of(&self, owner: usize) -> impl Iterator<Item = (Uuid, &Talk)> {
        let own = self.talks.iter().filter(move |((space, _), _)| *space == self.owners.space(owner));
        own.map(|((_, id), talk)| (*id, talk))
    }
}
