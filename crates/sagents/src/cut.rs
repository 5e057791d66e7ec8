//! Where a fork or a rewind cuts a conversation: a search in ids and positions, without the messages.
//!
//! A conversation is in two tables. The agent's messages have positions, display messages have sequences, and message ids
//! connect them. A cut is a position and a sequence; rows from there on don't stay. A display message stays if the agent's
//! message with its id stays, or else if it's before the cut. No cut separates a tool call from its result.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use uuid::Uuid;

use crate::serializer::ReadError;
use crate::stored::HeaderState;
use crate::{Cut, Error, Point, Result, Revision};

/// A conversation, as far as a search needs it.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) last_change: i64,
    pub(crate) state: Option<(Revision, HeaderState)>,
    /// The ids of the agent's messages, by position.
    pub(crate) agent: Vec<Uuid>,
    /// The sequences and ids of display messages, by sequence.
    pub(crate) shown: Vec<(i64, Uuid)>,
    /// The sequences of tool calls that wait for a person, or would do so in a fork.
    pub(crate) waiting: Vec<i64>,
}

impl Outline {
    /// The ids of the agent's messages, which the positions must number without gaps.
    ///
    /// # Errors
    ///
    /// [`ReadError::Damaged`] if they aren't the messages of the header.
    pub(crate) fn agent_messages(
        header: Option<&HeaderState>,
        mut messages: Vec<(i64, Uuid)>,
    ) -> Result<Vec<Uuid>, ReadError> {
        messages.sort_unstable();
        let (expected, found) = (header.map_or(0, HeaderState::count), messages.len());
        if expected != found {
            return Err(ReadError::damaged("state.messages", format!("expected {expected} rows, found {found}")));
        }
        let is_misplaced = |(index, (position, _)): &(usize, &(i64, Uuid))| usize::try_from(*position) != Ok(*index);
        if let Some((index, (position, _))) = messages.iter().enumerate().find(is_misplaced) {
            let reason = format!("expected its row, found that of {position}");
            return Err(ReadError::damaged(&format!("state.messages[{index}]"), reason));
        }
        Ok(messages.into_iter().map(|(_, id)| id).collect())
    }
}

/// A tool call, or a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolEntry {
    /// The position or the sequence of its message.
    pub(crate) at: i64,
    pub(crate) is_call: bool,
    pub(crate) tool_call_id: String,
}

/// A step of a search.
#[derive(Debug)]
pub(crate) enum Step {
    /// The search needs the [tools](Search::add_agent_tools) of the agent's messages at these positions.
    AgentTools(Range<i64>),
    /// The search needs the [tools](Search::add_shown_tools) of display messages with these sequences.
    ShownTools(Range<i64>),
    Done(Box<Place>),
}

/// A conversation, and where to cut it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) cut: Cut,
    pub(crate) last_change: i64,
    pub(crate) state: Option<(Revision, HeaderState)>,
    /// How many of the agent's messages stay.
    pub(crate) position: i64,
    /// The first sequence that doesn't stay, except for `displaced`.
    pub(crate) sequence: i64,
    /// The sequences before the cut that don't stay, and those behind it that do.
    pub(crate) displaced: Vec<i64>,
    /// How many display messages don't stay.
    pub(crate) removed: u64,
    /// The last sequence that stays.
    pub(crate) last_sequence: Option<i64>,
    /// Whether a tool call that stays waits for a person.
    pub(crate) is_waiting: bool,
}

impl Place {
    /// The header of the state with only the messages that stay.
    pub(crate) fn header(&self) -> Result<Option<String>> {
        let Some((_, header)) = &self.state else {
            return Ok(None);
        };
        Ok(Some(header.cut(usize::try_from(self.position).unwrap_or(usize::MAX))?))
    }

    /// Whether something is behind the cut.
    pub(crate) fn removes(&self) -> bool {
        let count = self.state.as_ref().map_or(0, |(_, header)| header.count());
        self.removed > 0 || usize::try_from(self.position).unwrap_or(usize::MAX) < count
    }

    pub(crate) fn revision(&self) -> Option<Revision> {
        self.state.as_ref().map(|(revision, _)| *revision)
    }

    /// The first sequence that a rewind may delete.
    #[cfg(feature = "_sqlite")]
    pub(crate) fn first_removed(&self) -> i64 {
        self.displaced.iter().copied().fold(self.sequence, i64::min)
    }
}

/// The search for a cut. Tool calls are read as far as it needs them: nearly always only those behind the cut.
#[derive(Debug)]
pub(crate) struct Search {
    outline: Outline,
    /// Where each message is.
    places: HashMap<Uuid, Known>,
    point: Point,
    moved: bool,
    /// Once the cut has moved, it doesn't go back.
    limit: Limit,
    agent_tools: Tools,
    shown_tools: Tools,
}

