//! Random calls of several owners, made to the store and to a simple model in memory.
//!
//! Every answer equals the model's. So does everything that the caller sees after a call, and everything that anyone
//! sees after some calls and at the end. All owners use the same few ids, so most calls name another owner's rows. Where
//! there are groups, owners join and leave them; a group sees what its members see, and changes nothing.

mod compare;
mod groups;
mod model;
mod seen;
mod steps;
#[path = "../support/mod.rs"]
mod support;
mod talk;
mod world;

use std::time::Duration;

use proptest::test_runner::{Config, TestRunner};
use sagents::{Key, Owner, Reach, Tables};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use self::support::fixture::{Fixture, KINDS};
use self::support::{TABLES, TestDatabase};

on_both_databases!(
    integer_keys_separate_owners,
    uuid_keys_separate_owners,
    text_keys_separate_owners,
    without_owners_everybody_sees_everything,
    groups_read_what_their_members_have,
);

const LEASE: Duration = Duration::from_secs(1000);
const OWNERS: usize = 3;
const CONVERSATIONS: usize = 2;
const MESSAGES: usize = 5;
/// Everything that anyone sees is compared after so many calls, since that takes forty more.
const EVERYTHING_AFTER: usize = 12;
const CASES: u32 = 16;

async fn integer_keys_separate_owners(database: &TestDatabase) {
    every_answer_equals_the_models(database, Owners { tables: KINDS[0], groups: 0 }).await;
}

async fn uuid_keys_separate_owners(database: &TestDatabase) {
    every_answer_equals_the_models(database, Owners { tables: KINDS[1], groups: 0 }).await;
}

async fn text_keys_separate_owners(database: &TestDatabase) {
    every_answer_equals_the_models(database, Owners { tables: KINDS[2], groups: 0 }).await;
}

async fn without_owners_everybody_sees_everything(database: &TestDatabase) {
    every_answer_equals_the_models(database, Owners { tables: KINDS[3], groups: 0 }).await;
}

async fn groups_read_what_their_members_have(database: &TestDatabase) {
    every_answer_equals_the_models(database, Owners { tables: TABLES, groups: 2 }).await;
}

async fn every_answer_equals_the_models(database: &TestDatabase, owners: Owners) {
    let context = match owners.groups {
        0 => Fixture::new(database, owners.tables).await,
        _ => Fixture::with_group(database, owners.tables, 0).await,
    };
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(CASES) });
    let steps = proptest::collection::vec(steps::step(owners.groups), 1..60);
    let outcome = block_in_place(|| {
        runner.run(&steps, |steps| {
            Handle::current().block_on(Box::pin(world::run(&context, owners, &steps)));
            Ok(())
        })
    });
    outcome.unwrap();
}

/// The owners of a case, and their groups.
#[derive(Clone, Copy)]
struct Owners {
    tables: Tables,
    groups: usize,
}

impl Owners {
    fn scope(&self, owner: usize) -> Owner {
        support::fixture::owner(&self.tables, u8::try_from(owner).unwrap())
    }

    /// The owners whose rows are the same ones.
    fn space(&self, owner: usize) -> usize {
        if self.scope(owner) == Owner::none() { 0 } else { owner }
    }

    #[allow(clippy::unused_self, reason = "as the others")]
    fn group(&self, group: usize) -> Reach {
        Reach::Group(Key::Integer(i64::try_from(group).unwrap()))
    }

    /// The statement for an owner who joins a group.
    fn join(&self, owner: usize, group: usize) -> String {
        match self.groups {
            0 => "SELECT 1".to_owned(),
            _ => format!("INSERT INTO memberships VALUES ({group}, {owner}) ON CONFLICT DO NOTHING"),
        }
    }

    /// The statement for an owner who leaves a group.
    fn leave(&self, owner: usize, group: usize) -> String {
        match self.groups {
            0 => "SELECT 1".to_owned(),
            _ => format!("DELETE FROM memberships WHERE org_id = {group} AND user_id = {owner}"),
        }
    }

    async fn clear(&self, context: &Fixture) {
        context.pool.execute(format!("DELETE FROM {}", context.table("conversations"))).await;
        if self.groups > 0 {
            context.pool.execute("DELETE FROM memberships").await;
        }
    }
}
