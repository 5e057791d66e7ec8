//! The page of a new package, in a real browser.

mod driver;
mod http;
mod kills;
mod site;
#[path = "../support/mod.rs"]
mod support;

use std::fs;

use driver::{ALT, Browser, CONTROL, DOWN, ENTER, ESCAPE, TAB, UP};
use site::{Site, ready};

/// Waits until the agent has nothing to do.
const IDLE: &str = "document.getElementById('stop').hidden && !document.querySelector('.streaming, .dots, .card.asks')";

const USER: &str = ".message[data-role=user]";
const AGENT: &str = ".message[data-role=assistant]";

fn send(browser: &Browser, text: &str) {
    browser.click("#composer-text");
    browser.write(text);
    browser.press(&[ENTER]);
    browser.see(USER, text);
}

/// Sends a message, and waits until it is answered.
fn ask(browser: &Browser, text: &str) {
    send(browser, text);
    answered(browser);
}

/// Waits for the end of an answer. Before its beginning the page is as still as behind it.
fn answered(browser: &Browser) {
    browser.wait(&format!("document.querySelector('{AGENT}:last-child') && {IDLE}"));
}

/// What is shown is what is stored.
fn assert_stored(browser: &Browser) {
    let shown = browser.text("#messages");
    browser.reload();
    ready(browser);
    browser.wait(IDLE);
    assert_eq!(browser.text("#messages"), shown);
}