/// The first position and the first sequence that don't stay.
#[derive(Debug, Clone, Copy)]
struct Limit {
    position: i64,
    sequence: i64,
}

/// The first and the last position of a message, and its first and last sequence.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    positions: Option<(i64, i64)>,
    sequences: Option<(i64, i64)>,
}

/// The tools that were read: all from `start` on.
#[derive(Debug)]
struct Tools {
    start: i64,
    tools: Vec<ToolEntry>,
}

impl Search {
    /// # Errors
    ///
    /// [`Error::NotFound`] if no message has the id of the point.
    pub(crate) fn new(outline: Outline, point: Point) -> Result<Self> {
        let mut places: HashMap<Uuid, Known> = HashMap::with_capacity(outline.agent.len());
        for (position, id) in (0..).zip(&outline.agent) {
            extend(&mut places.entry(*id).or_default().positions, position);
        }
        for (sequence, id) in &outline.shown {
            extend(&mut places.entry(*id).or_default().sequences, *sequence);
        }
        if let Point::Through(id) | Point::Before(id) = point
            && !places.contains_key(&id)
        {
            return Err(Error::NotFound);
        }
        let limit = Limit { position: i64::MAX, sequence: i64::MAX };
        let tools = || Tools { start: i64::MAX, tools: Vec::new() };
        Ok(Self { outline, places, point, moved: false, limit, agent_tools: tools(), shown_tools: tools() })
    }

    pub(crate) fn add_agent_tools(&mut self, range: &Range<i64>, tools: Vec<ToolEntry>) {
        self.agent_tools.add(range, tools);
    }

    pub(crate) fn add_shown_tools(&mut self, range: &Range<i64>, tools: Vec<ToolEntry>) {
        self.shown_tools.add(range, tools);
    }

    /// Goes on as far as it can.
    pub(crate) fn step(&mut self) -> Step {
        loop {
            let limit = self.limit();
            let separated = match self.separated_in_state(limit) {
                Ok(None) => self.separated_in_display(limit),
                separated => separated,
            };
            match separated {
                Ok(None) => return Step::Done(Box::new(self.place(limit))),
                Ok(Some(call)) => (self.point, self.moved, self.limit) = (Point::Before(call), true, limit),
                Err(missing) => return missing,
            }
        }
    }

    /// The cut at the point. In a table that doesn't have the message, it's before the first message that is behind the cut
    /// in the other one.
    fn limit(&self) -> Limit {
        let (id, stays) = match self.point {
            Point::End => return self.limit,
            Point::Through(id) => (id, true),
            Point::Before(id) => (id, false),
        };
        let at = |(first, last): (i64, i64)| if stays { last + 1 } else { first };
        let known = self.places.get(&id).copied().unwrap_or_default();
        let (position, sequence) = (known.positions.map(at), known.sequences.map(at));
        let behind = self.places.values();
        let position = position.or_else(|| {
            let sequence = sequence?;
            let behind = behind.clone().filter(|known| known.sequences.is_some_and(|(_, last)| last >= sequence));
            behind.filter_map(|known| Some(known.positions?.0)).min()
        });
        let sequence = sequence.or_else(|| {
            let position = position?;
            let behind = behind.filter(|known| known.positions.is_some_and(|(_, last)| last >= position));
            behind.filter_map(|known| Some(known.sequences?.0)).min()
        });
        Limit {
            position: position.map_or(self.limit.position, |position| position.min(self.limit.position)),
            sequence: sequence.map_or(self.limit.sequence, |sequence| sequence.min(self.limit.sequence)),
        }
    }

    /// Whether a display message stays.
    fn stays(&self, (sequence, id): (i64, Uuid), limit: Limit) -> bool {
        match self.places.get(&id).and_then(|known| known.positions) {
            Some((_, last)) => last < limit.position,
            None => sequence < limit.sequence,
        }
    }

    /// The agent's first message with a call that stays and whose result doesn't.
    fn separated_in_state(&self, limit: Limit) -> Result<Option<Uuid>, Step> {
        let Limit { position, .. } = limit;
        let end = len(&self.outline.agent);
        if position >= end {
            return Ok(None);
        }
        self.agent_tools.must_reach(position, end).map_err(Step::AgentTools)?;
        let mut open: HashMap<&str, Option<i64>> = HashMap::new();
        let mut called = HashSet::new();
        for tool in self.agent_tools.from(position) {
            let id = tool.tool_call_id.as_str();
            if tool.is_call {
                let _ = called.insert(id);
            } else if !called.contains(id) {
                let _ = open.insert(id, None);
            }
        }
        if open.is_empty() {
            return Ok(None);
        }
        self.agent_tools.must_reach(0, end).map_err(Step::AgentTools)?;
        for tool in self.agent_tools.before(position).filter(|tool| tool.is_call) {
            if let Some(call) = open.get_mut(tool.tool_call_id.as_str()) {
                *call = Some(tool.at);
            }
        }
        let first = open.into_values().flatten().min();
        Ok(first.and_then(|first| self.outline.agent.get(usize::try_from(first).ok()?).copied()))
    }

