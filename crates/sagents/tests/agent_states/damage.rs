//! States whose rows are damaged: the damage is reported with its place, never blocks saving, and nothing is lost.

use sagents::{Expect, LoadContext, Message, Revision, State};

use crate::support::fixture::Fixture;
use crate::support::{TABLES, TestDatabase};
use crate::{assert_not_found, on_both_databases};

on_both_databases!(damage_is_reported_with_its_place_and_never_blocks_saving);

/// Statements that damage the current state of three messages, and what is reported.
const DAMAGES: [(&str, &str); 6] = [
    (
        r#"UPDATE sagents_agent_states SET data = '{"version":3,"state":{"todos":1,"messages":{"count":3}}}'"#,
        "the state is damaged: state.todos: expected an array, found a number",
    ),
    ("UPDATE sagents_agent_states SET data = '[]'", "the state is damaged: root: expected an object, found an array"),
    (
        r#"UPDATE sagents_agent_messages SET data = '{"role":"robot"}'
           WHERE position = 1 AND epoch = (SELECT epoch FROM sagents_agent_states)"#,
        r#"the state is damaged: state.messages[1].role: "robot" is not a role"#,
    ),
    (
        "DELETE FROM sagents_agent_messages
         WHERE position = 1 AND epoch = (SELECT epoch FROM sagents_agent_states)",
        "the state is damaged: state.messages[1]: expected its row, found that of 2",
    ),
    (
        "DELETE FROM sagents_agent_messages
         WHERE position = 2 AND epoch = (SELECT epoch FROM sagents_agent_states)",
        "the state is damaged: state.messages: expected 3 rows, found 2",
    ),
    (
        r#"UPDATE sagents_agent_states SET data = '{"version":3,"state":{"messages":{"count":2}}}'"#,
        "the state is damaged: state.messages: expected 2 rows, found 3",
    ),
];

async fn damage_is_reported_with_its_place_and_never_blocks_saving(database: &TestDatabase) {
    let db = Fixture::new(database, TABLES).await;
    let alice = &db.alice;
    let seconds = DAMAGES.iter().cycle().skip(1);
    for ((first, place), (second, second_place)) in DAMAGES.iter().zip(seconds) {
        let id = db.conversation().await;
        let fault = async || db.load_agent_state(alice, id).await.unwrap_err().to_string();
        let quarantined = async || {
            let listed = db.list_unreadable_states(alice, id).await.unwrap();
            listed.iter().map(|state| state.epoch).collect::<Vec<_>>()
        };
        let [one, two, three] = ["one", "two", "three"].map(three_messages);
        db.save_agent_state(alice, id, &one, Expect::NOTHING).await.unwrap();
        db.pool.execute(*first).await;
        assert_eq!(fault().await, *place);
        let exported = db.export_conversation(alice, id).await.unwrap_err();
        assert!(exported.to_string().starts_with("the state is damaged: "), "{exported}");

        // An agent that starts quarantines it.
        let loaded = State::load_or_new(&db.store(), alice, &LoadContext::new(id), State::new()).await;
        let expect = loaded.unwrap().1;
        assert_eq!(expect, Expect::Unreadable(Revision(1)));
        db.save_agent_state(alice, id, &two, expect).await.unwrap();
        assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, two);
        let aside = db.load_unreadable_state(alice, id, 0).await.unwrap();

        // So does a save over anything.
        db.pool.execute(*second).await;
        assert_eq!(fault().await, *second_place);
        let revision = db.save_agent_state(alice, id, &three, Expect::Any).await.unwrap();
        db.save_agent_state(alice, id, &three, Expect::Revision(revision)).await.unwrap();
        assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, three);
        assert_eq!(quarantined().await, [0, 1]);
        assert_eq!(db.load_unreadable_state(alice, id, 0).await.unwrap(), aside);

        // The current state is quarantined in turn, and comes back equal.
        db.restore_unreadable_state(alice, id, 0).await.unwrap();
        assert_eq!(fault().await, *place);
        assert_eq!(quarantined().await, [1, 2]);
        db.discard_unreadable_state(alice, id, 1).await.unwrap();
        assert_not_found!(db.discard_unreadable_state(alice, id, 1));
        db.restore_unreadable_state(alice, id, 2).await.unwrap();
        assert_eq!(db.load_agent_state(alice, id).await.unwrap().state, three);
        db.discard_unreadable_state(alice, id, 0).await.unwrap();
        assert!(quarantined().await.is_empty());
        let rows = db.pool.number("SELECT count(*) FROM sagents_agent_messages").await;
        assert_eq!(rows, 3, "nothing is left of what was discarded");
        db.delete_conversation(alice, id).await.unwrap();
    }
}

fn three_messages(text: &str) -> State {
    let mut state = State::new();
    state.add_messages((0..3).map(|n| Message::user(format!("{text} {n}"))));
    state
}
