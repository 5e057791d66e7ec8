//! Groups of fields ready to print, with a function for each template that prints them. Decisions are made here, layout in `templates/`.

/// A struct of fields that are ready to print, with a method for each template that prints them.
macro_rules! templates {
    (@struct $group:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }) => {
        #[derive(Debug)]
        pub struct $group {
            $($(#[$attribute])* $field: $type,)*
        }
    };
    (@text { $($(#[$attribute:meta])* $field:ident: $type:ty,)* } $text:ident: $path:literal) => {
        pub fn $text(&self) -> String {
            #[derive(askama::Template)]
            #[template(path = $path, escape = "none")]
            #[allow(dead_code, reason = "not every template prints every field")]
            #[allow(clippy::ref_option_ref, reason = "every field is a reference")]
            struct Text<'a> {
                $($field: &'a $type,)*
            }

            let Self { $($field,)* } = self;
            $crate::templates::render(&Text { $($field,)* })
        }
    };
    ($group:ident $fields:tt $($text:ident: $path:literal,)*) => {
        templates!(@struct $group $fields);

        impl $group {
            $(templates!(@text $fields $text: $path);)*
        }
    };
}

mod access;
mod context;
pub mod example;
mod key;
mod migration;
mod names;
mod package;
mod scope;
mod sql;

pub use self::context::Context;
pub use self::migration::{create_owners, drop_owners, rust_migration};
pub use self::package::main;
pub use self::scope::scope_type;

use askama::Template;

/// The context's own file, without a name, and the modules below it.
pub type Files = Vec<(Option<&'static str>, String)>;

/// As many as raw strings of these texts need around them.
fn hashes(texts: &[&str]) -> String {
    let mut hashes = "#".to_owned();
    while texts.iter().any(|text| text.contains(&format!("\"{hashes}"))) {
        hashes.push('#');
    }
    hashes
}

/// rustfmt stumbles over spaces at the end of a line, which an empty expression may leave.
fn render(template: &impl Template) -> String {
    let text = template.render().expect("a template writes to a string, which does not fail");
    text.split('\n').map(str::trim_end).collect::<Vec<_>>().join("\n")
}
