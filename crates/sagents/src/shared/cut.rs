//! The search for the cut of a fork or a rewind. Each database compiles this module with its own types and statements.

use std::ops::Range;

use uuid::Uuid;

use super::branches::outline_ids;
use super::{Connection, Driver, Row};
use crate::cut::{Outline, Place, Search, Step, ToolEntry};
use crate::rows::{self, Columns as _};
use crate::serializer;
use crate::statement::Statement;
use crate::{Error, Owner, Point, Result, Revision};

/// What the databases return in different forms.
pub(super) struct OutlineIds {
    pub(super) agent: Vec<(i64, Uuid)>,
    pub(super) shown: Vec<(i64, Uuid)>,
    pub(super) waiting: Vec<i64>,
}

impl Driver {
    /// Searches the cut, in a transaction that has the conversation to itself.
    pub(super) async fn search_cut(
        &self,
        connection: &mut Connection,
        owner: &Owner,
        id: Uuid,
        point: Point,
    ) -> Result<Place> {
        let sql = &self.sql.branches;
        let row = sqlx::query(&sql.outline).bind(id).bind(owner.key());
        let row = row.fetch_optional(&mut *connection).await?.ok_or(Error::NotFound)?;
        let mut search = Search::new(outline(&row)?, point)?;
        loop {
            match search.step() {
                Step::AgentTools(range) => {
                    let tools = tools(connection, &sql.agent_tools, owner, id, &range).await?;
                    search.add_agent_tools(&range, tools);
                }
                Step::ShownTools(range) => {
                    let tools = tools(connection, &sql.shown_tools, owner, id, &range).await?;
                    search.add_shown_tools(&range, tools);
                }
                Step::Done(place) => return Ok(*place),
            }
        }
    }
}

fn outline(row: &Row) -> Result<Outline> {
    let revision: Option<i64> = row.at(1)?;
    let state = match revision {
        Some(revision) => Some((Revision(revision), serializer::read_stored("", row.bytes(2)?)?)),
        None => None,
    };
    let OutlineIds { agent, shown, waiting } = outline_ids(row)?;
    let agent = Outline::agent_messages(state.as_ref().map(|(_, header)| header), agent)?;
    Ok(Outline { last_change: row.at(0)?, agent, shown, waiting, state })
}

async fn tools(
    connection: &mut Connection,
    statement: &Statement,
    owner: &Owner,
    id: Uuid,
    range: &Range<i64>,
) -> Result<Vec<ToolEntry>> {
    let tools = sqlx::query(statement)
        .bind(id)
        .bind(range.start)
        .bind(range.end)
        .bind(owner.key())
        .try_map(|row: Row| rows::tool_entry(&row))
        .fetch_all(connection)
        .await?;
    Ok(tools.into_iter().flatten().collect())
}
