//! The ways in which a scope may name its owner.

use std::fmt;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use uuid::Uuid;

type Parts = axum::http::request::Parts;

/// Who is asking, as a header says. A real application would not believe it.
fn named<T: FromStr>(parts: &Parts, header: &str) -> Option<T> {
    parts.headers.get(header)?.to_str().ok()?.parse().ok()
}

impl<S: Sync> FromRequestParts<S> for DeviceScope {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let (device_id, club) = (named(parts, "x-device"), named(parts, "x-club"));
        Ok(Self { device_id, club })
    }
}

impl<S: Sync> FromRequestParts<S> for Scope {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let id = named(parts, "x-user").ok_or(StatusCode::UNAUTHORIZED)?;
        let name = "somebody".to_owned();
        Ok(Self {
            user: User { id, name },
        })
    }
}

#[derive(Debug, Clone)]
pub struct User {
    pub id: i64,
    pub name: String,
}

/// Holds its owner.
#[derive(Debug, Clone)]
pub struct Scope {
    pub user: User,
}

/// May name nobody, and has a text for an id.
#[derive(Debug, Clone)]
pub struct AccountScope {
    pub account_id: Option<String>,
}

/// Keeps its fields to itself, and may fail.
#[derive(Debug, Clone)]
pub struct TeamScope {
    team: Option<Uuid>,
}

#[derive(Debug)]
pub struct Expired;

impl TeamScope {
    #[must_use]
    pub fn new(team: Uuid) -> Self {
        Self { team: Some(team) }
    }

    /// # Errors
    ///
    /// If the session is over.
    pub fn team_id(&self) -> Result<Uuid, Expired> {
        self.team.ok_or(Expired)
    }
}

/// An id that can only be printed.
#[derive(Debug, Clone)]
pub struct OrgId(u64);

impl fmt::Display for OrgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "org-{}", self.0)
    }
}

/// Has an id of a type of its own.
#[derive(Debug, Clone)]
pub struct OrgScope {
    pub org_id: OrgId,
}

/// Is an owner, by a smaller integer than the table's, or something else.
#[derive(Debug, Clone)]
pub enum CompanyScope {
    Company(i32),
    Auditor { id: i32 },
    Anonymous,
}

/// An id that converts to what is stored.
#[derive(Debug, Clone, Copy)]
pub struct LoginId(Uuid);

impl From<LoginId> for Uuid {
    fn from(id: LoginId) -> Self {
        id.0
    }
}

#[derive(Debug, Clone)]
pub struct Login {
    pub user_id: LoginId,
}

#[derive(Debug, Clone)]
pub struct Organization {
    pub id: i32,
}

/// Calls its owner the current one, who may be absent; then it is an organization's.
#[derive(Debug, Clone)]
pub struct Session {
    pub current_user: Option<Login>,
    pub organization: Option<Organization>,
}

/// Has an id that its table keeps as text; without one it is a club's.
#[derive(Debug, Clone)]
pub struct DeviceScope {
    pub device_id: Option<Uuid>,
    pub club: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Guest {
    id: Uuid,
}

impl Guest {
    #[must_use]
    pub fn id(&self) -> &Uuid {
        &self.id
    }
}

/// Holds an owner that is in no table, or nobody.
#[derive(Debug, Clone)]
pub enum GuestScope {
    Guest(Guest),
    Nobody,
}

#[derive(Debug, Clone)]
pub enum Role {
    Tenant,
    Staff,
}

/// Is of several kinds, and is called like a type of the generated code, as its kind is.
#[derive(Debug, Clone)]
pub struct Owner {
    pub r#type: Role,
    pub id: String,
}

/// Lends an owner that may be absent.
#[derive(Debug, Clone)]
pub struct ClientScope {
    client: Option<String>,
}

impl ClientScope {
    #[must_use]
    pub fn client_id(&self) -> Option<&str> {
        self.client.as_deref()
    }
}