/// Chooses something in the menu of the open conversation.
fn choose(browser: &Browser, item: &str) {
    browser.click("#more");
    browser.click(item);
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn an_answer_streams_in_and_survives_a_reload_in_the_middle() {
    let site = Site::with_pace(20);
    let browser = site.browser("ada");
    send(&browser, "Tell me something long.");
    browser.wait("document.querySelector('.streaming .prose')?.innerText.length > 40");
    assert!(!browser.value("document.getElementById('stop').hidden").as_bool().unwrap());
    browser.wait("location.hash.length === 37");
    browser.reload();
    ready(&browser);
    browser.wait("document.querySelector('.streaming .prose')");
    assert_eq!(browser.count(USER), 1);
    browser.click("#stop");
    browser.see(".tail", "Stopped.");
    let stopped = browser.text(AGENT);
    assert!(stopped.len() > 40, "{stopped}");

    browser.click(".continue");
    browser.wait("document.querySelector('.streaming')");
    browser.wait(IDLE);
    assert_eq!(browser.text("#tail"), "");
    let start = stopped.lines().next().unwrap();
    assert!(browser.text(AGENT).starts_with(start), "an answer goes on where it stopped");
    assert_eq!((browser.count(USER), browser.count(AGENT)), (1, 1));
    browser.wait("!document.getElementById('usage').hidden");

    assert_stored(&browser);
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn a_call_waits_for_a_person_who_approves_edits_or_rejects_it() {
    let site = Site::start();
    let browser = site.browser("ada");
    send(&browser, "Send a postcard.");
    browser.click(".card.asks .approve");
    browser.see("[data-status=completed]", "Done");
    browser.wait(IDLE);

    send(&browser, "Send one more postcard.");
    browser.click(".card.asks .edit-arguments");
    browser.fill(".card.asks .json", "{ not JSON");
    browser.press(&[CONTROL, ENTER]);
    assert_eq!(browser.value("document.querySelector('.json').getAttribute('aria-invalid')"), "true");
    browser.see(".card.asks .hint", "This is not JSON");
    browser.fill(".card.asks .json", r#"{"to": "Bob", "text": "From the test"}"#);
    browser.press(&[CONTROL, ENTER]);
    browser.wait("document.querySelectorAll('[data-status=completed]').length === 2");
    browser.wait(IDLE);
    browser.run("document.querySelectorAll('details.card').forEach((card) => { card.open = true; })").unwrap();
    browser.see("details.card", "From the test");

    // A question is there after a reload, and in the list.
    send(&browser, "And a last postcard.");
    browser.wait("document.querySelector('.card.asks')");
    browser.reload();
    ready(&browser);
    browser.wait("document.querySelector('#conversations .dot')");
    browser.click(".card.asks .reject");
    browser.write("Too many.");
    browser.press(&[CONTROL, ENTER]);
    browser.see("[data-status=cancelled]", "Not run");
    browser.wait(IDLE);
    browser.run("document.querySelectorAll('details.card').forEach((card) => { card.open = true; })").unwrap();
    browser.see("details.card", "Too many.");
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn todos_thinking_and_failures_are_shown() {
    let site = Site::start();
    let browser = site.browser("ada");
    ask(&browser, "Make a plan.");
    browser.wait("!document.getElementById('todos').hidden");
    browser.click("#todos summary");
    browser.see("#todos-list", "done");
    ask(&browser, "Please think first.");
    browser.wait("document.querySelector('details.thinking')");
    assert_eq!(browser.value("document.querySelector('details.thinking').open"), false);
    send(&browser, "Please fail.");
    browser.see(".tail", "The agent failed.");
    browser.wait("document.querySelector('.continue')");
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn a_server_that_is_killed_and_started_again_goes_on_without_a_reload() {
    let mut site = Site::with_pace(20);
    let browser = site.browser("ada");
    // What is said for a moment only is remembered.
    let remember = "window.isSame = true; window.said = []; const line = document.getElementById('connection-text'); \
        new MutationObserver(() => window.said.push(line.textContent)).observe(line, { childList: true });";
    browser.run(remember).unwrap();
    send(&browser, "Tell me something long.");
    // Until a part of the answer is stored.
    browser.wait("document.querySelector('.streaming .prose')?.innerText.length > 300");
    site.kill();
    browser.see("#connection", "Connection lost");
    let before = browser.text(AGENT);

    // What is sent in between waits, and is sent once.
    browser.click("#composer-text");
    browser.write("Are you there?");
    browser.press(&[ENTER]);
    browser.see(USER, "Not sent yet");
    site.restart();
    browser.wait("window.said.includes('Connected again.')");
    browser.wait("!document.body.innerText.includes('Not sent yet')");
    browser.wait(IDLE);
    assert_eq!(browser.count(USER), 2);
    let start: String = before.chars().take(40).collect();
    browser.see(AGENT, &start);
    assert_eq!(browser.value("window.isSame"), true);

    assert_stored(&browser);
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn two_people_in_two_profiles_see_their_own_conversations() {
    let site = Site::start();
    let (ada, bob) = (site.browser("ada"), site.browser("bob"));
    ask(&ada, "A secret of Ada's");
    ask(&bob, "A secret of Bob's");
    ada.fill("#search-text", "secret");
    ada.see("#conversations", "1 message");
    ada.see("#conversations .snippet", "A secret of Ada's");
    bob.fill("#search-text", "secret");
    bob.see("#conversations", "1 message");
    bob.see("#conversations .snippet", "A secret of Bob's");

    // The address of a conversation of somebody else's leads to nothing.
    let address = ada.value("location.href");
    // From elsewhere: within the page it would be followed at once, and a reload may come before or after that.
    bob.go("about:blank");
    bob.go(address.as_str().unwrap());
    ready(&bob);
    bob.see(".toast", "There is no such conversation.");
    assert!(!bob.text("body").contains("Ada's"));

    // Who signs out sees nothing any more.
    ada.click("#sign-out button");
    ada.wait("location.pathname === '/login'");
    ada.go(address.as_str().unwrap());
    ada.wait("document.getElementById('sign-in').open");
    assert!(!ada.text("body").contains("secret"));
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn two_windows_of_one_conversation_show_the_same() {
    let site = Site::with_pace(5);
    let (one, other) = (site.browser("ada"), site.browser("ada"));
    ask(&one, "Hello");
    other.go(one.value("location.href").as_str().unwrap());
    other.see(USER, "Hello");
    ask(&one, "Hello again");
    other.see(USER, "Hello again");
    other.wait(IDLE);
    other.wait(&format!("document.querySelectorAll('{AGENT}').length === 2"));
    choose(&one, "#delete");
    one.click("#dialog-ok");
    other.see(".toast", "The conversation was deleted.");
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn an_edited_message_replaces_what_followed_and_a_fork_keeps_it() {
    let site = Site::start();
    let browser = site.browser("ada");
    ask(&browser, "The first question");
    ask(&browser, "The second question");
    ask(&browser, "The third question");
    let original = browser.value("location.hash");
    browser.run(&format!("document.querySelectorAll('{AGENT} .fork-message')[1].click();")).unwrap();
    browser.wait(&format!("location.hash !== {original} && document.querySelectorAll('{USER}').length === 2"));
    assert!(!browser.text("#messages").contains("third"));

    browser.run(&format!("document.querySelectorAll('{USER} .edit-message')[1].click();")).unwrap();
    browser.fill(".edit-text", "A better question");
    browser.press(&[ENTER]);
    browser.see(USER, "A better question");
    browser.wait(&format!("!document.getElementById('messages').innerText.includes('second') && {IDLE}"));
    browser.wait(&format!("document.querySelectorAll('{AGENT}').length === 2"));
    assert_eq!(browser.count(USER), 2);

    browser.go(&format!("{}{}", site.address(), original.as_str().unwrap()));
    browser.see(USER, "The third question");
    assert!(!browser.text("#messages").contains("better"));
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn conversations_are_renamed_archived_found_and_deleted() {
    let site = Site::start();
    let browser = site.browser("ada");
    ask(&browser, "Where is the lighthouse?");
    choose(&browser, "#rename");
    browser.press(&[CONTROL, "a"]);
    browser.write("Lights <b>at</b> sea");
    browser.press(&[ENTER]);
    browser.see("#title", "Lights <b>at</b> sea");
    browser.see("#conversations", "Lights <b>at</b> sea");

    choose(&browser, "#archive");
    browser.wait("!document.getElementById('archived-mark').hidden");
    browser.wait("!document.getElementById('conversations').innerText.includes('Lights')");
    browser.click("[data-archived=true]");
    browser.see("#conversations", "Lights");
    browser.click("[data-archived=false]");
    browser.click("#new");
    browser.wait("!location.hash");

    browser.fill("#search-text", "lighthouse");
    browser.see("mark", "lighthouse");
    browser.click("#conversations a");
    browser.wait("document.querySelector('.message.found')");
    choose(&browser, "#archive");
    browser.wait("document.getElementById('archived-mark').hidden");
    browser.fill("#search-text", " ");

    choose(&browser, "#delete");
    browser.click("#dialog-cancel");
    browser.see(USER, "lighthouse");
    choose(&browser, "#delete");
    browser.click("#dialog-ok");
    browser.see("#conversations", "No conversations yet");
    assert_eq!(browser.value("location.hash"), "");
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn nothing_in_a_message_is_markup_or_script() {
    let site = Site::start();
    let browser = site.browser("ada");
    let watch = "window.violations = []; \
        document.addEventListener('securitypolicyviolation', (event) => window.violations.push(event.blockedURI));";
    browser.run(watch).unwrap();
    let hostile = include_str!("hostile.md");
    let text = serde_json::to_string(hostile).unwrap();
    browser.run(&format!("document.getElementById('composer-text').value = {text};")).unwrap();
    browser.click("#composer-text");
    browser.press(&[ENTER]);
    let looks = |browser: &Browser| {
        browser.see(USER, "<script>window.hacked = 1</script>");
        browser.see(USER, "The end.");
        browser.wait(IDLE);
        for handler in ["click", "mouseover", "focus"] {
            let event = format!("node.dispatchEvent(new Event('{handler}'))");
            let script = format!("document.querySelectorAll('{USER} .body *').forEach((node) => {event});");
            browser.run(&script).unwrap();
        }
        assert_eq!(browser.value("window.hacked"), serde_json::Value::Null);
        let inside = format!("{USER} .body");
        assert_eq!(browser.count(&format!("{inside} :is(script, img, iframe, object, style, form, svg animate)")), 0);
        let attributes = format!(
            "[...document.querySelectorAll('{inside} *')].flatMap((node) => [...node.attributes]) \
             .filter(({{ name }}) => name.startsWith('on') || name === 'style').length"
        );
        assert_eq!(browser.value(&attributes), 0);
        let links = format!("[...document.querySelectorAll('{inside} a')].map((link) => [link.href, link.rel])");
        let links = browser.value(&links);
        let safe = [
            "https://example.com/a",
            "https://example.com/a%22onmouseover=%22window.hacked=1",
            "https://example.com/a",
            "https://example.com/b_(c)",
            "https://example.com/bare",
            "mailto:ada@example.com",
        ];
        let safe: Vec<_> = safe.into_iter().map(|url| (url, "noopener noreferrer")).collect();
        assert_eq!(links, serde_json::json!(safe));
    };
    looks(&browser);
    assert_eq!(browser.value("window.violations"), serde_json::json!([]));
    browser.reload();
    ready(&browser);
    looks(&browser);

    // The policy of the page stops what a fault of the page would let through.
    browser.run(watch).unwrap();
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = 2\">');").unwrap();
    browser.wait("window.violations.length > 0");
    assert_eq!(browser.value("window.hacked"), serde_json::Value::Null);
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn the_keyboard_reaches_everything() {
    let site = Site::start();
    let browser = site.browser("ada");
    let focus = |id: &str| browser.wait(&format!("document.activeElement.id === '{id}'"));
    focus("composer-text");
    browser.write("One");
    browser.press(&[ENTER]);
    browser.see(USER, "One");
    answered(&browser);
    browser.press(&[UP]);
    browser.wait("document.activeElement.className === 'edit-text'");
    browser.press(&[ESCAPE]);
    browser.wait("document.activeElement.classList.contains('edit-message')");
    browser.press(&["n"]);
    focus("composer-text");
    browser.wait("!location.hash");
    browser.write("Send a postcard.");
    browser.press(&[ENTER]);
    browser.wait("document.querySelector('.card.asks')");

    // From the field back to the card, by Shift and Tab alone.
    while browser.value("!document.activeElement.classList.contains('approve')") == true {
        browser.press(&["\u{e008}", TAB]);
    }
    browser.press(&[ENTER]);
    browser.see("[data-status=completed]", "Done");
    browser.wait(IDLE);
    focus("composer-text");

    // The list is one stop of Tab, with arrow keys inside.
    browser.press(&[CONTROL, "k"]);
    focus("search-text");
    browser.press(&[DOWN]);
    browser.wait("document.activeElement.matches('#conversations a')");
    browser.press(&[DOWN]);
    browser.press(&[ENTER]);
    browser.see("#messages", "One");
    browser.press(&[ESCAPE]);
    focus("composer-text");
    browser.press(&[ALT, UP]);
    browser.see("#messages", "postcard");

    // The menu, and a dialog that gives the focus back.
    browser.press(&[ESCAPE]);
    while browser.value("document.activeElement.id !== 'more'") == true {
        browser.press(&["\u{e008}", TAB]);
    }
    browser.press(&[ENTER]);
    focus("rename");
    browser.press(&[UP]);
    focus("delete");
    browser.press(&[ENTER]);
    focus("dialog-cancel");
    browser.press(&[ESCAPE]);
    browser.wait("!document.getElementById('dialog').open");
    browser.press(&["?"]);
    browser.wait("document.getElementById('shortcuts').open");
    browser.press(&[ESCAPE]);
    browser.wait("!document.getElementById('shortcuts').open");
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn a_narrow_window_has_a_drawer_and_nothing_that_sticks_out() {
    let site = Site::start();
    let browser = site.browser("ada");
    browser.resize(360, 740);
    ask(&browser, "Show me some Markdown.");
    ask(&browser, &"long".repeat(60));
    let fits = "document.documentElement.scrollWidth <= innerWidth && \
        document.getElementById('scroll').scrollWidth <= document.getElementById('scroll').clientWidth";
    browser.wait(fits);
    assert_eq!(browser.value("getComputedStyle(document.getElementById('sidebar')).visibility"), "hidden");
    browser.click("#menu");
    browser.wait("getComputedStyle(document.getElementById('sidebar')).visibility === 'visible'");
    assert_eq!(browser.value("document.getElementById('main').inert"), true);
    browser.press(&[ESCAPE]);
    browser.wait("document.activeElement.id === 'menu' && !document.getElementById('main').inert");
    browser.click("#menu");
    browser.click("#new");
    browser.wait("!location.hash && !document.getElementById('main').inert");
    browser.wait("document.activeElement.id === 'composer-text'");
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn a_long_conversation_is_loaded_page_by_page_and_stays_where_it_is() {
    let site = Site::start();
    let browser = site.browser("ada");
    ask(&browser, "The very first message");
    let script = "const { api, uuid } = await import('./assets/api.js'); \
        for (let number = 1; number <= 150; number += 1) await api.send(location.hash.slice(1), uuid(), `Message ${number}.`);";
    browser.run(script).unwrap();
    browser.see(USER, "Message 150.");
    browser.wait(IDLE);
    browser.reload();
    ready(&browser);
    browser.see(USER, "Message 150.");
    assert!(!browser.text("#messages").contains("The very first message"));

    let loaded = browser.count(".message");
    let scroll = "document.getElementById('scroll').scrollTop = 100; const [node] = document.querySelectorAll('.message'); \
        return [node.dataset.id, node.getBoundingClientRect().top];";
    let before = browser.run(scroll).unwrap();
    browser.wait(&format!("document.querySelectorAll('.message').length > {loaded}"));
    let node = format!("document.querySelector('[data-id={}]')", before[0]);
    let moved = browser.value(&format!("{node}.getBoundingClientRect().top - {}", before[1]));
    assert!(moved.as_f64().unwrap().abs() < 2.0, "what is in view stays: it moved by {moved}");
    browser.wait("(document.getElementById('scroll').scrollTop = 0) === 0 && document.getElementById('older').hidden");
    browser.see(USER, "The very first message");

    // A result of a search is loaded, with everything behind it.
    browser.reload();
    ready(&browser);
    browser.fill("#search-text", "very first");
    browser.see("mark", "very");
    browser.click("#conversations a");
    browser.see(".message.found", "The very first message");
}

#[test]
#[ignore = "needs Chromium: run scripts/test"]
fn drafts_stay_with_their_conversation_and_exports_have_every_message() {
    let site = Site::start();
    let browser = site.browser("ada");
    ask(&browser, "Hello");
    browser.click("#composer-text");
    browser.write("Half a thought");
    browser.click("#new");
    browser.wait("document.getElementById('composer-text').value === ''");
    browser.click("#conversations a");
    browser.wait("document.getElementById('composer-text').value === 'Half a thought'");
    browser.reload();
    ready(&browser);
    browser.wait("document.getElementById('composer-text').value === 'Half a thought'");
    let export = browser.run("return (await fetch(document.getElementById('export').href)).text();").unwrap();
    assert!(export.as_str().unwrap().lines().any(|line| line.contains("\"Hello\"")), "{export}");
}

#[test]
fn assets_have_no_inline_script_or_style_and_name_no_other_site() {
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/sagents/src/web/assets");
    for file in fs::read_dir(assets).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for forbidden in
            ["innerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=\"", "onclick=\"", "<script>"]
        {
            assert!(!text.contains(forbidden), "{} contains {forbidden}", path.display());
        }
        let addresses = text.match_indices("https://").chain(text.match_indices("http://"));
        let other: Vec<_> =
            addresses.filter(|(at, _)| !text[*at..].starts_with("http://www.w3.org/2000/svg")).collect();
        assert!(other.is_empty(), "{} names another site", path.display());
    }
}
