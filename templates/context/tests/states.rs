//! The state of an agent: revisions, what is written, and what cannot be read.

use serde_json::json;

use super::super::*;
use super::database::{DAMAGED, Database, alice};
use super::state_of;
use crate::sagents::{Expect, Message, State, Todo, serializer};

/// The place of the damage that a call has found.
fn damaged_place<T>(result: Result<T>) -> String {
    match result {
        Err(Error::DeserializationFailed(ReadError::Damaged { path, .. })) => path,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

#[tokio::test]
async fn a_state_reads_back_equal_and_a_late_writer_is_told() {
    let db = Database::new().await;
    let id = db.conversation().await;
    assert_not_found!(db.load_agent_state(&alice(), id));
    assert_eq!(db.load_todos(&alice(), id).await.unwrap(), []);

    let mut state = State::new();
    state.add_message(Message::user("nul\0byte"));
    state.put_todo(Todo::new(1, "write"));
    state.put_metadata("exact", json!([u64::MAX, i64::MIN, 0.1, 1e300, -0.0]));
    let first = db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    let saved = db.load_agent_state(&alice(), id).await.unwrap();
    assert_eq!((&saved.state, saved.revision), (&state, first));
    assert_eq!(db.load_todos(&alice(), id).await.unwrap(), state.todos);

    state.add_message(Message::assistant("hello"));
    let write_id = Uuid::now_v7();
    for _ in 0..2 {
        let expect = Expect::Revision(first);
        let second = db.save_agent_state_with_id(&alice(), id, &state, expect, write_id).await.unwrap();
        assert_eq!(second, Revision(first.0 + 1), "repeating the save changes nothing");
    }
    let absurd = Expect::Revision(Revision(i64::MAX));
    let absurd = db.save_agent_state_with_id(&alice(), id, &state, absurd, write_id).await;
    assert!(matches!(absurd, Err(Error::Conflict { .. })));
    let late = db.save_agent_state(&alice(), id, &State::new(), Expect::Revision(first)).await;
    assert!(matches!(late, Err(Error::Conflict { current }) if current.0 == first.0 + 1));
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
    db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.unwrap();
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, State::new());
}

#[tokio::test]
async fn a_save_writes_only_the_messages_that_changed() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let mut state = State::new();
    state.add_messages((0..100).map(|n| Message::user(format!("message {n}"))));
    let mut revision = db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    let ids: Vec<_> = (0..100).map(|n| state.messages.id(n)).collect();
    let loaded = db.load_agent_state(&alice(), id).await.unwrap().state;
    assert_eq!((0..100).map(|n| loaded.messages.id(n)).collect::<Vec<_>>(), ids);

    db.mark_messages().await;
    state.add_messages([Message::assistant("new"), Message::user("newer")]);
    let expect = Expect::Revision(revision);
    revision = db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
    assert_eq!(db.written_messages().await, [100, 101]);

    db.mark_messages().await;
    state.messages[7] = Message::user("other");
    state.messages.truncate(50);
    let expect = Expect::Revision(revision);
    revision = db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
    assert_eq!(db.written_messages().await, [7]);
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);

    // A state that does not know what is stored writes all.
    let other = state_of(&["a", "b", "c"]);
    let expect = Expect::Revision(revision);
    db.save_agent_state(&alice(), id, &other, expect).await.unwrap();
    let late = db.save_agent_state(&alice(), id, &state, expect).await;
    assert!(matches!(late, Err(Error::Conflict { .. })));
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, other);
    db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
}

#[tokio::test]
async fn a_conversation_that_was_created_again_is_not_taken_for_the_old_one() {
    let db = Database::new().await;
    let new = NewConversation::new();
    let id = db.create_conversation(&alice(), new.clone()).await.unwrap().id;
    let mut state = state_of(&["a", "b"]);
    let revision = db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    db.delete_conversation(&alice(), id).await.unwrap();
    db.create_conversation(&alice(), new).await.unwrap();
    let other = state_of(&["c", "d"]);
    let same = db.save_agent_state(&alice(), id, &other, Expect::NOTHING).await.unwrap();
    assert_eq!(same, revision);

    state.add_message(Message::user("e"));
    let mixed = db.save_agent_state(&alice(), id, &state, Expect::Revision(revision)).await;
    assert!(matches!(mixed, Err(Error::Conflict { .. })), "{mixed:?}");
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_several_writers_with_the_same_revision_one_wins() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let mut writers = tokio::task::JoinSet::new();
    for n in 1..=8 {
        let conversations = db.conversations.clone();
        writers.spawn(async move {
            let mut state = State::new();
            state.add_messages((0..n).map(|_| Message::user(format!("writer {n}"))));
            let saved = conversations.save_agent_state(&alice(), id, &state, Expect::NOTHING).await;
            (saved, state)
        });
    }
    let mut winners = Vec::new();
    for (saved, state) in writers.join_all().await {
        match saved {
            Ok(revision) => {
                assert_eq!(revision, Revision(1));
                winners.push(state);
            }
            Err(error) => assert!(matches!(error, Error::Conflict { current: Revision(1) }), "{error}"),
        }
    }
    assert_eq!(winners, [db.load_agent_state(&alice(), id).await.unwrap().state]);
}

