//! `Messages` is a `Vec` of messages whose clones share what is equal.

use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use crate::{Message, Messages};

/// A change of a list. Positions are taken modulo the length.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Push(u8),
    PushWithId(u8),
    Extend(Vec<u8>),
    Append(Vec<u8>),
    Pop,
    Insert(usize, u8),
    Remove(usize),
    Truncate(usize),
    Clear,
    Retain(u8),
    Replace(usize, u8),
    Last(u8),
    /// Changes the messages with this text, and only looks at the others.
    IterMut(u8, u8),
    /// As middleware does that summarises: the first messages become one.
    Set(usize, u8),
    Assign(Vec<u8>),
}

pub(crate) fn edit() -> impl Strategy<Value = Edit> {
    // Few texts, so that messages are often equal.
    let text = || 0..4_u8;
    let several = || vec(text(), 0..100);
    prop_oneof![
        4 => text().prop_map(Edit::Push),
        4 => text().prop_map(Edit::PushWithId),
        2 => several().prop_map(Edit::Extend),
        1 => several().prop_map(Edit::Append),
        1 => Just(Edit::Pop),
        2 => (any::<usize>(), text()).prop_map(|(at, text)| Edit::Insert(at, text)),
        2 => any::<usize>().prop_map(Edit::Remove),
        1 => any::<usize>().prop_map(Edit::Truncate),
        1 => Just(Edit::Clear),
        1 => text().prop_map(Edit::Retain),
        4 => (any::<usize>(), text()).prop_map(|(at, text)| Edit::Replace(at, text)),
        1 => text().prop_map(Edit::Last),
        1 => (text(), text()).prop_map(|(from, to)| Edit::IterMut(from, to)),
        2 => (any::<usize>(), text()).prop_map(|(at, text)| Edit::Set(at, text)),
        1 => several().prop_map(Edit::Assign),
    ]
}

pub(crate) fn message(text: u8) -> Message {
    Message::user(text.to_string())
}

fn messages(texts: &[u8]) -> Vec<Message> {
    texts.iter().copied().map(message).collect()
}

impl Edit {
    pub(crate) fn apply(&self, list: &mut Messages) {
        let len = list.len();
        match self {
            Self::Push(text) => list.push(message(*text)),
            Self::PushWithId(text) => list.push_with_id(Uuid::now_v7(), message(*text)),
            Self::Extend(texts) => list.extend(messages(texts)),
            Self::Append(texts) => list.append(messages(texts).into()),
            Self::Pop => drop(list.pop()),
            Self::Insert(at, text) => list.insert(at % (len + 1), message(*text)),
            Self::Remove(at) if len > 0 => drop(list.remove(at % len)),
            Self::Truncate(at) => list.truncate(at % (len + 2)),
            Self::Clear => list.clear(),
            Self::Retain(text) => list.retain(|other| *other != message(*text)),
            Self::Replace(at, text) if len > 0 => list[at % len] = message(*text),
            Self::Last(text) => {
                if let Some(last) = list.last_mut() {
                    *last = message(*text);
                }
            }
            Self::IterMut(from, to) => {
                list.iter_mut().filter(|other| **other == message(*from)).for_each(|other| *other = message(*to));
            }
            // `State::set_messages` is tested with rows.
            Self::Set(at, text) => {
                let summary = std::iter::once(message(*text));
                *list = summary.chain(list.clone().into_iter().skip(at % (len + 1))).collect();
            }
            Self::Assign(texts) => *list = messages(texts).into(),
            Self::Remove(_) | Self::Replace(..) => {}
        }
    }

    /// The same change of a `Vec`.
    fn apply_to_vec(&self, list: &mut Vec<Message>) {
        let len = list.len();
        match self {
            Self::Push(text) | Self::PushWithId(text) => list.push(message(*text)),
            Self::Extend(texts) | Self::Append(texts) => list.extend(messages(texts)),
            Self::Pop => drop(list.pop()),
            Self::Insert(at, text) => list.insert(at % (len + 1), message(*text)),
            Self::Remove(at) if len > 0 => drop(list.remove(at % len)),
            Self::Truncate(at) => list.truncate(at % (len + 2)),
            Self::Clear => list.clear(),
            Self::Retain(text) => list.retain(|other| *other != message(*text)),
            Self::Replace(at, text) if len > 0 => list[at % len] = message(*text),
            Self::Last(text) => {
                if let Some(last) = list.last_mut() {
                    *last = message(*text);
                }
            }
            Self::IterMut(from, to) => {
                list.iter_mut().filter(|other| **other == message(*from)).for_each(|other| *other = message(*to));
            }
            Self::Set(at, text) => drop(list.splice(..at % (len + 1), [message(*text)])),
            Self::Assign(texts) => *list = messages(texts),
            Self::Remove(_) | Self::Replace(..) => {}
        }
    }
}

