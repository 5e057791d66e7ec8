//! The page, which is in the binary.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::OriginalUri;
use axum::http::{HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const INDEX: &str = "index.html";
const COLORS: &str = "colors.css";

macro_rules! files {
    ($kind:literal: $($name:literal),+) => {
        [$(($name, $kind, include_bytes!(concat!("assets/", $name)).as_slice())),+]
    };
}

/// The title, the colors and the files of the page.
///
/// ```
/// use sagents::web::PageOptions;
///
/// let page = PageOptions::new()
///     .title("Acme Support")
///     .color("accent", "#7a1f5c", "#e7a6d0")
///     .asset("icon.svg", "image/svg+xml", "<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>");
/// ```
#[derive(Debug, Clone)]
pub struct PageOptions {
    title: String,
    sign_in: String,
    colors: BTreeMap<String, (String, String)>,
    assets: BTreeMap<String, Asset>,
}

#[derive(Debug, Clone)]
struct Asset {
    content_type: String,
    bytes: Bytes,
}

impl PageOptions {
    /// The page as it is in the library.
    #[must_use]
    pub fn new() -> Self {
        let texts = files!("text/javascript; charset=utf-8":
            "api.js", "app.js", "chat.js", "composer.js", "conversation.js", "dialog.js", "dom.js", "inline.js", "list.js",
            "markdown.js", "message.js", "outbox.js", "panel.js", "stream.js", "tool.js");
        let styles = files!("text/css; charset=utf-8": "app.css");
        let images = files!("image/svg+xml": "icon.svg");
        let pages = files!("text/html; charset=utf-8": "index.html");
        let files = texts.into_iter().chain(styles).chain(images).chain(pages);
        let assets = files.map(|(name, content_type, bytes)| {
            let asset = Asset { content_type: content_type.to_owned(), bytes: Bytes::from_static(bytes) };
            (name.to_owned(), asset)
        });
        Self {
            title: "Conversations".to_owned(),
            sign_in: "/login".to_owned(),
            colors: BTreeMap::new(),
            assets: assets.collect(),
        }
    }

    /// Sets the title. By default it's "Conversations".
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Sets where people sign in after a response with the status 401. By default that's `/login`.
    #[must_use]
    pub fn sign_in(mut self, url: impl Into<String>) -> Self {
        self.sign_in = url.into();
        self
    }

    /// Sets a color in a light and a dark color scheme, as CSS values. The names are the variables at the start of
    /// `app.css` without the hyphens, for example `accent`, `accent-strong`, `accent-ink` and `accent-soft`.
    #[must_use]
    pub fn color(mut self, name: impl Into<String>, light: impl Into<String>, dark: impl Into<String>) -> Self {
        drop(self.colors.insert(name.into(), (light.into(), dark.into())));
        self
    }

    /// Adds the file `/assets/{name}`, or replaces it. `index.html` is the page itself; `{title}` and `{sign-in}` stand
    /// for the options in it, and links to other files begin with `"assets/`.
    #[must_use]
    pub fn asset(mut self, name: impl Into<String>, content_type: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        let asset = Asset { content_type: content_type.into(), bytes: bytes.into() };
        drop(self.assets.insert(name.into(), asset));
        self
    }

    fn index(&self) -> String {
        let text = self.assets.get(INDEX).map(|asset| String::from_utf8_lossy(&asset.bytes)).unwrap_or_default();
        text.replace("{title}", &escape(&self.title)).replace("{sign-in}", &escape(&self.sign_in))
    }

    fn colors(&self) -> String {
        let (mut light, mut dark) = (String::new(), String::new());
        for (name, (in_light, in_dark)) in &self.colors {
            // Writing to a string never fails.
            let _ = write!(light, " --{name}: {in_light};");
            let _ = write!(dark, " --{name}: {in_dark};");
        }
        format!(":root {{{light} }}\n@media (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n")
    }
}

impl Default for PageOptions {
    fn default() -> Self {
        Self::new()
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(super) fn routes(options: &PageOptions) -> Router {
    let index: Arc<str> = options.index().into();
    let mut router = Router::new().route("/", get(async move |OriginalUri(uri): OriginalUri| page(&index, &uri)));
    let colors = Asset { content_type: "text/css; charset=utf-8".to_owned(), bytes: options.colors().into() };
    let mut assets = options.assets.clone();
    let _ = assets.remove(INDEX);
    let _ = assets.entry(COLORS.to_owned()).or_insert(colors);
    for (name, Asset { content_type, bytes }) in assets {
        let file = get(async move || with_type(&content_type, bytes));
        router = router.route(&format!("/assets/{name}"), file);
    }
    router
}

fn page(index: &str, uri: &Uri) -> Response {
    match index_at(index, uri) {
        Some(text) => with_type("text/html; charset=utf-8", text.into()),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The links of the page are relative to its directory. If a router is nested at `/chat`, the page is the file `chat`
/// in the directory above.
fn index_at(index: &str, uri: &Uri) -> Option<String> {
    let (_, name) = uri.path().rsplit_once('/')?;
    if name.is_empty() {
        return Some(index.to_owned());
    }
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte));
    is_plain.then(|| index.replace("\"assets/", &format!("\"{name}/assets/")))
}

/// A new version of the program has other files at the same addresses, so browsers have to ask again.
fn with_type(content_type: &str, bytes: Bytes) -> Response {
    let headers: [(HeaderName, &str); 2] = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-cache")];
    (headers, bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_is_text_and_not_markup() {
        let page = PageOptions::new().title("<b> & \"Co\"").sign_in("/in?a=1&b=2").index();
        assert!(page.contains("<title>&lt;b&gt; &amp; &quot;Co&quot;</title>"), "{page}");
        assert!(page.contains(r#"<meta name="sign-in" content="/in?a=1&amp;b=2">"#), "{page}");
        assert!(!page.contains("{title}") && !page.contains("{sign-in}"));
    }

    #[test]
    fn colors_are_variables_for_both_schemes() {
        let colors = PageOptions::new().color("accent", "red", "#fdd").colors();
        assert_eq!(
            colors,
            ":root { --accent: red; }\n@media (prefers-color-scheme: dark) { :root { --accent: #fdd; } }\n"
        );
    }

    #[test]
    fn every_variable_for_the_accent_is_in_the_style() {
        let style = include_str!("assets/app.css");
        for name in ["accent", "accent-strong", "accent-ink", "accent-soft"] {
            assert!(style.contains(&format!("--{name}:")), "{name}");
        }
    }

    #[test]
    fn a_file_replaces_that_of_the_library() {
        let page = PageOptions::new().asset("index.html", "text/html", "<h1>{title}</h1>").title("Hi").index();
        assert_eq!(page, "<h1>Hi</h1>");
    }
}