#[tokio::test]
async fn a_revision_that_no_state_has_is_a_conflict() {
    let db = Database::new().await;
    let id = db.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
    let state = state_of(&["a"]);
    let current = db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
    for revision in [i64::MIN, -1, i64::MAX].map(Revision) {
        for expect in [Expect::Revision(revision), Expect::Unreadable(revision)] {
            let outcome = db.save_agent_state(&alice(), id, &state, expect).await;
            assert!(matches!(outcome, Err(Error::Conflict { current: found }) if found == current));
        }
    }
    assert_eq!(db.list_unreadable(&alice(), id).await.unwrap(), []);
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_not_overwritten() {
    let db = Database::new().await;
    let id = db.conversation().await;
    db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.unwrap();
    db.replace_state(r#"{"version":4,"state":{}}"#).await;
    for outcome in [
        db.load_agent_state(&alice(), id).await.map(|_| ()),
        db.save_agent_state(&alice(), id, &State::new(), Expect::Any).await.map(|_| ()),
    ] {
        let future = ReadError::FutureVersion { version: 4 };
        assert!(matches!(outcome, Err(Error::DeserializationFailed(error)) if error == future));
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_set_aside_until_it_is_restored_or_discarded() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let state = state_of(&["hello"]);
    let mut revision = db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
    for (n, damaged) in DAMAGED.into_iter().enumerate() {
        db.replace_state(damaged).await;
        assert!(matches!(
            db.load_agent_state(&alice(), id).await,
            Err(Error::DeserializationFailed(_))
        ));
        // A caller who does not look is not allowed to lose it either.
        let expect = if n == 0 { Expect::Unreadable(revision) } else { Expect::Any };
        revision = db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
        assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
    }
    for _ in 0..3 {
        let expect = Expect::Revision(revision);
        revision = db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
    }

    let aside = db.list_unreadable(&alice(), id).await.unwrap();
    assert_eq!(aside.len(), DAMAGED.len());
    for (UnreadableState { epoch, .. }, damaged) in aside.iter().zip(DAMAGED) {
        let data = db.load_unreadable(&alice(), id, *epoch).await.unwrap();
        assert_eq!((data.header.as_slice(), data.messages.len()), (damaged.as_bytes(), 1));
    }

    let restored = db.restore_unreadable(&alice(), id, aside[0].epoch).await.unwrap();
    assert_eq!(restored, Revision(revision.0 + 1));
    assert!(matches!(
        db.load_agent_state(&alice(), id).await,
        Err(Error::DeserializationFailed(_))
    ));
    let late = db.save_agent_state(&alice(), id, &state, Expect::Revision(revision)).await;
    assert!(matches!(late, Err(Error::Conflict { .. })));
    let swapped = db.list_unreadable(&alice(), id).await.unwrap();
    assert_eq!(swapped.len(), DAMAGED.len());
    assert_not_found!(db.restore_unreadable(&alice(), id, aside[0].epoch));

    // The readable one was the last that was set aside.
    let readable = swapped.last().unwrap().epoch;
    db.restore_unreadable(&alice(), id, readable).await.unwrap();
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
    for UnreadableState { epoch, .. } in aside {
        db.discard_unreadable(&alice(), id, epoch).await.unwrap();
        assert_not_found!(db.discard_unreadable(&alice(), id, epoch));
        assert_not_found!(db.load_unreadable(&alice(), id, epoch));
    }
    assert_eq!(db.list_unreadable(&alice(), id).await.unwrap(), []);
    assert_not_found!(db.discard_unreadable(&alice(), id, readable));
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
}

#[tokio::test]
async fn damaged_and_missing_messages_are_found_with_their_place() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let state = state_of(&["a", "b", "c"]);
    for (position, damage, place) in [
        (1, None, "state.messages[1]"),
        (2, None, "state.messages"),
        (1, Some("1"), "state.messages[1]"),
        (2, Some(r#"{"role":"nobody"}"#), "state.messages[2].role"),
    ] {
        let revision = db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
        match damage {
            Some(data) => db.replace_message(position, data).await,
            None => db.delete_message(position).await,
        }
        assert_eq!(damaged_place(db.load_agent_state(&alice(), id).await), place);
        assert_eq!(db.load_todos(&alice(), id).await.unwrap(), []);

        let expect = Expect::Unreadable(revision);
        db.save_agent_state(&alice(), id, &state, expect).await.unwrap();
        assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
        let epoch = db.list_unreadable(&alice(), id).await.unwrap()[0].epoch;
        db.restore_unreadable(&alice(), id, epoch).await.unwrap();
        assert_eq!(damaged_place(db.load_agent_state(&alice(), id).await), place);
        db.save_agent_state(&alice(), id, &state, Expect::Any).await.unwrap();
        for UnreadableState { epoch, .. } in db.list_unreadable(&alice(), id).await.unwrap() {
            db.discard_unreadable(&alice(), id, epoch).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_an_earlier_version_stored_is_read_and_becomes_rows() {
    let db = Database::new().await;
    let id = db.conversation().await;
    let mut state = state_of(&["a", "b"]);
    state.put_todo(Todo::new(1, "write"));
    let revision = db.save_agent_state(&alice(), id, &State::new(), Expect::NOTHING).await.unwrap();
    db.replace_state(&serializer::to_text(&state).unwrap()).await;
    assert_eq!(db.load_todos(&alice(), id).await.unwrap(), state.todos);
    let mut loaded = db.load_agent_state(&alice(), id).await.unwrap().state;
    assert_eq!(loaded, state);

    for copy in [&mut loaded, &mut state] {
        copy.add_message(Message::user("c"));
    }
    db.save_agent_state(&alice(), id, &loaded, Expect::Revision(revision)).await.unwrap();
    assert_eq!(db.written_messages().await, [0, 1, 2]);
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);

    db.set_aside_by_earlier_version("[]").await;
    let aside = db.list_unreadable(&alice(), id).await.unwrap();
    let earlier = UnreadableState {
        epoch: -1,
        set_aside_at: None,
    };
    assert_eq!(aside, [earlier]);
    let earlier = db.load_unreadable(&alice(), id, -1).await.unwrap();
    assert_eq!((&*earlier.header, earlier.messages.len()), (&b"[]"[..], 0));
    db.restore_unreadable(&alice(), id, -1).await.unwrap();
    assert_eq!(damaged_place(db.load_agent_state(&alice(), id).await), "root");
    let aside = db.list_unreadable(&alice(), id).await.unwrap();
    let [UnreadableState { epoch, .. }] = aside[..] else {
        panic!("not one: {aside:?}");
    };
    db.restore_unreadable(&alice(), id, epoch).await.unwrap();
    assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
    let epoch = db.list_unreadable(&alice(), id).await.unwrap()[0].epoch;
    assert_eq!(db.load_unreadable(&alice(), id, epoch).await.unwrap().header, b"[]");

    db.set_aside_by_earlier_version("{}").await;
    db.discard_unreadable(&alice(), id, -1).await.unwrap();
    assert_eq!(db.list_unreadable(&alice(), id).await.unwrap().len(), 1);
}

#[tokio::test]
async fn messages_stay_with_a_state_that_an_earlier_version_set_aside() {
    let db = Database::new().await;
    let state = state_of(&["a", "b"]);
    let whole = serializer::to_text(&state_of(&["c", "d", "e"])).unwrap();
    for (earlier, keep) in [(whole.as_str(), true), ("[]", true), (&whole, false)] {
        let id = db.create_conversation(&alice(), NewConversation::new()).await.unwrap().id;
        db.save_agent_state(&alice(), id, &state, Expect::NOTHING).await.unwrap();
        db.set_aside_by_earlier_version(earlier).await;
        db.restore_by_earlier_version().await;
        if keep {
            db.save_agent_state(&alice(), id, &state_of(&["f"]), Expect::Any).await.unwrap();
            let epoch = db.list_unreadable(&alice(), id).await.unwrap()[0].epoch;
            assert_eq!(db.load_unreadable(&alice(), id, epoch).await.unwrap().messages.len(), 2);
            db.restore_unreadable(&alice(), id, epoch).await.unwrap();
        } else {
            assert_eq!(db.load_unreadable(&alice(), id, -1).await.unwrap().messages.len(), 2);
            db.restore_unreadable(&alice(), id, -1).await.unwrap();
        }
        assert_eq!(db.load_agent_state(&alice(), id).await.unwrap().state, state);
        db.delete_conversation(&alice(), id).await.unwrap();
    }
}