fn apply_all(edits: &[Edit], list: &mut Messages) {
    for edit in edits {
        edit.apply(list);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_edits_of_a_list_are_those_of_a_vec(edits in vec(edit(), 0..30)) {
        let (mut list, mut expected) = (Messages::new(), Vec::new());
        for edit in edits {
            edit.apply(&mut list);
            edit.apply_to_vec(&mut expected);
            prop_assert_eq!(&list, &expected);
            prop_assert_eq!(&expected, &list);
            prop_assert_eq!(&list, expected.as_slice());
            prop_assert_eq!(&list, &Messages::from(expected.clone()));
            prop_assert_eq!((list.len(), list.is_empty()), (expected.len(), expected.is_empty()));
            prop_assert_eq!((list.first(), list.last()), (expected.first(), expected.last()));
            prop_assert_eq!(list.get(expected.len()), None);
            prop_assert!(list.iter().rev().eq(expected.iter().rev()));
            prop_assert!(list.clone().iter_mut().rev().eq(expected.iter_mut().rev()));
            prop_assert_eq!(list.iter().len(), expected.len());
            prop_assert_eq!(list.to_vec(), list.clone().into_iter().collect::<Vec<_>>());
            prop_assert_eq!(format!("{list:?}"), format!("{expected:?}"));
        }
        let text = serde_json::to_string(&list).unwrap();
        prop_assert_eq!(&text, &serde_json::to_string(&expected).unwrap());
        prop_assert_eq!(serde_json::from_str::<Messages>(&text).unwrap(), list);
    }

    #[test]
    fn clones_do_not_see_the_edits_of_each_other(before in vec(edit(), 0..10), one in vec(edit(), 0..5), other in vec(edit(), 0..5)) {
        let mut list = Messages::new();
        apply_all(&before, &mut list);
        let (unchanged, mut clone) = (list.to_vec(), list.clone());
        apply_all(&one, &mut list);
        prop_assert_eq!(&clone, &unchanged);
        let changed = list.to_vec();
        apply_all(&other, &mut clone);
        prop_assert_eq!(&list, &changed);
    }
}

#[test]
fn a_list_that_is_longer_or_differs_at_its_end_is_another() {
    let list = Messages::from(messages(&[1; 130]));
    let mut other = list.clone();
    other.push(message(1));
    assert_ne!(list, other);
    assert_ne!(list, messages(&[1; 129]));
    *other.last_mut().unwrap() = message(2);
    assert_eq!(other.pop(), Some(message(2)));
    assert_eq!(list, other);
    other[129] = message(2);
    assert_ne!(list, other);
}

#[test]
fn a_message_keeps_its_id_when_it_is_changed_or_moved() {
    let mut list = Messages::new();
    let ids: Vec<_> = (0..100).map(|_| Uuid::now_v7()).collect();
    for id in &ids {
        list.push_with_id(*id, message(0));
    }
    list[3] = message(3);
    let before = list.clone();
    drop(list.remove(0));
    list.insert(50, message(5));
    assert_eq!((list.id(2), &list[2]), (Some(ids[3]), &message(3)));
    assert_eq!(list.id(50), None, "it was never saved");
    assert_eq!((list.id(51), list.id(99)), (Some(ids[51]), Some(ids[99])));
    assert_eq!((before.id(0), before.id(99), before.id(100)), (Some(ids[0]), Some(ids[99]), None));
    let mut both = Messages::new();
    both.append(before.clone());
    both.append(list);
    assert_eq!((both.id(0), both.id(102)), (Some(ids[0]), Some(ids[3])));
}

#[test]
#[should_panic(expected = "there is no message 100: the length is 3")]
fn indexing_past_the_end_panics_as_in_a_vec() {
    let _ = &Messages::from(messages(&[1, 2, 3]))[100];
}