    /// The message of the first displayed call that stays and whose result doesn't.
    fn separated_in_display(&self, limit: Limit) -> Result<Option<Uuid>, Step> {
        let shown = &self.outline.shown;
        let (Some(first), Some((last, _))) = (shown.iter().find(|row| !self.stays(**row, limit)), shown.last()) else {
            return Ok(None);
        };
        let end = last + 1;
        self.shown_tools.must_reach(first.0, end).map_err(Step::ShownTools)?;
        let row = |sequence: i64| {
            let index = shown.binary_search_by_key(&sequence, |(sequence, _)| *sequence);
            index.ok().map(|index| shown[index])
        };
        let stays = |sequence| row(sequence).is_some_and(|row| self.stays(row, limit));
        let mut separated: Option<i64> = None;
        // The newest call of each id.
        let mut calls: HashMap<&str, i64> = HashMap::new();
        // The results that don't stay and have no call among these.
        let mut open = Vec::new();
        for tool in self.shown_tools.from(first.0) {
            let id = tool.tool_call_id.as_str();
            if tool.is_call {
                let _ = calls.insert(id, tool.at);
            } else if !stays(tool.at) {
                match calls.get(id) {
                    Some(call) if stays(*call) => separated = Some(separated.map_or(*call, |other| other.min(*call))),
                    Some(_) => {}
                    None => open.push(id),
                }
            }
        }
        if !open.is_empty() {
            let start = shown.first().map_or(0, |(sequence, _)| *sequence);
            self.shown_tools.must_reach(start, end).map_err(Step::ShownTools)?;
            let calls: HashMap<_, _> = self
                .shown_tools
                .before(first.0)
                .filter(|tool| tool.is_call)
                .map(|tool| (tool.tool_call_id.as_str(), tool.at))
                .collect();
            // What is before the first one that goes stays.
            let earlier = open.into_iter().filter_map(|id| calls.get(id).copied()).min();
            separated = earlier.or(separated);
        }
        Ok(separated.and_then(row).map(|(_, id)| id))
    }

    fn place(&mut self, limit: Limit) -> Place {
        let outline = std::mem::take(&mut self.outline);
        let (mut removed, mut displaced, mut last_shown) = (0, Vec::new(), None);
        for row in &outline.shown {
            let stays = self.stays(*row, limit);
            if stays {
                last_shown = Some(*row);
            } else {
                removed += 1;
            }
            if stays != (row.0 < limit.sequence) {
                displaced.push(row.0);
            }
        }
        let is_waiting = outline.waiting.iter().any(|sequence| {
            let index = outline.shown.binary_search_by_key(sequence, |(sequence, _)| *sequence);
            index.is_ok_and(|index| self.stays(outline.shown[index], limit))
        });
        let position = limit.position.min(len(&outline.agent));
        let last_of_agent = || outline.agent.get(usize::try_from(position - 1).ok()?).copied();
        let last = match self.point {
            // It stays, also if it isn't displayed.
            Point::Through(id) => Some(id),
            Point::End | Point::Before(_) => last_shown.map(|(_, id)| id).or_else(last_of_agent),
        };
        Place {
            cut: Cut { last, moved: self.moved },
            last_change: outline.last_change,
            position,
            sequence: limit.sequence,
            displaced,
            removed,
            last_sequence: last_shown.map(|(sequence, _)| sequence),
            is_waiting,
            state: outline.state,
        }
    }
}

impl Tools {
    /// The range that has to be read before all tools from `start` on are known.
    fn must_reach(&self, start: i64, end: i64) -> Result<(), Range<i64>> {
        if start < self.start { Err(start..self.start.min(end)) } else { Ok(()) }
    }

    fn add(&mut self, range: &Range<i64>, mut tools: Vec<ToolEntry>) {
        // In a message, calls come before results.
        tools.sort_by_key(|tool| (tool.at, !tool.is_call));
        tools.append(&mut self.tools);
        (self.start, self.tools) = (range.start, tools);
    }

    fn from(&self, start: i64) -> impl Iterator<Item = &ToolEntry> {
        self.tools[self.index(start)..].iter()
    }

    fn before(&self, end: i64) -> impl Iterator<Item = &ToolEntry> {
        self.tools[..self.index(end)].iter()
    }

    fn index(&self, at: i64) -> usize {
        self.tools.partition_point(|tool| tool.at < at)
    }
}

fn extend(range: &mut Option<(i64, i64)>, at: i64) {
    *range = Some(range.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
}

fn len(messages: &[Uuid]) -> i64 {
    i64::try_from(messages.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
